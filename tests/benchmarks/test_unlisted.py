"""The sweeps of shapes that no nightly watches: the kernels know every shape, and a sweep's line says what it says."""

import math
from pathlib import Path

import pytest

from benchmarks import recorded
from benchmarks.gpu import unlisted
from tests.kernels.fixtures import fake_gpu
from tilewatch.kernels import device
from tilewatch.kernels.catalog.loading import load
from tilewatch.kernels.library import FOLDER
from tilewatch.kernels.results import Cubin, Plan


def test_the_kernels_know_every_problem() -> None:
    kernels = {name: loaded.kernel for name, loaded in load(FOLDER).items()}
    for part in unlisted.PARTS.values():
        assert [kernels[part.kernel].parse(problem).name for problem in part.problems] == list(part.problems)
        assert set(part.rivals) <= set(kernels[part.kernel].baselines)


def test_it_sweeps_on_a_gpu_and_names_a_rival_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fake_gpu.install(monkeypatch)
    rig = fake_gpu.Rig(tmp_path)
    fake_gpu.measure_in_this_process(monkeypatch)
    monkeypatch.setattr(unlisted, "FOLDER", fake_gpu.LIBRARY)
    monkeypatch.setattr(
        unlisted, "PARTS", dict.fromkeys(("rows", "others"), unlisted.Part(rig.kernel, (fake_gpu.PROBLEM,), 1.0))
    )
    monkeypatch.setattr(unlisted.store, "folder", lambda _: rig.store_url)
    wanted = []

    def compile_both(plan: Plan, _: str) -> list[Cubin]:
        wanted.extend(trial.config["tile_rows"] for trial in plan.trials)
        return [rig.cubin(1), rig.cubin(2, 80.0)]

    monkeypatch.setattr(unlisted, "_compile", compile_both)
    monkeypatch.setattr("sys.argv", ["unlisted", "--part", "rows", "--only", "tile_rows=2,3", "--report-only"])
    with pytest.raises(SystemExit) as ended:
        unlisted.main()
    fake_gpu.end_process()
    printed = capsys.readouterr().out
    assert ended.value.code == 0
    assert wanted == [2]
    assert f"{fake_gpu.PROBLEM}: 80.0 us, deepgemm missing, {{'tile_rows': 2}}" in printed
    assert "a rival is missing, or no config ran" in printed
    assert "rows: the time of deepgemm over ours" in printed
    assert "others" not in printed


def test_shapes_drawn_at_random_count_with_those_recorded_on_the_gpu_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unlisted, "_measure", lambda *_: 0.5)
    part = "drawn at random"
    alone, together = unlisted._list_figures(device.gpu_model("h100"), [part], {}, math.inf)
    assert (alone.value, alone.is_met) == ("0.50", None)
    assert "geometric mean of 6 and the 10 recorded of gemm_nt bfloat16" in together.what
    assert 0.5 < float(together.value) < 1
    runs = {run.problem: run.ratios for run in recorded.read_suite(recorded.H100) if run.group == "gemm_nt bfloat16"}
    watched = unlisted._read_watched(device.gpu_model("h100"), unlisted.PARTS[part])
    assert watched == [min(ratios["cublas"], ratios["deepgemm"]) for ratios in runs.values()]
    (on_another,) = unlisted._list_figures(device.gpu_model("b200"), [part], {}, math.inf)
    assert (on_another.value, on_another.is_met) == ("0.50", False)
