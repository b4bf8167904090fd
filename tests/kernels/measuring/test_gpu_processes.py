"""The measuring path in real GPU child processes on a fake GPU: a crash or a hang costs one trial."""

import os
from pathlib import Path

import pytest

from tests.kernels.fixtures.fake_gpu import LIBRARY, MODULES, NAME, PROBLEM, ROOT, UUID, Rig, install_for_children
from tests.kernels.fixtures.s3_server import s3_server
from tilewatch.kernels.compiling.store import CubinStore, StoreError
from tilewatch.kernels.gpu import health
from tilewatch.kernels.measuring import sweep as module
from tilewatch.kernels.measuring.measure import GpuBusy, MeasureRequest, measure
from tilewatch.kernels.measuring.replay import ReplayRequest, ReplaySide, replay
from tilewatch.kernels.measuring.sweep import GpuChild, GpuSetup, SweepFailed, sweep
from tilewatch.kernels.results import Cubin, TrialResult


@pytest.fixture(autouse=True)
def fake_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(MODULES), str(ROOT))))
    monkeypatch.setattr(module, "TRIAL_DEADLINE_S", 5.0)  # for a hang; a trial here takes milliseconds


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of this name that answers for one H200; writing to the file next to it puts processes on it."""
    return install_for_children(tmp_path / "bin", monkeypatch)


def run_sweep(rig: Rig, cubins: list[Cubin]) -> tuple[module.SweepResult, list[TrialResult], GpuChild]:
    trials: list[TrialResult] = []
    child = GpuChild(GpuSetup(LIBRARY, rig.kernel, PROBLEM, rig.store_url, {"CUDA_VISIBLE_DEVICES": UUID}))
    try:
        return sweep(child, cubins, on_trial=trials.append), trials, child
    finally:
        child.close()


def test_a_crash_a_hang_and_a_fault_cost_one_trial_each(rig: Rig) -> None:
    result, trials, _ = run_sweep(
        rig,
        [
            rig.cubin(1),
            rig.cubin(2, fault="abort"),
            rig.cubin(4, fault="hang"),
            rig.cubin(8, fault="fault"),
            rig.cubin(16, 90.0),
        ],
    )
    assert [trial.status for trial in result.trials] == ["timed", "crashed", "hung", "crashed", "timed"]
    assert [trial.failure for trial in result.trials[1:4]] == [
        "the GPU process died: SIGABRT",
        "no answer within 5 s",
        "CUDARuntimeError: cudaErrorIllegalAddress: an illegal memory access was encountered",
    ]
    assert result.winner == {"tile_rows": 16}
    assert len(trials) >= 5


def test_children_measure_the_cubins_of_an_object_store(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the child that comes after one that died. What is not in the store is no trial's fault."""
    url = "s3://cubins/fleet"
    cubins = [rig.cubin(1), rig.cubin(2, fault="abort"), rig.cubin(4, 90.0)]
    with s3_server(monkeypatch):
        for each in cubins:
            CubinStore(url).put(each.content_key, {}, CubinStore(rig.store_url).cubin(each.content_key))
        child = GpuChild(GpuSetup(LIBRARY, rig.kernel, PROBLEM, url, {"CUDA_VISIBLE_DEVICES": UUID}))
        try:
            result = sweep(child, cubins, on_trial=lambda _: None)
            with pytest.raises(StoreError, match="cannot be read"):
                child.trial(3, rig.cubin(8), 1)
        finally:
            child.close()
    assert [trial.status for trial in result.trials] == ["timed", "crashed", "timed"]
    assert result.winner == {"tile_rows": 4}


def test_a_config_that_aborts_only_later_is_a_late_crash(rig: Rig) -> None:
    result, _, _ = run_sweep(rig, [rig.cubin(1), rig.cubin(2, 99.0, fault="abort", fault_after=6)])
    assert [trial.status for trial in result.trials] == ["timed", "crashed"]
    assert (result.trials[1].failure or "").startswith("after its first samples: SIGABRT")
    assert result.winner == {"tile_rows": 1}


def test_a_whole_measurement_through_nvidia_smi_and_a_child_process(rig: Rig, nvidia_smi: Path) -> None:
    request = MeasureRequest(
        LIBRARY, rig.kernel, PROBLEM, "sm_90", rig.store_url, [rig.cubin(1), rig.cubin(2, 80.0)], 0,
        ("torch_residual_add", "copy"),
    )  # fmt: skip
    result = measure(request, on_trial=lambda _: None, on_step=lambda *_: None)
    assert (result.gpu_uuid, result.gpu_name, result.gpu_model, result.timer) == (UUID, NAME, "h200", "cupti")
    assert result.toolchain["driver"] == "580.159.04"
    assert result.winner == {"tile_rows": 2}
    assert [set(each.samples_us) for each in result.measurements] == [{80.0}, {120.0}, {49.152}]
    nvidia_smi.write_text(f"GPU-other, 1, python\n{UUID}, 4711, train.py\n")
    with pytest.raises(GpuBusy, match=r"in use by 4711 train\.py:"):
        measure(request, on_trial=lambda _: None, on_step=lambda *_: None)


def test_a_replay_compares_two_cubins_in_fresh_processes(rig: Rig, nvidia_smi: Path) -> None:
    assert nvidia_smi.exists()
    good, bad = ReplaySide(LIBRARY, rig.cubin(1, 100.0)), ReplaySide(LIBRARY, rig.cubin(1, 103.0))
    request = ReplayRequest(rig.kernel, PROBLEM, "sm_90", rig.store_url, good, bad, 2, 0)
    launches: list[int] = []
    result = replay(request, on_launch=launches.append)
    assert (result.good_us, result.bad_us, launches) == ((100.0, 100.0), (103.0, 103.0), [1, 2])


def test_a_gpu_that_cannot_be_prepared_says_why(rig: Rig) -> None:
    with pytest.raises(SweepFailed, match=r"could not prepare 64x64: exit code 1: .*no CUDA-capable device"):
        GpuChild(GpuSetup(LIBRARY, rig.kernel, PROBLEM, rig.store_url, {"FAKE_GPU_MISSING": "1"}))


def test_a_canary_of_an_idle_gpu_comes_from_a_child_of_its_own() -> None:
    readings = health.canary(UUID)
    assert [each["when"] for each in readings] == ["before the canary", "canary", "after the canary"]
    assert readings[1]["canary_compute_us"] == 222.0


def test_a_watcher_reads_the_gpu_in_a_child_of_its_own() -> None:
    watcher = health.Watcher(UUID)
    try:
        assert watcher.look()["xids"] == []
        assert watcher.look()["sm_clock_mhz"] == 1980
    finally:
        watcher.close()
