"""Two versions of a baseline in real child processes on a fake GPU: their times, and what does not run."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.kernels.fixtures.fake_gpu import LIBRARY, PROBLEM, THIS_GPU, Rig, install_for_children
from tilewatch.kernels.comparing import baseline_bench
from tilewatch.kernels.comparing.baseline_bench import BLOCKS, BaselineBench, BaselineWork
from tilewatch.kernels.measuring.pair_bench import COMPARED, Launched, LaunchFailed, LaunchResult
from tilewatch.kernels.measuring.sweep import GpuSetup


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BaselineBench:
    install_for_children(monkeypatch)
    return BaselineBench(LIBRARY, THIS_GPU, Rig(tmp_path, "residual_add").store_url)


def launch(bench: BaselineBench, base: Path | None = None, head: Path | None = None) -> LaunchResult:
    work = BaselineWork("residual_add", PROBLEM, "torch_residual_add", base, head, label="next")
    ((timed, result),) = bench.launch_each([work])
    assert timed.key == ("residual_add", PROBLEM, "next")
    return result


def test_one_version_beside_itself_takes_as_long(bench: BaselineBench) -> None:
    result = launch(bench)
    assert isinstance(result, Launched)
    assert result.base_us == pytest.approx(result.head_us, rel=0.05)


def test_a_version_that_cannot_run_is_named_with_its_side(bench: BaselineBench, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "torch.py").write_text("raise ImportError('its library is missing')\n")
    for side, result in (("base", launch(bench, base=broken)), ("head", launch(bench, head=broken))):
        assert isinstance(result, LaunchFailed)
        assert result.failure.startswith(f"torch_residual_add of the {side} does not run: ")
        assert (result.is_of_head, result.is_final) == (side == "head", True)


def test_a_full_memory_is_not_a_final_failure(bench: BaselineBench, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "torch.py").write_text("raise RuntimeError('CUDA error: Out of memory')\n")
    result = launch(bench, head=tmp_path / "full")
    assert isinstance(result, LaunchFailed)
    assert not result.is_final


FACTORS = (3.0, 0.9, 0.9, 1.1, 1.1)
"""How long each block takes: the first one has low clocks. The median of the others is 1, that of all 1.1."""


class MadeProcess:
    """Times a block of rounds by the folder of packages."""

    times_us: Mapping[str, float]
    blocks: list[tuple[str, int, int]]
    closed: list[str]

    def __init__(self, setup: GpuSetup, stored: Mapping[str, str], about: Mapping[str, str]) -> None:
        assert (dict(stored), about) == ({"copy": "copy"}, {})
        assert setup.environment == {"CUDA_VISIBLE_DEVICES": THIS_GPU.uuid}
        assert setup.packages is not None
        self._name = setup.packages.name
        self.details = {"copy": {} if self._name in self.times_us else {"missing": "no such library"}}

    def time_block(self, rounds: int, seed: int) -> tuple[dict[str, list[float]], list[object]]:
        self.blocks.append((self._name, rounds, seed))
        factor = FACTORS[[name for name, _, _ in self.blocks].count(self._name) - 1]
        time_us = self.times_us.get(self._name)
        return {} if time_us is None else {"copy": [factor * time_us] * rounds}, []

    def close(self) -> None:
        self.closed.append(self._name)


@pytest.mark.parametrize(
    ("times_us", "failure"),
    [
        ({"old": 100.0, "new": 110.0}, ""),
        ({"old": 100.0}, "copy of the head does not run: no such library"),
        ({}, "copy of the base does not run: no such library"),
    ],
)
def test_blocks_of_both_versions_alternate_and_the_first_one_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times_us: Mapping[str, float], failure: str
) -> None:
    for name, value in (("times_us", times_us), ("blocks", []), ("closed", [])):
        monkeypatch.setattr(MadeProcess, name, value, raising=False)
    monkeypatch.setattr(baseline_bench, "BaselineProcess", MadeProcess)
    work = BaselineWork("rows", PROBLEM, "copy", tmp_path / "old", tmp_path / "new", launches=7)
    ((_, result),) = BaselineBench(LIBRARY, THIS_GPU, "file:///store").launch_each([work])
    if failure:
        assert isinstance(result, LaunchFailed)
        assert (result.failure, result.is_of_head) == (failure, "head" in failure)
    else:
        assert isinstance(result, Launched)
        assert (result.base_us, result.head_us) == (pytest.approx(100), pytest.approx(110))
    order = [name for name, _, _ in MadeProcess.blocks]
    assert order == [*["new", "old", "old", "new"] * (BLOCKS // 2), "new", "old"]
    assert {(rounds, seed) for _, rounds, seed in MadeProcess.blocks} == {(COMPARED.least, 7)}
    assert sorted(MadeProcess.closed) == ["new", "old"]
