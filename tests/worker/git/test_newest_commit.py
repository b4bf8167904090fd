"""Whatever was pushed, every page's newest commit is the measured one that is nearest to the tip of the branch."""

import datetime as dt
import shutil
from collections.abc import Iterator
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from sqlalchemy import select
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tests.worker.fixtures import drawn_histories
from tests.worker.fixtures.drawn_histories import DrawnHistory, contains
from tilewatch.db.lifecycle import commit_positions
from tilewatch.db.models import Commit, Run, Sweep
from tilewatch.db.page_reads import evidence, series, snapshots, sweeps
from tilewatch.db.worker_reads import judging, run_pairs, tuned_rows
from tilewatch.worker.git.branch_order import order_branch

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
    yield "judge", next(each.sha for each in judging.list_newest_scopes(opened) if each.repository == REPOSITORY)


def _require_order(opened: Session, folder: Path) -> None:
    """What stands earlier contains nothing that stands later: on the trend, for the judge, and before each run."""
    trend = [point.sha for point in series.list_points(opened, *SERIES, static_facts=False) if point.role == "kernel"]
    scope = next(each for each in judging.list_newest_scopes(opened) if each.repository == REPOSITORY)
    for shas in (trend, [night.sha for night in judging.list_nights(opened, scope)]):
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
