"""Two versions of a baseline in real child processes on a fake GPU: their times, and what does not run."""

from pathlib import Path

import pytest

from tests.kernels.fixtures.fake_gpu import LIBRARY, PROBLEM, THIS_GPU, Rig, install_for_children
from tilewatch.kernels.comparing.baseline_bench import BaselineBench, BaselineWork
from tilewatch.kernels.measuring.pair_bench import Launched, LaunchFailed, LaunchResult


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
