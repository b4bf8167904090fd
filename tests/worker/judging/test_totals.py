"""The weighted total of a model: written where all its parts have a time, judged by their verdicts."""

import datetime as dt
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from tests.conftest import NewDatabase
from tests.db.fixtures import one_commit
from tests.worker.fixtures import git_history, tiny_repository
from tests.worker.fixtures.made_run import make_run
from tests.worker.fixtures.nights import do_nights, submit_night
from tests.worker.fixtures.worker_context import do_all_jobs, settings_for
from tilewatch.db import fact_writes
from tilewatch.db.models import TOTAL, Commit, Measurement, RegressionSeries, Replay, Run, Sweep, Verdict
from tilewatch.db.session import session
from tilewatch.db.worker_reads.export import ExportFilter
from tilewatch.db.worker_reads.judging import Scope
from tilewatch.db.worker_reads.totals import Part
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.library_errors import LibraryError
from tilewatch.worker.context import Context
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.judging import totals
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting.submit import submit_sweep
from tilewatch.worker.transfer.exporting import export_file
from tilewatch.worker.transfer.importing import import_file

WEIGHTS = {"1024": 28.0, "2048": 2.0}


@dataclass(frozen=True)
class Measured:
    kernel: str
    problem: str
    subject: str
    median_us: float
    samples_us: list[float]
    toolchain: dict[str, str]
    verdict: str
    change: float | None
    reason: str


@pytest.fixture
def watched(tmp_path: Path, database_url: str, broker_url: str, known_cubins: str) -> Settings:
    return settings_for(tmp_path / "home", tmp_path / "watched", database_url, broker_url, known_cubins)


def make_commits(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *subjects: str, model: Mapping[str, float] = WEIGHTS
) -> list[str]:
    """The tiny repository whose kernel is part of a model, with these changes; the shas in order."""
    weights = f"weights=lambda problem: {{'decode': {model}[problem.name]}} if problem.name in {model} else {{}},"
    source = tiny_repository.SOURCE.replace("baselines=(),", f"baselines=(), {weights}")
    monkeypatch.setattr(tiny_repository, "SOURCE", source)
    return list(git_history.make(folder, *subjects).values())


def read_measured(context: Context) -> list[Measured]:
    query = (
        select(
            Sweep.kernel,
            Sweep.problem,
            Commit.subject,
            Measurement.median_us,
            Measurement.samples_us,
            Run.toolchain,
            Verdict.verdict,
            Verdict.change,
            Verdict.reason,
        )
        .join(Run, Run.sweep_id == Sweep.id)
        .join(Measurement, (Measurement.run_id == Run.id) & (Measurement.role == "kernel"))
        .join(Verdict, Verdict.run_id == Run.id)
        .join(Commit, Commit.id == Sweep.commit_id)
        .order_by(Sweep.id, Run.id)
    )
    with session(context.database_url) as opened:
        return [Measured(*row) for row in opened.execute(query)]


