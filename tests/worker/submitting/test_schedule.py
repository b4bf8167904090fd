"""One nightly per day, commit and GPU model, whatever happens to the clock; backfills; and pruning of old samples."""

import datetime as dt
import subprocess
import sys
import threading

import pytest
from sqlalchemy import func, select, update

from tests.db.fixtures.rows import Rows
from tests.worker.fixtures import tiny_repository
from tests.worker.fixtures.celery_process import environment
from tests.worker.fixtures.made_run import make_run
from tests.worker.fixtures.worker_context import Drain
from tilewatch.db.lifecycle import jobs
from tilewatch.db.models import Alarm, Commit, Config, Job, Measurement, Run, Submission, Sweep, Trial, Verdict
from tilewatch.db.repository_names import name_of_branch
from tilewatch.db.session import session
from tilewatch.worker.context import Context
from tilewatch.worker.git.commits import RepositoryError
from tilewatch.worker.queue.dispatch import BrokerUnreachable
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting import schedule
from tilewatch.worker.submitting.submit import NothingToSubmit, submit_backfill, submit_nightly, submit_sweep

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


def test_the_clock_sends_what_a_worker_knows_and_repairs_the_queue(settings: Settings) -> None:
    code = """
from tilewatch.worker.app import celery
for entry in celery.conf.beat_schedule.values():
    if entry["task"] in celery.tasks:
        print(entry["task"], entry.get("options", {}).get("queue", celery.conf.task_default_queue))
"""
    done = subprocess.run([sys.executable, "-c", code], env=environment(settings), capture_output=True, text=True)
    sent = dict(line.removeprefix("worker.").split() for line in done.stdout.splitlines())
    judging = dict.fromkeys(("nightly", "prune", "reconcile"), "judge")
    beside_the_token = dict.fromkeys(("tell", "watch"), "tell")  # none of them runs a commit's code
    assert sent == {**judging, **beside_the_token, "mend_tables": "tell", "compare_code": "compile"}, done.stderr


def test_a_missed_night_is_submitted_once(settings: Settings, context: Context) -> None:
    submit_nightly(settings, night=dt.date(2026, 11, 17))
    (sentence,) = schedule.catch_up(settings, at(9))
    assert "submitted the nightly of 2026-11-20" in sentence
    assert schedule.catch_up(settings, at(9, 1)) == []
    assert nights(context) == [dt.date(2026, 11, 17), NIGHT]


@pytest.mark.parametrize("where", [("--create", "other"), ("--detach",)])
def test_a_checkout_off_its_branch_misses_no_night_of_the_branch(
    settings: Settings, context: Context, where: tuple[str, ...]
) -> None:
    followed = settings.model_copy(update={"branch": "main"})
    submit_nightly(followed, night=dt.date(2026, 11, 17))
    tip = tiny_repository.commit(settings.repository, "Change main", factor=3)
    tiny_repository.git(settings.repository, "switch", *where)
    tiny_repository.commit(settings.repository, "Leave main", factor=4)
    (sentence,) = schedule.catch_up(followed, at(9))
    assert sentence.startswith(f"submitted the nightly of 2026-11-20 for {tip[:8]}")
    assert schedule.catch_up(followed, at(9, 1)) == []
    assert nights(context) == [dt.date(2026, 11, 17), NIGHT]


