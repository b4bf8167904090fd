"""One nightly per day, commit and GPU model, whatever happens to the clock; and commits that no night tested."""

import datetime as dt
import threading

import pytest
from sqlalchemy import func, select

from tests.worker.fixtures import tiny_repository
from tilewatch.db.lifecycle import jobs
from tilewatch.db.models import Commit, Job, Submission
from tilewatch.db.session import session
from tilewatch.worker import schedule
from tilewatch.worker.context import Context
from tilewatch.worker.repository import RepositoryError
from tilewatch.worker.settings import Settings
from tilewatch.worker.steps.submit import NothingToSubmit, submit_backfill, submit_nightly, submit_sweep

AT = dt.time(3, 0)
NIGHT = dt.date(2026, 11, 20)


def at(hour: int, minute: int = 0, *, day: int = 20) -> dt.datetime:
    return dt.datetime(2026, 11, day, hour, minute, tzinfo=dt.UTC)


def nights(context: Context) -> list[dt.date | None]:
    with session(context.database_url) as opened:
        return list(opened.scalars(select(Submission.night).order_by(Submission.id)))


def test_two_clocks_at_once_submit_one_nightly(settings: Settings, context: Context) -> None:
    together = threading.Barrier(2)
    created = []

    def beat() -> None:
        together.wait()
        created.append(submit_nightly(settings, night=NIGHT).created)

    beats = [threading.Thread(target=beat) for _ in range(2)]
    for thread in beats:
        thread.start()
    for thread in beats:
        thread.join()
    assert sorted(created) == [False, True]
    assert nights(context) == [NIGHT]
    with session(context.database_url) as opened:
        assert opened.scalar(select(func.count(Job.id))) == 1


def test_a_missed_night_is_submitted_once(settings: Settings, context: Context) -> None:
    submit_nightly(settings, night=dt.date(2026, 11, 17))
    said = schedule.catch_up(settings, at(9))
    assert said is not None
    assert "submitted the nightly of 2026-11-20" in said
    assert schedule.catch_up(settings, at(9, 1)) is None
    assert nights(context) == [dt.date(2026, 11, 17), NIGHT]


def test_nothing_is_missed_before_the_first_nightly(settings: Settings, context: Context) -> None:
    assert schedule.catch_up(settings, at(9)) is None
    submit_sweep(settings, tiny_repository.KERNEL, "1024")
    assert schedule.catch_up(settings, at(9)) is None
    assert nights(context) == [None]


def test_a_backfill_submits_the_commits_of_a_range_once_and_after_all_other_work(
    settings: Settings, context: Context
) -> None:
    start = tiny_repository.git(settings.repository, "rev-parse", "HEAD").strip()
    shas = [tiny_repository.commit(settings.repository, f"Change {number}", factor=number) for number in (3, 4)]
    assert [each.created for each in submit_backfill(settings, f"{start}..HEAD")] == [True, True]
    assert [each.created for each in submit_backfill(settings, f"{start}..HEAD")] == [False, False]
    with session(context.database_url) as opened:
        submitted = select(Commit.sha).join(Submission, Submission.commit_id == Commit.id).order_by(Submission.id)
        assert list(opened.scalars(submitted)) == shas[::-1]
        assert set(opened.scalars(select(Job.priority))) == {jobs.Priority.BACKFILL}
    submit_nightly(settings, night=NIGHT)
    with session(context.database_url) as opened:
        first, *_ = jobs.list_unsent(opened, 0)
        assert opened.get_one(Job, first.id).priority == jobs.Priority.NIGHTLY


@pytest.mark.parametrize("revisions", ["HEAD", "..HEAD", "HEAD..", "HEAD...HEAD"])
def test_what_is_no_range_is_said(settings: Settings, revisions: str) -> None:
    with pytest.raises(RepositoryError, match="is not a range of commits"):
        list(submit_backfill(settings, revisions))


def test_an_empty_range_and_an_unknown_commit_are_said(settings: Settings) -> None:
    with pytest.raises(NothingToSubmit, match="has no commits"):
        list(submit_backfill(settings, "HEAD..HEAD"))
    with pytest.raises(RepositoryError, match="has no commit 'nosuch'"):
        list(submit_backfill(settings, "nosuch..HEAD"))
