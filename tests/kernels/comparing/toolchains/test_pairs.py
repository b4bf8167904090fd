"""Compile times of two toolchains: the worse of CPU and wall time counts, over enough configs."""

import pytest

from tilewatch.kernels.comparing.toolchains.pairs import LEAST_COMPILED, SLOWER_COMPILE, CompileTimes


@pytest.mark.parametrize(("cpu_s", "wall_s", "ratio"), [(30.0, 10.0, 3.0), (10.0, 20.0, 2.0), (5.0, 8.0, 0.8)])
def test_the_larger_ratio_counts(cpu_s: float, wall_s: float, ratio: float) -> None:
    assert CompileTimes(100, 10.0, cpu_s, 10.0, wall_s).ratio == pytest.approx(ratio)


@pytest.mark.parametrize(
    ("configs", "head_cpu_s", "is_slower"),
    [
        (LEAST_COMPILED, SLOWER_COMPILE, True),
        (LEAST_COMPILED - 1, SLOWER_COMPILE, False),
        (LEAST_COMPILED, SLOWER_COMPILE - 0.01, False),
    ],
)
def test_a_compiler_is_slower_from_a_ratio_on_over_enough_configs(
    configs: int, head_cpu_s: float, is_slower: bool
) -> None:
    assert CompileTimes(configs, 1.0, head_cpu_s, 1.0, 1.0).is_slower is is_slower


def test_no_compiled_config_is_no_ratio_of_zero_seconds() -> None:
    assert CompileTimes(0, 0.0, 0.0, 0.0, 0.0).ratio == 0.0
