"""A real Celery worker on real servers: jobs get done, and survive an emptied Redis. test_chaos.py kills workers."""

import signal

import pytest
import redis
from sqlalchemy import func, select, text, update

from tests.worker.fixtures import open_regression
from tests.worker.fixtures.celery_process import PATIENCE_S, all_done, celery_worker, wait_for, workers
from tests.worker.fixtures.compiled_sweep import ready_sweep
from tests.worker.fixtures.http_receiver import receiver
from tilewatch.db import migrate
from tilewatch.db.lifecycle import jobs
from tilewatch.db.lifecycle.jobs import UnsentJob
from tilewatch.db.models import Job, Run, Trial
from tilewatch.db.session import session
from tilewatch.worker.context import Context
from tilewatch.worker.queue import dispatch
from tilewatch.worker.queue.dispatch import BrokerUnreachable
from tilewatch.worker.queue.reconcile import reconcile
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting.submit import submit_nightly


def jobs_in(context: Context, state: str) -> int:
    with session(context.database_url) as opened:
        return opened.execute(select(func.count(Job.id)).where(Job.state == state)).scalar_one()


def batch_runs(context: Context) -> bool:
    """A job that takes seconds is under way: it has a tile compiler to start."""
    with session(context.database_url) as opened:
        return bool(opened.scalars(select(Job.id).where(Job.state == "running", Job.total_steps > 0)).all())


def send_lost(context: Context) -> list[UnsentJob]:
    """Does what two minutes do to messages that are lost, as those that a worker was sent when its connection broke."""
    with session(context.database_url) as opened:
        opened.execute(update(Job).where(Job.sent_at.is_not(None)).values(sent_at=text("now() - interval '2 min'")))
    lost = reconcile(context.database_url, context.broker_url)
    dispatch.send(dispatch.sender(context.broker_url), context.database_url, lost)
    return lost


def test_a_redis_that_was_emptied_and_then_refuses_commands_loses_nothing_and_ends_no_worker(
    settings: Settings, context: Context
) -> None:
    """It wants copies of itself, of which there are none: as with a full disk, every command that writes is refused."""
    log = settings.home / "compile@test.log"
    submit_nightly(settings)
    with redis.Redis.from_url(context.broker_url) as client:
        client.flushdb()
    with redis.Redis.from_url(context.broker_url) as client, celery_worker(settings) as process:
        wait_for(lambda: workers(context), log)
        assert jobs_in(context, "queued") == 1
        client.config_set("min-replicas-to-write", 1)
        try:
            wait_for(lambda: "NOREPLICAS" in log.read_text(), log)
            with pytest.raises(BrokerUnreachable, match="NOREPLICAS"):
                dispatch.send(dispatch.sender(context.broker_url), context.database_url, [UnsentJob(1, "compile")])
        finally:
            client.config_set("min-replicas-to-write", 0)
        assert process.poll() is None
        assert len(send_lost(context)) == 1
        wait_for(lambda: send_lost(context) == [] and all_done(context), log)


def test_a_worker_says_that_it_is_here_and_compiles_a_night_in_the_middle_of_which_redis_is_emptied(
    settings: Settings, context: Context
) -> None:
    submit_nightly(settings, gpus=("h200", "b200"))
    with celery_worker(settings) as process:
        wait_for(lambda: batch_runs(context), settings.home / "compile@test.log")
        with redis.Redis.from_url(context.broker_url) as client:
            client.flushdb()
        wait_for(lambda: send_lost(context) == [] and all_done(context), settings.home / "compile@test.log")
        with session(context.database_url) as opened:
            assert set(opened.scalars(select(Job.attempt))) == {1}
            assert opened.scalar(select(func.count(Trial.config_id)).where(Trial.status == "waiting")) == 0
        (worker,) = workers(context)
        assert (worker.name, worker.kind) == ("compile@test", "compile")
        assert "cuda-tile" in worker.toolchain["compiler"]
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
    assert workers(context) == []
    log_text = (settings.home / "compile@test.log").read_text()
    for url in (context.database_url, context.broker_url):
        assert url not in log_text


def test_an_entry_of_messages_under_way_that_somebody_wrote_is_never_restored(context: Context) -> None:
    forged = {b"tag": b"garbage{"}
    with redis.Redis.from_url(context.broker_url) as client, dispatch.sender(context.broker_url).connection() as opened:
        client.hset("unacked", mapping=forged)
        client.zadd("unacked_index", {"tag": 1})
        opened.default_channel.qos.restore_visible(interval=1)
        assert client.hgetall("unacked") == forged
        client.delete("unacked", "unacked_index")


