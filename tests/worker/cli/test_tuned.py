"""`tilewatch tuned` with a real database: the file as host code reads it, and what a pull request would change."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from tests.db.fixtures import one_commit
from tests.worker.cli.conftest import Tilewatch
from tests.worker.fixtures.tiny_repository import git
from tests.worker.fixtures.tuned_nights import watch_tuned_repository
from tilewatch import tuned
from tilewatch.db import fact_writes
from tilewatch.db.models import Measurement, PullRequest, Run, Sweep, Trial
from tilewatch.db.repository_names import name_of_branch
from tilewatch.db.session import session
from tilewatch.metrics import SPAN_METRICS, name_series
from tilewatch.worker.settings import Settings

WIDE, NARROW = "320x32576x7168", "320x16384x7168"


@pytest.fixture
def url(settings: Settings) -> str:
    return settings.connection().database_url


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tuned.json"


def measure(
    url: str,
    problem: str,
    *,
    key: str,
    winner: int = 0,
    repository: str = "tilewatch",
    source_sha256: str = "cd" * 32,
    sha: str | None = None,
    origin: str = "measured",
) -> int:
    """A run of this problem, won by the config of that number; config N takes 10 + N us, and only the winner is tied
    with itself."""
    with session(url) as opened:
        planned = one_commit.submit(opened, key, repository)
        opened.execute(
            update(Sweep).where(Sweep.id == planned.sweep_id).values(problem=problem, source_sha256=source_sha256)
        )
        if sha is not None:
            older = fact_writes.add_commit(
                opened, repository=repository, sha=sha, position=6, committed_at=one_commit.NOON, subject="Older"
            )
            opened.execute(update(Sweep).where(Sweep.id == planned.sweep_id).values(commit_id=older))
        run_id = one_commit.measure(opened, planned, f"run {key}")
        timer = "simulated" if origin == "simulated" else "cupti"
        tie = [planned.config_ids[winner], planned.config_ids[2]]
        opened.execute(update(Run).where(Run.id == run_id).values(tie=tie, origin=origin, timer=timer))
        of_kernel = (Measurement.run_id == run_id) & (Measurement.role == "kernel")
        opened.execute(update(Measurement).where(of_kernel).values(config_id=planned.config_ids[winner]))
        for number, config_id in enumerate(planned.config_ids[:3]):
            one = (Trial.sweep_id == planned.sweep_id) & (Trial.config_id == config_id)
            opened.execute(update(Trial).where(one).values(median_us=10.0 + abs(number - winner)))
    return run_id


def read_rows(file: Path) -> dict[str, Any]:
    (table,) = json.loads(file.read_text())["tables"]
    return {row["problem"]: row for row in table["rows"]}


def test_each_name_of_a_gpu_model_finds_its_table(url: str, file: Path, tilewatch: Tilewatch) -> None:
    """The table had the name on one of the nodes; host code on the other was refused."""
    for number, (name, problem) in enumerate([("NVIDIA H200", WIDE), ("NVIDIA H200 SXM", NARROW)]):
        run_id = measure(url, problem, key=problem, winner=number)
        with session(url) as opened:
            opened.execute(update(Run).where(Run.id == run_id).values(gpu_name=name))
    tilewatch("tuned", "export", str(file))
    for name in ("NVIDIA H200", "NVIDIA H200 SXM"):
        table = tuned.load(file, kernel="gemm_fp8", gpu=name, fallback={})
        assert table.find(320, 32576, 7168).source == table.find(320, 16384, 7168).source == "exact"


def test_what_won_is_found_by_host_code(url: str, file: Path, tilewatch: Tilewatch) -> None:
    run_id = measure(url, WIDE, key="wide")
    measure(url, NARROW, key="narrow", winner=1)
    printed = tilewatch("tuned", "export", str(file))
    assert printed == f"wrote 2 configs to {file}: one for each problem of 1 kernel and GPU model\n"
    table = tuned.load(file, kernel="gemm_fp8", gpu="NVIDIA B200", fallback={})
    assert table.find(320, 32576, 7168).config == one_commit.CONFIGS[0]
    assert table.find(320, 16384, 7168).config == one_commit.CONFIGS[1]
    row = read_rows(file)[WIDE]
    assert (row["time_us"], row["ties"]) == (9.05, [one_commit.CONFIGS[2]])
    assert row["evidence"] == f"http://localhost:8501/series?run={run_id}&view=This+run"


@pytest.mark.parametrize("kernel", [name_series("gemm_fp8", metric) for metric in SPAN_METRICS])
def test_a_span_is_no_kernel_to_configure(kernel: str, url: str, file: Path, tilewatch: Tilewatch) -> None:
    measure(url, WIDE, key="wide")
    run_id = measure(url, WIDE, key="span")
    with session(url) as opened:
        of_run = select(Run.sweep_id).where(Run.id == run_id).scalar_subquery()
        opened.execute(update(Sweep).where(Sweep.id == of_run).values(kernel=kernel))
    printed = tilewatch("tuned", "export", str(file))
    assert printed == f"wrote 1 config to {file}: one for each problem of 1 kernel and GPU model\n"


def test_a_row_states_what_was_not_tried(url: str, file: Path, tilewatch: Tilewatch) -> None:
    run_id = measure(url, WIDE, key="wide")
    measure(url, NARROW, key="narrow")
    of_kernel = (Measurement.run_id == run_id) & (Measurement.role == "kernel")
    with session(url) as opened:
        opened.execute(
            update(Measurement).where(of_kernel).values(detail={"certificate": {"space": 5760, "tried": 96}})
        )
    tilewatch("tuned", "export", str(file))
    rows = read_rows(file)
    assert rows[WIDE]["certificate"] == {"space": 5760, "tried": 96}
    assert "certificate" not in rows[NARROW]


def test_a_row_says_what_its_neighbour_s_config_would_lose_there(url: str, file: Path, tilewatch: Tilewatch) -> None:
    measure(url, WIDE, key="wide")
    measure(url, NARROW, key="narrow", winner=1)
    measure(url, "64x64", key="alone", winner=1)
    measure(url, "320x20000x7168", key="tied", winner=2)
    tilewatch("tuned", "export", str(file))
    rows = read_rows(file)
    assert rows["64x64"]["carried_regret"] is None, "nothing is near"
    assert rows[WIDE]["carried_regret"] == 0.0, "the third config, of the nearest problem, is tied here"
    assert rows["320x20000x7168"]["carried_regret"] == 0.1, "the second config takes 11 us, the third 10"


def test_the_newest_run_counts_and_only_problems_of_its_source(url: str, file: Path, tilewatch: Tilewatch) -> None:
    measure(url, WIDE, key="old", winner=0)
    measure(url, "64x64", key="gone", source_sha256="ee" * 32, sha="ee" * 20)
    measure(url, "32x32", key="unchanged", sha="ee" * 20)
    measure(url, "16x16", key="imports more", source_sha256="ff" * 32)
    measure(url, WIDE, key="new", winner=1)
    measure(url, WIDE, key="simulated", winner=2, origin="simulated")
    tilewatch("tuned", "export", str(file))
    rows = read_rows(file)
    assert rows.keys() == {WIDE, "32x32", "16x16"}
    assert rows[WIDE]["config"] == one_commit.CONFIGS[1]


def test_one_repository_is_exported_and_no_branch_unless_it_is_named(
    url: str, file: Path, tilewatch: Tilewatch
) -> None:
    assert "no GPU has measured such a sweep" in tilewatch("tuned", "export", str(file), fails=True)
    branch = name_of_branch("tilewatch", "faster")
    measure(url, WIDE, key="main")
    measure(url, WIDE, key="branch", winner=1, repository=branch)
    tilewatch("tuned", "export", str(file))
    assert read_rows(file)[WIDE]["config"] == one_commit.CONFIGS[0]
    tilewatch("tuned", "export", str(file), "--repository", branch)
    assert read_rows(file)[WIDE]["config"] == one_commit.CONFIGS[1]
    measure(url, WIDE, key="other", repository="kernels")
    assert "name one of them: kernels, tilewatch" in tilewatch("tuned", "export", str(file), fails=True)
    for chosen in (("--kernel", "norm"), ("--gpu", "h200")):
        arguments = (str(file), "--repository", "kernels", *chosen)
        assert "no GPU has measured" in tilewatch("tuned", "export", *arguments, fails=True)


def test_winners_are_written_in_the_formats_of_other_projects(url: str, tmp_path: Path, tilewatch: Tilewatch) -> None:
    measure(url, WIDE, key="wide")
    measure(url, NARROW, key="narrow", winner=1)
    measure(url, "alone", key="alone", sha="ee" * 20)
    tables, records = tmp_path / "new" / "tables", tmp_path / "records.json"
    printed = tilewatch("tuned", "export", str(tables), "--format", "sglang", "--names", "m x n x k")
    assert "left out gemm_fp8 alone on b200: " in printed
    assert printed.endswith(f"wrote 2 winners to {tables}: 2 files\n")
    file = tables / "gemm_fp8" / "N=16384,K=7168,device_name=NVIDIA_B200.json"
    assert json.loads(file.read_text()) == {"320": one_commit.CONFIGS[1]}
    assert (
        tilewatch("tuned", "export", str(records), "--format", "pytorch") == f"wrote 3 winners to {records}: 1 file\n"
    )
    assert {each["model"]["name"] for each in json.loads(records.read_text())} == {
        "gemm_fp8 alone",
        f"gemm_fp8 {WIDE}",
        f"gemm_fp8 {NARROW}",
    }


def test_traces_are_written_for_kernels_with_definitions(url: str, tmp_path: Path, tilewatch: Tilewatch) -> None:
    traces = tmp_path / "traces.jsonl"
    arguments = ("tuned", "export", str(traces), "--format", "flashinfer")
    assert "needs --definitions" in tilewatch(*arguments, fails=True)
    definition = {"name": "gemm_fp8", "axes": {"M": {"type": "var"}}, "inputs": {}, "outputs": {}}
    tmp_path.joinpath("gemm.json").write_text(json.dumps({**definition, "reference": "def run():\n    pass\n"}))
    measure(url, "M=64", key="64", winner=1)
    measure(url, WIDE, key="wide")
    printed = tilewatch(*arguments, "--definitions", str(tmp_path))
    assert f"left out gemm_fp8 {WIDE} on b200: " in printed
    assert f"wrote 1 winner to {traces}: 1 file" in printed
    (trace,) = [json.loads(line) for line in traces.read_text().splitlines()]
    assert trace["workload"]["axes"] == {"M": 64}
    assert trace["evaluation"]["correctness"]["max_relative_error"] == 0.01
    assert trace["evaluation"]["performance"] == {"latency_ms": 0.00905}


def test_a_dry_run_shows_title_text_and_diff_and_does_nothing(
    settings: Settings, tmp_path: Path, tilewatch: Tilewatch
) -> None:
    times = {("gemm", "64"): {64: 100.0, 128: 104.0}}
    with watch_tuned_repository(settings, tmp_path / "forge", times) as nights:
        assert "0 pull requests to change" in tilewatch("tuned", "pr", "--dry-run")
        nights.change(("gemm", "64"), 64, 1.10)
        nights.do_night()
        printed = tilewatch("tuned", "pr", "--dry-run")
        assert (nights.forge.receiver.asked, git(nights.forge.origin, "branch").split()) == ([], ["*", "main"])
        with session(nights.url) as opened:
            assert opened.scalars(select(PullRequest)).all() == []
        assert "TILEWATCH_FORGE_TOKEN is not set" in tilewatch("tuned", "pr", fails=True)
    assert "open: Replace 1 slow config of gemm on NVIDIA H200" in printed
    assert "### How it was measured" in printed
    assert re.search(r'^- +"tile": 64\n\+ +"tile": 128$', printed, re.MULTILINE)