def test_a_nightly_that_is_late_at_midnight_is_that_of_its_day(
    settings: Settings, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took the name of the next night, which then had been submitted already."""
    for name, value in environment(settings).items():
        monkeypatch.setenv(name, value)
    from tilewatch.worker import app

    now, some_minutes = dt.datetime.now(dt.UTC), dt.timedelta(minutes=10)
    due = (now - some_minutes, now + some_minutes - dt.timedelta(days=1))
    for moment in due:
        monkeypatch.setenv("TILEWATCH_NIGHTLY_AT", moment.time().isoformat())
        app.run_nightly()
    assert set(nights(context)) == {moment.date() for moment in due}


def test_nothing_is_missed_before_the_first_nightly(settings: Settings, context: Context) -> None:
    assert schedule.catch_up(settings, at(9)) == []
    submit_sweep(settings, tiny_repository.KERNEL, "1024")
    assert schedule.catch_up(settings, at(9)) == []
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


def test_a_commit_of_two_branches_is_submitted_for_each(settings: Settings, context: Context) -> None:
    """Their series are kept apart by the branch, and those of the second one lacked the commits of the first."""
    tiny_repository.git(settings.repository, "switch", "--create", "one")
    tiny_repository.commit(settings.repository, "Change one", factor=3)
    tiny_repository.git(settings.repository, "branch", "two")
    tiny_repository.git(settings.repository, "switch", "main")
    for branch in ("one", "two", "two"):
        list(submit_backfill(settings, f"main..{branch}"))
    with session(context.database_url) as opened:
        names = select(Commit.repository).join(Submission, Submission.commit_id == Commit.id).order_by(Submission.id)
        assert [name_of_branch("watched", branch) for branch in ("one", "two")] == list(opened.scalars(names))


@pytest.mark.parametrize("revisions", ["HEAD", "..HEAD", "HEAD..", "HEAD...HEAD"])
def test_what_is_no_range_is_said(settings: Settings, revisions: str) -> None:
    with pytest.raises(RepositoryError, match="is not a range of commits"):
        list(submit_backfill(settings, revisions))


def test_an_empty_range_and_an_unknown_commit_are_said(settings: Settings) -> None:
    with pytest.raises(NothingToSubmit, match="has no commits"):
        list(submit_backfill(settings, "HEAD..HEAD"))
    with pytest.raises(RepositoryError, match="has no commit 'nosuch'"):
        list(submit_backfill(settings, "nosuch..HEAD"))


NOW = dt.datetime(2027, 6, 1, tzinfo=dt.UTC)


def samples(context: Context) -> dict[int, bool]:
    """Whether the trials still have their samples, by width."""
    with session(context.database_url) as opened:
        query = select(Config.params, Trial).join(Trial, Trial.config_id == Config.id).where(Trial.status == "timed")
        timed = opened.execute(query).all()
        assert all(trial.median_us is not None for _, trial in timed)
        return {params["width"]: trial.samples_us is not None for params, trial in timed}


def test_the_samples_of_an_old_loser_go_and_its_median_stays(
    settings: Settings, context: Context, drain: Drain
) -> None:
    run_id = make_run(settings, context, drain)
    with session(context.database_url) as opened:
        opened.execute(update(Sweep).values(created_at=NOW - dt.timedelta(days=91)))
        opened.execute(update(Trial).where(Trial.status == "wrong").values(samples_us=[1.0]))
    assert schedule.prune(context.database_url, 90, NOW) == 1  # the wrong one: 128 won, and 256 is tied with it
    assert samples(context) == {128: True, 256: True}
    assert schedule.prune(context.database_url, 90, NOW) == 0
    with session(context.database_url) as opened:
        assert all(row.samples_us for row in opened.scalars(select(Measurement)))
        assert opened.get_one(Verdict, run_id)


def test_what_lost_narrowly_but_is_no_tie_goes_too(settings: Settings, context: Context, drain: Drain) -> None:
    run_id = make_run(settings, context, drain)
    with session(context.database_url) as opened:
        opened.execute(update(Sweep).values(created_at=NOW - dt.timedelta(days=91)))
        opened.execute(update(Run).where(Run.id == run_id).values(tie=[]))
    assert schedule.prune(context.database_url, 90, NOW) == 1
    assert samples(context) == {128: True, 256: False}


def test_young_trials_keep_their_samples(settings: Settings, context: Context, drain: Drain) -> None:
    make_run(settings, context, drain)
    with session(context.database_url) as opened:
        opened.execute(update(Sweep).values(created_at=NOW - dt.timedelta(days=89)))
    assert schedule.prune(context.database_url, 90, NOW) == 0


def test_samples_of_all_old_sweeps_go_batch_by_batch(database_url: str) -> None:
    with session(database_url) as opened:
        rows = Rows(opened)
        night, configs = rows.night(), [rows.config(tile=tile) for tile in (32, 64)]
        moments = [NOW - dt.timedelta(days=90, microseconds=1)] * (schedule.BATCH + 1) + [NOW - dt.timedelta(days=90)]
        for number, created_at in enumerate(moments):
            sweep = rows.sweep(night, problem=str(number), created_at=created_at)
            for config in configs:
                rows.trial(sweep, config, 9.0, samples_us=[9.0])
    assert schedule.prune(database_url, 90, NOW) == 2 * (schedule.BATCH + 1)
    with session(database_url) as opened:
        left = select(func.count()).select_from(Trial).where(Trial.samples_us.is_not(None))
        assert opened.scalar(left) == 2
    assert schedule.prune(database_url, 90, NOW) == 0


@pytest.mark.parametrize(("before", "is_due"), [(NIGHT - dt.timedelta(days=1), True), (NIGHT, False)])
def test_a_night_that_was_submitted_is_not_missed(
    settings: Settings, context: Context, before: dt.date, is_due: bool
) -> None:
    submit_nightly(settings, night=before)
    sentences = schedule.catch_up(settings, at(9))
    assert [" of 2026-11-20 " in sentence for sentence in sentences] == [True] * is_due
    assert nights(context) == [before, NIGHT][: 1 + is_due]


def test_a_night_that_fails_opens_an_alarm_that_the_next_one_closes(settings: Settings, context: Context) -> None:
    file = settings.repository / "library" / "double.py"
    whole = file.read_text()
    file.write_text("import missing_package\n")
    tiny_repository.git(settings.repository, "commit", "--quiet", "--all", "--message", "Break the library")
    (failed,) = schedule.submit(settings, NIGHT)
    assert failed.startswith("no nightly was submitted for watched: ")
    assert nights(context) == []

    def read_alarms() -> list[tuple[str, str, str, bool]]:
        with session(context.database_url) as opened:
            found = opened.scalars(select(Alarm).order_by(Alarm.id))
            return [(each.kind, each.subject, each.detail, each.closed_at is None) for each in found]

    assert read_alarms() == [("nightly_failed", "watched", failed, True)]
    file.write_text(whole)
    tiny_repository.git(settings.repository, "commit", "--quiet", "--all", "--message", "Mend the library")
    (done,) = schedule.submit(settings, NIGHT)
    assert done.startswith("submitted the nightly of 2026-11-20 for ")
    assert [is_open for *_, is_open in read_alarms()] == [False]


def test_a_broker_that_is_away_is_no_failed_night(settings: Settings, context: Context) -> None:
    away = settings.model_copy(update={"broker_url": "redis://127.0.0.1:9/0"})
    with pytest.raises(BrokerUnreachable):
        schedule.submit(away, NIGHT)
    with session(context.database_url) as opened:
        assert opened.scalars(select(Alarm)).all() == []