def test_a_total_is_the_weighted_sum_of_its_parts_and_changes_by_theirs(
    watched: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shas = make_commits(tmp_path / "watched", monkeypatch, git_history.ADD, git_history.WORDS)
    context = do_nights(watched, *shas)
    found = read_measured(context)
    before, after, words = (
        [each for each in found if each.subject == subject]
        for subject in (git_history.BASE, git_history.ADD, git_history.WORDS)
    )
    for night in (before, after, words):
        *parts, total = night
        assert (total.kernel, total.problem) == (TOTAL, "decode")
        sums = [
            sum(WEIGHTS[part.problem] * part.samples_us[number] for part in parts)
            for number in range(len(parts[0].samples_us))
        ]
        assert total.samples_us == pytest.approx(sums)
        assert total.toolchain["parts"].startswith("2 problems (")
    assert before[-1].verdict == "undecided"
    *parts, total = after
    assert total.verdict in ("regression", "improvement")
    now_us = {part.problem: WEIGHTS[part.problem] * part.median_us for part in parts}
    then_us = {part.problem: now_us[part.problem] / (1 + part.change) for part in parts if part.change is not None}
    assert total.change == pytest.approx(sum(now_us.values()) / sum(then_us.values()) - 1)
    assert "double 1024" in total.reason
    assert words[-1].verdict == "unchanged"
    with session(context.database_url) as opened:
        assert opened.scalar(select(func.count()).select_from(Replay))
        assert set(opened.scalars(select(Replay.kernel))) == {"double"}
        assert set(opened.scalars(select(RegressionSeries.kernel))) == {"double"}


def test_a_part_that_is_swept_alone_has_no_total(
    watched: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_commits(tmp_path / "watched", monkeypatch)
    submit_sweep(watched, "double", "1024", gpus=("sim",))
    context = Context.of(watched)
    do_all_jobs(context)
    assert [each.kernel for each in read_measured(context)] == ["double"]


def test_a_total_begins_a_new_line_where_its_parts_change(
    watched: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shas = make_commits(tmp_path / "watched", monkeypatch)
    context = do_nights(watched, *shas)
    file = tmp_path / "watched" / "library" / "double.py"
    file.write_text(file.read_text().replace("28.0", "30.0"))
    tiny_repository.git(tmp_path / "watched", "commit", "--quiet", "--all", "--message", "Decode more")
    submit_night(watched, "HEAD", 1)
    do_all_jobs(context)
    first, second = (each for each in read_measured(context) if each.kernel == TOTAL)
    assert first.toolchain["parts"] != second.toolchain["parts"]
    assert {**first.toolchain, "parts": ""} == {**second.toolchain, "parts": ""}


def test_weights_travel_with_a_recording_and_the_total_is_computed_again(
    watched: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_database: NewDatabase
) -> None:
    make_commits(tmp_path / "watched", monkeypatch, model={"1024": 28.0})
    context = Context.of(watched)
    make_run(watched, context, functools.partial(do_all_jobs, context))
    file = tmp_path / "h200.jsonl.gz"
    export_file(context.database_url, file, ExportFilter())
    (part, total) = read_measured(context)
    assert total.median_us == pytest.approx(28.0 * part.median_us)
    with new_database() as elsewhere:
        assert import_file(elsewhere, file).sentence.startswith("imported 1 run ")
        there = replace(context, database_url=elsewhere)
        do_all_jobs(there)
        assert [(each.kernel, each.median_us) for each in read_measured(there)] == [
            (each.kernel, each.median_us) for each in (part, total)
        ]


@pytest.mark.parametrize(
    ("name", "what"),
    [
        (TOTAL, "the kernel of weighted totals"),
        ("double span", "the series of double's spans"),
        ("double graph", "the series of double's spans"),
    ],
)
def test_no_kernel_may_have_the_name_of_a_computed_series(tmp_path: Path, name: str, what: str) -> None:
    (tmp_path / "double.py").write_text(tiny_repository.SOURCE.replace('name="double"', f'name="{name}"'))
    with pytest.raises(LibraryError, match=f"double.py: '{name}' is {what}; give yours another name"):
        catalog.read_library(tmp_path, arch="sm_90")


MORNING = dt.datetime(2026, 11, 20, 3, tzinfo=dt.UTC)


def make_part(number: int, weight: float, samples_us: list[float], baseline: str | None = None, **of_run: Any) -> Part:
    """A part that took `number` minutes from `number` o'clock on."""
    started = MORNING.replace(hour=number)
    sweep = Sweep(kernel="gemm", problem=f"{number}", source_sha256=f"source {number}", flops=100, bytes=10 * number)
    columns: dict[str, Any] = {"host": "n1", "gpu_uuid": "GPU-1", "gpu_name": "B200", "timer": "cupti"}
    columns |= {"toolchain": {"cuda-tile": "1.7.0"}, "recording_id": None, **of_run}
    run = Run(started_at=started, finished_at=started + dt.timedelta(minutes=number), **columns)
    measured = Measurement(samples_us=samples_us, median_us=samples_us[0], baseline=baseline)
    return Part(sweep, run, measured, weight, 2, (5.0, 7.0) if baseline else (), None)


def test_the_sweep_and_run_of_a_total_sum_up_those_of_the_parts(db_session: Session) -> None:
    planned = one_commit.submit(db_session)
    commit_id = db_session.get_one(Sweep, planned.sweep_id).commit_id
    scope = Scope(planned.submission_id, commit_id, "ab" * 20, 7, "tilewatch", "b200", "sm_100", "measured")
    second = {"host": "n2", "gpu_uuid": "GPU-2", "timer": "events", "toolchain": {"cuda-tile": "1.8.0", "torch": "2.9"}}
    parts = [make_part(1, 28.0, [3.0, 4.0]), make_part(4, 2.5, [10.0, 20.0], **second)]
    totals._write(db_session, scope, "decode", parts)
    (sweep,) = db_session.scalars(select(Sweep).where(Sweep.kernel == TOTAL))
    (run,) = db_session.scalars(select(Run).where(Run.sweep_id == sweep.id))
    (measured,) = db_session.scalars(select(Measurement).where(Measurement.run_id == run.id))
    assert (sweep.problem, sweep.flops, sweep.bytes, sweep.space_size) == ("decode", 3050, 28 * 10 + 100, 0)
    assert (run.host, run.gpu_uuid, run.gpu_name, run.timer) == ("n1, n2", "GPU-1, GPU-2", "B200", "events")
    assert (run.started_at, run.finished_at) == (parts[0].run.started_at, parts[1].run.finished_at)
    versions = {name: version for name, version in run.toolchain.items() if name != "parts"}
    assert versions == {"cuda-tile": "1.7.0, 1.8.0", "torch": "2.9, none"}
    assert re.fullmatch(r"2 problems \([0-9a-f]{8}\)", run.toolchain["parts"])
    assert (measured.samples_us, measured.median_us, measured.baseline) == ([109.0, 162.0], 135.5, None)


@pytest.mark.parametrize("timers", [("cupti", "cupti"), ("cupti", "events"), ("events", "cupti")])
def test_a_total_was_timed_by_events_if_any_part_was(db_session: Session, timers: tuple[str, str]) -> None:
    planned = one_commit.submit(db_session)
    commit_id = db_session.get_one(Sweep, planned.sweep_id).commit_id
    scope = Scope(planned.submission_id, commit_id, "ab" * 20, 7, "tilewatch", "b200", "sm_100", "measured")
    totals._write(db_session, scope, "decode", [make_part(1, 1.0, [3.0], timer=timer) for timer in timers])
    assert db_session.scalars(select(Run.timer)).all() == ["events" if "events" in timers else "cupti"]


@pytest.mark.parametrize(
    ("baselines", "rounds", "baseline_us"),
    [
        ((None, None), 2, None),
        (("cublas", None), 2, None),
        (("cublas", "torch"), 2, None),
        (("cublas", "cublas"), 2, [15.0, 21.0]),
        (("cublas", "cublas"), 1, None),
    ],
)
def test_a_total_has_a_baseline_if_all_parts_have_the_same_in_each_round(
    baselines: tuple[str | None, str | None], rounds: int, baseline_us: list[float] | None
) -> None:
    """The second part runs twice in a step. Rounds that a part lacks count for none."""
    parts = [make_part(number, number, [3.0, 4.0, 5.0][:rounds], name) for number, name in enumerate(baselines, 1)]
    own, *others = totals._sampled(parts, 7)
    assert (own.implementation, own.role, own.config_id) == (TOTAL, "kernel", 7)
    assert own.samples_us == [9.0, 12.0][:rounds]
    assert [(each.implementation, each.role, each.samples_us) for each in others] == (
        [] if baseline_us is None else [("cublas", "baseline", baseline_us)]
    )


def test_a_round_that_a_part_lacks_is_none_of_the_total() -> None:
    parts = [make_part(1, 2.0, [3.0, 4.0, 5.0]), make_part(2, 1.0, [10.0, 20.0])]
    assert [each.samples_us for each in totals._sampled(parts, 7)] == [[16.0, 28.0]]


@pytest.mark.parametrize(("parts", "is_written"), [(1, True), (2, False)])
def test_a_total_is_written_once_and_only_if_all_parts_have_a_time(
    db_session: Session, parts: int, is_written: bool
) -> None:
    planned = one_commit.submit(db_session)
    sweep = db_session.get_one(Sweep, planned.sweep_id)
    sweep.parts_of = {"decode": {"weight": 28.0, "parts": parts}}
    one_commit.measure(db_session, planned)
    scope = Scope(planned.submission_id, sweep.commit_id, "ab" * 20, 7, "tilewatch", "b200", "sm_100", "measured")
    for _ in range(2):
        totals.write(db_session, scope)
        written = db_session.scalars(select(Run).join(Sweep).where(Sweep.kernel == TOTAL)).all()
        assert len(written) == is_written


@pytest.mark.parametrize(
    ("changes", "verdict", "commits"),
    [
        ((0.2, 0.01), "regression", (11, 12)),
        ((-0.01, -0.2), "improvement", (21, 22)),
        ((0.0, 0.0), "unchanged", (None, None)),
    ],
)
def test_the_verdict_on_a_total_names_the_commits_of_the_part_that_changed_it_most(
    changes: tuple[float, float], verdict: str, commits: tuple[int | None, int | None]
) -> None:
    """Each part is half of the total, so that its interval and noise are a root of two narrower than theirs."""
    parts = []
    for number, change in enumerate(changes, 1):
        name = "unchanged" if not change else "regression" if change > 0 else "improvement"
        columns = {"low": change - 0.001, "high": change + 0.001, "noise": 0.002, "history_points": 9}
        of_part = Verdict(verdict=name, change=change, good_commit_id=10 * number + 1, bad_commit_id=10 * number + 2)
        for column, value in columns.items():
            setattr(of_part, column, value)
        parts.append(replace(make_part(number, 2.0, [100.0 * (1 + change)]), verdict=of_part))
    found = totals._verdict(5, parts, Policy())
    assert (found.run_id, found.verdict, found.history_points) == (5, verdict, 9)
    assert (found.good_commit_id, found.bad_commit_id) == commits
    assert found.change == pytest.approx(sum(changes) / 2)
    interval = [sum(changes) / 2 + each * 0.001 / 2**0.5 for each in (-1, 1)]
    assert [found.low, found.high] == pytest.approx(interval)
    assert [found.noise, found.smallest] == pytest.approx([0.002 / 2**0.5, 3 * 0.002 / 2**0.5])
    assert found.reason.startswith("the changes of its parts add up" if any(changes) else "its parts together")


def measure_part(opened: Session, parts: int) -> tuple[Scope, int]:
    """Stores a run of one of a total's parts. Returns the scope of the night, and the run's id."""
    planned = one_commit.submit(opened)
    sweep = opened.get_one(Sweep, planned.sweep_id)
    sweep.parts_of = {"decode": {"weight": 28.0, "parts": parts}}
    run_id = one_commit.measure(opened, planned)
    return Scope(
        planned.submission_id, sweep.commit_id, "ab" * 20, 7, "tilewatch", "b200", "sm_100", "measured"
    ), run_id


def test_a_total_is_judged_once_it_is_written_and_all_its_parts_are_judged(db_session: Session) -> None:
    scope, run_id = measure_part(db_session, parts=1)

    def judge() -> list[tuple[str, str]]:
        totals.judge(db_session, scope, Policy(name="strict"))
        of_totals = select(Verdict).join(Run, Run.id == Verdict.run_id).join(Sweep).where(Sweep.kernel == TOTAL)
        return [(verdict.verdict, verdict.policy) for verdict in db_session.scalars(of_totals)]

    db_session.execute(delete(Verdict))
    totals.write(db_session, scope)
    assert judge() == []
    unjudged: dict[str, Any] = {
        "change": None,
        "noise": None,
        "history_points": 2,
        "policy": "strict",
        "reason": "short",
    }
    fact_writes.write_verdicts(db_session, [fact_writes.NewVerdict(run_id=run_id, verdict="undecided", **unjudged)])
    assert judge() == [("undecided", "strict")]


def test_a_total_that_is_not_written_is_not_judged(db_session: Session) -> None:
    scope, run_id = measure_part(db_session, parts=2)
    totals.judge(db_session, scope, Policy())
    assert db_session.scalars(select(Verdict.run_id)).all() == [run_id]
