"""A history of two commits is recorded on a fake GPU, and is judged by what was replayed there."""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.fixtures.fake_gpu import LIBRARY, PROBLEM, UUID, Rig, install_for_children
from tests.kernels.fixtures.ncu import CUT_OUTPUT, FORBIDDEN, NCU_OUTPUT, make_ncu
from tilewatch.kernels.measuring.replay import ReplayFailed
from tilewatch.kernels.recording import recording_file
from tilewatch.kernels.results import Compiled
from tools import history_recorder, record_history
from tools.recorded_replay import NOT_HELD

FASTER = 80.0


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def shas(tmp_path: Path) -> list[str]:
    """The second commit makes residual_add faster, the third changes nothing, and neither does the last."""
    clone = tmp_path / "clone"
    shutil.copytree(LIBRARY, clone / "kernels")
    git(clone, "init", "--quiet", "--initial-branch", "main")
    made = []
    for number in range(4):
        (clone / "kernels" / "rows.py").write_text((LIBRARY / "rows.py").read_text() + f"\n# {number}\n")
        git(clone, "add", "--all")
        git(clone, "commit", "--quiet", "--message", f"Change {number}")
        made.append(git(clone, "rev-parse", "HEAD").strip())
    return made


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = make_ncu(tmp_path / "ncu", NCU_OUTPUT)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


@pytest.fixture
def rows(tmp_path: Path, shas: list[str], monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    return record(tmp_path, shas, monkeypatch)


def record(tmp_path: Path, shas: list[str], monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    install_for_children(monkeypatch)
    (tmp_path / "work" / "cubins").mkdir(parents=True)
    rig = Rig(tmp_path / "work" / "cubins")

    def compile_all(versions: list[record_history.Version], *_: object) -> None:
        for version in versions:
            time_us = 100.0 if version.commit.sha == shas[0] else FASTER
            key = f"{time_us:.0f}"
            cubin = rig.cubin(1, time_us, key=key)
            version.outcomes = [Compiled("ok", "compiler", "sm_90", 1.0, 1.0, False, None, key, key, cubin.symbol)]

    monkeypatch.setattr(record_history, "compile_all", compile_all)
    (tmp_path / "commits").write_text("\n".join(shas))
    wanted = {"kernel": rig.kernel, "problem": PROBLEM, "configs": [{"tile_rows": 1}]}
    (tmp_path / "only.json").write_text(json.dumps([wanted]))
    arguments = ["--library", "kernels", "--only", tmp_path / "only.json", "--out", tmp_path / "out.jsonl.gz"]
    more = ["--work", tmp_path / "work", "--jobs", "2", "--launches", "2"]
    monkeypatch.setattr(
        sys, "argv", ["record_history", *map(str, (tmp_path / "clone", f"@{tmp_path / 'commits'}", *arguments, *more))]
    )
    record_history.main()
    return list(recording_file.read(tmp_path / "out.jsonl.gz").rows)


def test_a_series_is_measured_where_its_code_changes_and_at_the_last_commit(
    rows: list[dict[str, Any]], shas: list[str]
) -> None:
    sweeps = [row for row in rows if row["row"] == "sweep"]
    assert [row["commit"]["sha"] for row in sweeps] == [shas[0], shas[1], shas[3]]
    assert {row["space_size"] for row in sweeps} == {1}
    assert {row["host"] for row in rows if row["row"] == "run"} == {f"h200-{UUID.removeprefix('GPU-')[:8]}"}
    replays = [row for row in rows if row["row"] == "replay"]
    held, *same = replays
    assert (held["good_us"], held["bad_us"]) == ([100.0] * 2, [FASTER] * 2)
    assert [held[side]["commit"]["sha"] for side in ("good", "bad")] == shas[:2]
    assert [(row["good_us"], row["good"]["commit"]["sha"], row["bad"]["commit"]["sha"]) for row in same] == [
        ([], shas[1], shas[2]),
        ([], shas[2], shas[3]),
    ]


def test_a_replay_that_is_impossible_is_recorded_with_its_reason_and_the_series_goes_on(
    tmp_path: Path, shas: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ReplayFailed("the sides cannot be replayed: it is not the same work")

    monkeypatch.setattr(history_recorder, "replay", fail)
    rows = record(tmp_path, shas, monkeypatch)
    assert [row["commit"]["sha"] for row in rows if row["row"] == "sweep"] == [shas[0], shas[1], shas[3]]
    failed, *same = [row for row in rows if row["row"] == "replay"]
    assert (failed["failure"], failed["good_us"]) == ("the sides cannot be replayed: it is not the same work", [])
    assert [row["failure"] for row in same] == [NOT_HELD] * 2


@pytest.mark.usefixtures("ncu")
def test_counters_of_several_series_are_read_with_one_start(rows: list[dict[str, Any]]) -> None:
    """The second number is that of the second launch of one start; the third run's launch is the second's again."""
    assert [detail["counters"]["instructions"] for detail in list_details(rows)] == [1_234_567, 2_000_000, 2_000_000]


@pytest.mark.parametrize(("output", "expected"), [(FORBIDDEN, "no_counters"), (CUT_OUTPUT, "counters")])
def test_what_is_not_counted_together_is_counted_alone(
    tmp_path: Path, shas: list[str], ncu: Path, monkeypatch: pytest.MonkeyPatch, output: str, expected: str
) -> None:
    (ncu / "output").write_text(output)
    details = list_details(record(tmp_path, shas, monkeypatch))
    assert [expected in detail for detail in details] == [True, True, True]


def list_details(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of the kernel's measurement in each run."""
    return [row["detail"] for row in rows if row["row"] == "measurement" and row["role"] == "kernel"]


def test_a_clone_without_its_history_is_refused(tmp_path: Path, shas: list[str]) -> None:
    """Its newest commit would have the first place among all commits, and change the trend of each series."""
    assert shas
    git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{tmp_path}/clone", "shallow")
    asked = argparse.Namespace(repository=tmp_path / "shallow", commits="HEAD")
    with pytest.raises(SystemExit, match=r"is a shallow clone: .* `git fetch --unshallow` gets the rest"):
        record_history.read_history(asked, "sm_90", None)


def test_a_machine_without_that_gpu_is_told_in_a_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tools.record_history", str(tmp_path), "HEAD", "--gpu", "99", "--watch", "w"]
    done = subprocess.run([*command, "--out", str(tmp_path / "out")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.partition(":")[0]) == (1, "there is no GPU 99 on this machine")
