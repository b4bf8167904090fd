"""A run becomes the rows of a recording that can be read again."""

import datetime as dt
from dataclasses import replace
from pathlib import Path

import pytest

from tests.worker.fixtures import tiny_repository
from tilewatch.kernels.device import gpu_model
from tilewatch.kernels.recording import recording_file
from tilewatch.kernels.recording.git_commit import GitCommit, repository_name
from tilewatch.kernels.recording.recorded_run import list_rows
from tilewatch.kernels.results import Compiled, Measured, Plan, PlannedTrial, RunResult

NOW = dt.datetime(2026, 11, 22, tzinfo=dt.UTC)
COMMIT = GitCommit("library", "ab12", 1, NOW.isoformat(), "subject", "author")
PLAN = Plan("gemm", "64x64", "sm_90", "ab12", 1, (("tile_m", (64,)),), 1, 1, ("deepgemm",), ())


def test_a_baseline_that_could_not_run_has_no_row_and_the_kernel_s_says_why(tmp_path: Path) -> None:
    config = {"tile_m": 64}
    measured = (
        Measured("gemm", "kernel", (100.0, 101.0), config, {"rounds": 2}),
        Measured("deepgemm", "baseline", (110.0, 111.0)),
        Measured("deepgemm 0.2.5", "baseline", (), None, {"missing": "OSError: undefined symbol"}),
    )
    run = RunResult(
        "node", "h200", "GPU-1", "NVIDIA H200", "cupti", {}, (), 1.0, config, (config,), (), measured, NOW, NOW
    )
    model = gpu_model("h200")
    assert model is not None
    file = tmp_path / "run.jsonl.gz"
    header = recording_file.Header("a node", NOW.isoformat(), "library", "tilewatch")
    recording_file.write(file, header, list_rows(PLAN, COMMIT, model, [], run))
    rows = [row for row in recording_file.read(file).rows if row["row"] == "measurement"]
    assert [row["implementation"] for row in rows] == ["gemm", "deepgemm"]
    assert rows[0]["detail"] == {"rounds": 2, "missing": {"deepgemm 0.2.5": "OSError: undefined symbol"}}


def test_configs_that_differ_in_their_launch_alone_share_a_compilation(tmp_path: Path) -> None:
    configs = ({"tile_m": 64, "blocks": 1}, {"tile_m": 64, "blocks": 2})
    compiled = Compiled("ok", "cuda-tile 1.7.0", "sm_90", 0.2, 0.2, reused=False, content_key="c0de")
    run = RunResult("node", "h200", "GPU-1", "NVIDIA H200", "cupti", {}, (), 1.0, None, (), (), (), NOW, NOW)
    model = gpu_model("h200")
    assert model is not None
    file = tmp_path / "run.jsonl.gz"
    header = recording_file.Header("a node", NOW.isoformat(), "library", "tilewatch")
    outcomes = [(PlannedTrial(config, "c0de"), compiled) for config in configs]
    recording_file.write(file, header, list_rows(PLAN, COMMIT, model, outcomes, run))
    rows = recording_file.read(file).rows
    assert [row["code_key"] for row in rows if row["row"] == "compilation"] == ["c0de"]
    assert [row["config"] for row in rows if row["row"] == "trial"] == list(configs)


def test_a_config_that_was_compiled_and_not_tried_is_recorded_as_such() -> None:
    """After a drawn config that hangs, the others are left out."""
    compiled = Compiled("ok", "cuda-tile 1.7.0", "sm_90", 0.2, 0.2, reused=False, content_key="c0de")
    failed = replace(compiled, status="failed", content_key=None, failure="it does not fit")
    run = RunResult("node", "h200", "GPU-1", "NVIDIA H200", "cupti", {}, (), 1.0, None, (), (), (), NOW, NOW)
    outcomes = [(PlannedTrial({"tile_m": 64}, "a"), compiled), (PlannedTrial({"tile_m": 32}, "b"), failed)]
    rows = list_rows(PLAN, COMMIT, gpu_model("h200"), outcomes, run)
    assert [row["status"] for row in rows if row["row"] == "trial"] == ["compiled", "not_compiled"]


@pytest.mark.parametrize(
    ("remote", "name"),
    [
        ("https://ada:secret@git.example.org/kernels.git", "https://git.example.org/kernels.git"),
        ("https://git.example.org:8443/kernels.git", "https://git.example.org:8443/kernels.git"),
        ("ssh://git@git.example.org/kernels", "ssh://git.example.org/kernels"),
        ("git@git.example.org:kernels.git", "git@git.example.org:kernels.git"),
        ("/srv/git/kernels.git", "kernels"),
        (None, "watched"),
    ],
)
def test_a_repository_is_named_by_its_remote_without_credentials(remote: str | None, name: str, tmp_path: Path) -> None:
    folder = tiny_repository.make(tmp_path / "watched")
    if remote is not None:
        tiny_repository.git(folder, "remote", "add", "origin", remote)
    assert repository_name(folder) == name
