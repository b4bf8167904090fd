"""Whatever was pushed, every page's newest commit is the measured one that is nearest to the tip of the branch."""

import datetime as dt
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from sqlalchemy import select
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tests.worker.fixtures import drawn_histories
from tests.worker.fixtures.drawn_histories import DrawnHistory, contains, list_line
from tests.worker.fixtures.tiny_repository import git
from tilewatch.dashboard.site import weekly_report
from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import commit_positions
from tilewatch.db.models import Commit, Run, Sweep
from tilewatch.db.page_reads import evidence, series, snapshots, static_facts, sweeps
from tilewatch.db.worker_reads import export, fallen_configs, judging, run_pairs, tuned_rows
from tilewatch.worker.git.branch_order import order_branch
from tilewatch.worker.git.watched import WatchedRepository
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting import submit

NOW = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
REPOSITORY = "drawn"
SERIES = (REPOSITORY, "gemm_fp8", "320x32576x7168", "b200")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn_histories.histories())
def test_every_page_shows_the_measured_commit_nearest_to_the_tip(
    tmp_path: Path, db_session: Session, history: DrawnHistory
) -> None:
    folder = tmp_path / "drawn.git"
    shutil.rmtree(folder, ignore_errors=True)
    shas = drawn_histories.write(folder, history)
    dates = {sha: dt.datetime.fromtimestamp(date, dt.UTC) for sha, date in zip(shas, history.dates, strict=True)}
    undone = db_session.begin_nested()
    try:
        known: list[str] = []
        for tip, measured in zip(history.tips, history.measured, strict=True):
            for sha in (shas[each] for each in measured if shas[each] not in known):
                _measure(db_session, sha, min(dates[sha], NOW))
                known.append(sha)
            order = order_branch(folder, [shas[tip]], [each.sha for each in _list_known(db_session)])
            commit_positions.write_order(db_session, REPOSITORY, order.positions, order.left)
            on_branch = [sha for sha in known if contains(folder, shas[tip], sha)]
            if on_branch:
                _require_nearest(db_session, folder, on_branch)
                _require_order(db_session, folder)
    finally:
        undone.rollback()


def _measure(opened: Session, sha: str, committed_at: dt.datetime) -> None:
    planned = one_commit.submit(opened, f"night of {sha}", REPOSITORY, sha=sha, position=1, committed_at=committed_at)
    fact_writes.add_compilations(opened, [one_commit.compiled(each) for each in planned.code_keys])
    fact_writes.attach_compilations(opened, compiler=one_commit.COMPILER, sweep_ids=[planned.sweep_id])
    one_commit.measure(opened, planned, f"run of {sha}")


def _list_known(opened: Session) -> list[commit_positions.KnownCommit]:
    return commit_positions.list_known(opened, REPOSITORY)


def _require_nearest(opened: Session, folder: Path, on_branch: list[str]) -> None:
    newest = dict(_list_newest(opened))
    (sha,) = set(newest.values())
    assert sha in on_branch, newest
    assert not [other for other in on_branch if other != sha and contains(folder, other, sha)], "one is nearer"


def _list_newest(opened: Session) -> Iterator[tuple[str, str]]:
    yield "overview", snapshots.list_points_as_of(opened, REPOSITORY, NOW)[0].sha
    yield "commits", snapshots.list_commits(opened, REPOSITORY)[0].sha
    points = series.list_points(opened, *SERIES, static_facts=False)
    yield "trends", [point.sha for point in points if point.left_branch_at is None][-1]
    yield "sweeps", sweeps.list_sweeps(opened, *SERIES)[0].sha
    yield "winners", sweeps.list_winners(opened, *SERIES)[0].sha
    yield "tuned", tuned_rows.list_newest_winners(opened, repository=REPOSITORY)[0].sha
    pairs = run_pairs.list_newest_run_pairs(opened, one_commit.NOON)
    yield "regret", next(each.sha for each in pairs if each.repository == REPOSITORY)
    if fallen := fallen_configs.list_newest_pairs(opened, one_commit.NOON):
        yield "alarms about configs", fallen[0].sha
    yield "architectures", static_facts.list_spills(opened, REPOSITORY, "b200")[0].sha
    week = weekly_report.read_week(opened, NOW, REPOSITORY)
    yield "weekly report", week.section.after[0].sha
    yield "judge", next(each.sha for each in judging.list_newest_scopes(opened) if each.repository == REPOSITORY)


def _require_order(opened: Session, folder: Path) -> None:
    """What stands earlier contains nothing that stands later: on the trend, for the judge, and before each run."""
    trend = [point.sha for point in series.list_points(opened, *SERIES, static_facts=False) if point.role == "kernel"]
    scope = next(each for each in judging.list_newest_scopes(opened) if each.repository == REPOSITORY)
    statics = [row.sha for row in static_facts.list_static_facts(opened, *SERIES)]
    written = export.list_sweeps_to_export(opened, export.ExportFilter(repository=REPOSITORY))
    exported = [export.read_sweep_export(opened, each).commit.sha for each in written]
    nights = [night.sha for night in judging.list_nights(opened, scope)]
    assert set(trend) == set(statics) == set(exported) >= set(nights)
    for shas in (trend, nights, statics, exported):
        for place, earlier in enumerate(shas):
            assert not [later for later in shas[place + 1 :] if later != earlier and contains(folder, earlier, later)]
    runs = dict(
        opened.execute(
            select(Run.id, Commit.sha)
            .join(Sweep, Sweep.id == Run.sweep_id)
            .join(Commit, Commit.id == Sweep.commit_id)
            .where(Commit.repository == REPOSITORY)
        ).all()
    )
    for run_id, sha in runs.items():
        before = evidence.find_run_before(opened, run_id)
        assert before is None or not contains(folder, runs[before], sha)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn_histories.histories())
def test_a_backfill_lists_a_range_of_the_branch_in_the_order_of_git(
    tmp_path: Path, database_url: str, history: DrawnHistory
) -> None:
    folder = tmp_path / "drawn.git"
    shutil.rmtree(folder, ignore_errors=True)
    shas = drawn_histories.write(folder, history)
    tip = history.tips[-1]
    git(folder, "update-ref", "refs/heads/main", shas[tip])
    watched = WatchedRepository(REPOSITORY, folder, "main")
    servers = Settings(home=tmp_path, database_url=database_url, broker_url="redis://nobody")
    line = [shas[each] for each in list_line(history.parents, tip)]
    for newer, older in itertools.combinations(line, 2):
        listed = submit._list_range(servers, watched, f"{older}..{newer}")
        between = [
            each for each in reversed(line) if contains(folder, newer, each) and not contains(folder, older, each)
        ]
        assert listed == between
