"""A run becomes the rows of a recording that can be read again."""

import datetime as dt
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.worker.fixtures import tiny_repository
from tilewatch.kernels.device import gpu_model
from tilewatch.kernels.recording import recording_file
from tilewatch.kernels.recording.git_commit import GitCommit, repository_name
from tilewatch.kernels.recording.recorded_run import list_rows
from tilewatch.kernels.results import Compiled, Measured, Plan, PlannedTrial, RunResult, TrialResult

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
    assert rows[1]["detail"] == {}


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


def test_a_sweep_has_its_commit_and_its_space_and_each_time_has_three_decimals() -> None:
    """Digits of a tenth of a nanosecond are noise, and would double the size of the file."""
    configs = [{"tile_m": each} for each in (64, 32, 16)]
    compiled = Compiled("ok", "cuda-tile 1.7.0", "sm_90", 0.12345, 0.98765, reused=False, content_key="c0de")
    trials = (
        TrialResult(configs[0], "timed", (100.12345, 100.98765), 100.5, 0.25),
        TrialResult(configs[1], "wrong", error=7.0, failure="it is off"),
    )
    measured = (
        Measured("gemm", "kernel", (100.12345, 101.98765), configs[0], {"rounds": 2}),
        Measured("deepgemm", "baseline", (110.55555,)),
    )
    later = NOW + dt.timedelta(seconds=9)
    run = RunResult(
        "node", "h200", "GPU-1", "NVIDIA H200", "cupti", {"cuda-tile": "1.7.0"}, ({"when": "before"},), 1.23456,
        configs[0], (configs[0],), trials, measured, NOW, later,
    )  # fmt: skip
    plan = replace(PLAN, trials=tuple(PlannedTrial(config, "abc"[number]) for number, config in enumerate(configs)))
    model = gpu_model("h200")
    sweep, *rows = list_rows(plan, COMMIT, model, [(each, compiled) for each in plan.trials], run)
    of = {kind: [row for row in rows if row["row"] == kind] for kind in ("compilation", "trial", "run", "measurement")}
    assert sum(map(len, of.values())) == len(rows)
    assert (sweep["commit"], sweep["gpu_model"], sweep["space_size"]) == (asdict(COMMIT), model.stored, 3)
    assert (sweep["kernel"], sweep["problem"], sweep["arch"], sweep["flops"]) == ("gemm", "64x64", "sm_90", 1)
    assert (sweep["reason"], sweep["night"], sweep["space"]["axes"]) == ("manual", None, [["tile_m", [64]]])
    assert [(row["code_key"], row["compile_s"], row["cpu_s"]) for row in of["compilation"]] == [
        (key, 0.123, 0.988) for key in "abc"
    ]
    fields = ("status", "samples_us", "error", "failure", "config", "code_key", "compiler", "sweep")
    compiler = ("cuda-tile 1.7.0", 1)
    assert [tuple(row[field] for field in fields) for row in of["trial"]] == [
        ("timed", [100.123, 100.988], 0.25, None, configs[0], "a", *compiler),
        ("wrong", None, 7.0, "it is off", configs[1], "b", *compiler),
        ("compiled", None, None, None, configs[2], "c", *compiler),
    ]
    assert [(row["samples_us"], row["config"], row["role"], row["run"]) for row in of["measurement"]] == [
        ([100.123, 101.988], configs[0], "kernel", run.key),
        ([110.556], None, "baseline", run.key),
    ]
    assert [row["detail"] for row in of["measurement"]] == [{"rounds": 2}, {}]
    assert of["run"] == [
        {
            **{"row": "run", "sweep": 1, "key": run.key, "host": "node", "gpu_uuid": "GPU-1"},
            **{"gpu_name": "NVIDIA H200", "timer": "cupti", "toolchain": {"cuda-tile": "1.7.0"}},
            **{"telemetry": [{"when": "before"}], "sweep_gpu_s": 1.235, "tie": [configs[0]]},
            **{"started_at": NOW.isoformat(), "finished_at": later.isoformat()},
        }
    ]


@pytest.mark.parametrize(
    ("remote", "name"),
    [
        ("https://ada:secret@git.example.org/kernels.git", "https://git.example.org/kernels.git"),
        ("https://git.example.org:8443/kernels.git", "https://git.example.org:8443/kernels.git"),
        ("ssh://git@git.example.org/kernels", "ssh://git.example.org/kernels"),
        ("git@git.example.org:kernels.git", "git@git.example.org:kernels.git"),
        ("/srv/git/kernels.git", "kernels"),
        ("file:///srv/git/kernels.git", "file:///srv/git/kernels.git"),
        (None, "watched"),
    ],
)
def test_a_repository_is_named_by_its_remote_without_credentials(remote: str | None, name: str, tmp_path: Path) -> None:
    folder = tiny_repository.make(tmp_path / "watched")
    if remote is not None:
        tiny_repository.git(folder, "remote", "add", "origin", remote)
    assert repository_name(folder) == name