@pytest.mark.parametrize(
    ("told", "drain_s", "left"),
    [
        (signal.SIGTERM, 240.0, ("done", 1)),
        (signal.SIGTERM, 0.5, ("queued", 0)),
        (signal.SIGQUIT, 60.0, ("queued", 0)),  # Celery's cold shutdown
    ],
)
def test_a_worker_that_is_told_to_stop_finishes_its_sweep_in_time_or_gives_it_back(
    settings: Settings, context: Context, told: signal.Signals, drain_s: float, left: tuple[str, int]
) -> None:
    """A sweep that is given back would have taken ten minutes: it cannot end before the signal comes."""
    job_id = ready_sweep(settings, context)
    slow = settings.model_copy(update={"sim_trial_s": 1.0 if left[0] == "done" else 60.0, "drain_s": drain_s})
    log = settings.home / "gpu0@test.log"
    with celery_worker(slow, queues="gpu.sim", name="gpu0@test") as process:
        dispatch.send(dispatch.sender(context.broker_url), context.database_url, [UnsentJob(job_id, "gpu.sim")])
        wait_for(lambda: jobs_in(context, "running"), log)
        process.send_signal(told)
        process.wait(PATIENCE_S)
    with session(context.database_url) as opened:
        job = opened.get_one(Job, job_id)
        runs = opened.scalar(select(func.count(Run.id)))
        assert (job.state, runs) == left, log.read_text()[-2000:]
        assert job.owner is None


def test_a_worker_of_another_release_takes_no_job_until_the_database_is_its_own(
    settings: Settings, context: Context
) -> None:
    submit_nightly(settings)
    write_revision(context, "9999")
    log = settings.home / "compile@test.log"
    with celery_worker(settings):
        wait_for(lambda: [worker.doing for worker in workers(context) if worker.doing], log)
        (worker,) = workers(context)
        assert worker.doing is not None
        assert worker.doing.startswith("takes no job: the database at ")
        assert "is at revision 9999, which this code does not know" in worker.doing
        with session(context.database_url) as opened:
            assert {(job.state, job.attempt) for job in opened.scalars(select(Job))} == {("queued", 0)}
        write_revision(context, migrate.head())
        with session(context.database_url) as opened:
            again = jobs.list_unsent(opened, 0)
        dispatch.send(dispatch.sender(context.broker_url), context.database_url, again)
        wait_for(lambda: all_done(context), log)


def write_revision(context: Context, revision: str) -> None:
    with session(context.database_url) as opened:
        opened.execute(text("update alembic_version set version_num = :revision"), {"revision": revision})


def test_what_a_judge_opened_is_sent_as_soon_as_its_job_has_ended_and_the_clock_submits_the_nightly(
    settings: Settings, context: Context
) -> None:
    with (
        receiver() as board,
        celery_worker(settings, queues="judge", name="judge@test"),
        celery_worker(settings, queues="tell", name="tell@test"),
    ):
        written = f"[channels.board]\nwebhook = '{board.url}'\n[[routes]]\nto = ['board']\n"
        (settings.home / "notify.toml").write_text(written)
        with session(context.database_url) as opened:
            number = open_regression.regress(opened)
            run_id = opened.scalars(select(Run.id)).one()
            jobs.add(opened, key="judge 1", kind="judge", queue="judge", subject="1", payload={}, run_id=run_id)
            queued = jobs.list_unsent(opened, 0)
        dispatch.send(dispatch.sender(context.broker_url), context.database_url, queued)
        log = settings.home / "tell@test.log"
        wait_for(lambda: board.taken, log)
        assert f"tilewatch regressions acknowledge {number}" in board.taken[0].json["body"]
        dispatch.sender(context.broker_url).send_task("worker.watch", queue="tell")
        wait_for(lambda: "updated alarms" in log.read_text(), log)
        assert jobs_in(context, "queued") == 0
        dispatch.sender(context.broker_url).send_task("worker.nightly", queue="judge")
        wait_for(lambda: jobs_in(context, "queued"), settings.home / "judge@test.log")


def test_a_worker_for_a_gpu_that_is_not_there_says_so_and_ends(settings: Settings) -> None:
    with celery_worker(settings, queues="gpu.b300", name="gpu0@test") as process:
        assert process.wait(PATIENCE_S) != 0
    assert "needs exactly one such GPU" in (settings.home / "gpu0@test.log").read_text()
