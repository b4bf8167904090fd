"""How an operator's code differs under two toolchains, and their compile times: the worse of CPU and wall time counts,
over enough configs."""

from dataclasses import replace

import pytest

from tilewatch.kernels.comparing.toolchains.mma_waits import MmaWaits
from tilewatch.kernels.comparing.toolchains.pairs import (
    CompiledSide,
    CompileTimes,
    ToolchainPair,
    add_compile_times,
    make_compiled_side,
)
from tilewatch.kernels.results import PROCESS_DIED, Compiled, Cubin, StaticFacts

OK = CompiledSide({}, "ok", 1.0, 1.0, code_sha256="old")
OTHER = replace(OK, code_sha256="new")
ERROR = CompiledSide({}, "error", 1.0, 1.0, "no such instruction")
SLOW = CompiledSide({}, "timeout", 15.0, 15.0, "over 15 s")
BUSY = replace(SLOW, is_final=False)


def pair(base: CompiledSide, head: CompiledSide) -> ToolchainPair:
    return ToolchainPair("gemm", "1x1", "sm_90", "shipped", (base,), (head,), "new")


@pytest.mark.parametrize(
    ("base", "head", "kind", "moved"),
    [
        (OK, OK, "identical", ()),
        (OK, OTHER, "changed", ()),
        (OK, ERROR, "stopped compiling", ("does not compile: no such instruction",)),
        (OK, SLOW, "stopped compiling", ("times out: over 15 s",)),
        (ERROR, OK, "compiles now", ()),
        (SLOW, ERROR, "compiles with neither", ()),
        (OK, BUSY, "not compiled", ()),
        (BUSY, OK, "not compiled", ()),
    ],
)
def test_a_pair_is_of_the_kind_that_both_compilations_make_it(
    base: CompiledSide, head: CompiledSide, kind: str, moved: tuple[str, ...]
) -> None:
    assert (pair(base, head).kind, pair(base, head).moved) == (kind, moved)


@pytest.mark.parametrize(
    ("base", "head", "for_each"),
    [
        ((15, 16), (16, 16), True),
        ((16, 16), (16, 16), False),
        ((15, 16), (15, 16), False),
        ((0, 1), (1, 1), True),
        ((0, 1), (2, 1), True),
        ((0, 1), (0, 0), False),
        ((0, 0), (1, 1), False),
        (None, (16, 16), False),
        ((15, 16), None, False),
    ],
)
def test_a_head_waits_for_each_mma_if_it_has_as_many_waits_as_mmas_and_the_base_has_fewer(
    base: tuple[int, int] | None, head: tuple[int, int] | None, for_each: bool
) -> None:
    sides = [replace(OK, waits=None if each is None else MmaWaits(*each)) for each in (base, head)]
    assert pair(sides[0], sides[1]).waits_for_each_mma is for_each


@pytest.mark.parametrize(
    ("base", "head", "moved"),
    [
        ((4, 16), (16, 16), ("waits for MMAs 4 of 16 -> 16 of 16",)),
        ((4, 16), (8, 32), ()),
        ((4, 16), (4, 32), ("waits for MMAs 4 of 16 -> 4 of 32",)),
        ((4, 16), (8, 16), ("waits for MMAs 4 of 16 -> 8 of 16",)),
        ((4, 16), None, ()),
        (None, (4, 16), ()),
    ],
)
def test_waits_moved_if_another_share_of_the_mmas_has_one(
    base: tuple[int, int] | None, head: tuple[int, int] | None, moved: tuple[str, ...]
) -> None:
    sides = [replace(OTHER, waits=None if each is None else MmaWaits(*each)) for each in (base, head)]
    assert pair(sides[0], sides[1]).moved == moved


def test_compile_times_are_summed_over_the_configs_that_both_toolchains_compile() -> None:
    base = (replace(OK, cpu_s=1.0, compile_s=2.0), replace(OK, cpu_s=10.0, compile_s=20.0), ERROR)
    head = (replace(OK, cpu_s=3.0, compile_s=4.0), replace(ERROR, cpu_s=70.0), replace(OK, cpu_s=700.0))
    of_three = replace(pair(OK, OK), base=base, head=head)
    assert add_compile_times([of_three]) == CompileTimes(1, 1.0, 3.0, 2.0, 4.0)
    assert add_compile_times([of_three] * 2) == CompileTimes(2, 2.0, 6.0, 4.0, 8.0)
    assert add_compile_times([]) == CompileTimes(0, 0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("status", "cpu_s", "failure", "is_final"),
    [
        ("ok", 1.0, None, True),
        ("timeout", 15.0, "over 15 s", True),
        ("timeout", 14.9, "over 15 s", False),
        ("error", 1.0, "no such instruction", True),
        ("error", 1.0, f"{PROCESS_DIED}signal 9", False),
    ],
)
def test_a_compilation_is_kept_without_its_remarks_and_is_final_unless_the_machine_was_busy(
    status: str, cpu_s: float, failure: str | None, is_final: bool
) -> None:
    facts = StaticFacts(128, 0, 1024, 4096, 9000, 2, 2, 1, 1, ({"pass": "tma"},))
    compiled = Compiled(status, "tile 1", "sm_90", 2.0, cpu_s, False, failure, "key", "code", "k", facts)  # type: ignore[arg-type]
    made = make_compiled_side({"tile_m": 64}, compiled, 15.0, "kept")
    assert made.facts == replace(facts, remarks=())
    assert (made.config, made.status, made.failure, made.is_final) == ({"tile_m": 64}, status, failure, is_final)
    assert (made.compile_s, made.cpu_s, made.code_sha256, made.symbol, made.cubin) == (2.0, cpu_s, "code", "k", "kept")
    assert make_compiled_side({}, replace(compiled, facts=None), 15.0).facts is None


def test_a_side_that_was_kept_gives_its_cubin() -> None:
    kept = replace(OK, config={"tile_m": 64}, cubin="key", symbol="run")
    assert kept.stored_cubin == Cubin({"tile_m": 64}, "key", "run")


@pytest.mark.parametrize(("cpu_s", "wall_s", "ratio"), [(30.0, 10.0, 3.0), (10.0, 20.0, 2.0), (5.0, 8.0, 0.8)])
def test_the_larger_ratio_counts(cpu_s: float, wall_s: float, ratio: float) -> None:
    assert CompileTimes(100, 10.0, cpu_s, 10.0, wall_s).ratio == pytest.approx(ratio)


@pytest.mark.parametrize(
    ("configs", "head_cpu_s", "is_slower"),
    [
        (6, 1.25, True),
        (5, 1.25, False),
        (6, 1.24, False),
    ],
)
def test_a_compiler_is_slower_from_a_ratio_on_over_enough_configs(
    configs: int, head_cpu_s: float, is_slower: bool
) -> None:
    assert CompileTimes(configs, 1.0, head_cpu_s, 1.0, 1.0).is_slower is is_slower


def test_no_compiled_config_is_no_ratio_of_zero_seconds() -> None:
    assert CompileTimes(0, 0.0, 0.0, 0.0, 0.0).ratio == 0.0
