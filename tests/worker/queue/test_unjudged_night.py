"""A night whose last measurement ended without a run is judged all the same."""

import pytest
from sqlalchemy import select, text, update

from tests.db.fixtures.leases import ENDED_LEASE
from tests.worker.fixtures.compiled_sweep import add_gpu_worker
from tests.worker.fixtures.run_result import result
from tests.worker.fixtures.worker_context import Drain
from tilewatch.configs import config_sha256
from tilewatch.db.lifecycle import jobs
from tilewatch.db.lifecycle.jobs import MAX_ATTEMPTS, Priority
from tilewatch.db.models import Job, Verdict
from tilewatch.db.session import session
from tilewatch.db.worker_reads import steps
from tilewatch.worker.context import Context
from tilewatch.worker.queue import follow_up
from tilewatch.worker.queue.reconcile import reconcile
from tilewatch.worker.settings import Settings
from tilewatch.worker.steps import write_run
from tilewatch.worker.submitting.submit import submit_nightly


@pytest.fixture
def left(settings: Settings, context: Context, drain: Drain) -> int:
    """The measure job that is left of a night: the run of the other is on record, and its judge job waited in vain."""
    add_gpu_worker(context)
    submit_nightly(settings, gpus=("h200",))
    with session(context.database_url) as opened:
        opened.execute(update(Job).where(Job.kind == "measure").values(not_before=text("now() + interval '1 day'")))
    drain()
    with session(context.database_url) as opened:
        first, last = opened.scalars(select(Job).where(Job.kind == "measure").order_by(Job.id)).all()
        assert first.sweep_id is not None
        ids = {
            config_sha256(each.params): each.config_id for each in steps.list_compiled_configs(opened, first.sweep_id)
        }
        run_id = write_run.write(opened, first.sweep_id, result(), ids)
        first.state = "done"
        follow_up.judge_run(opened, steps.read_sweep_facts(opened, first.sweep_id), run_id, Priority.NIGHTLY)
        left = last.id
    drain()
    assert list_verdicts(context) == []
    return left


def list_verdicts(context: Context) -> list[str]:
    with session(context.database_url) as opened:
        return list(opened.scalars(select(Verdict.verdict)))


def test_after_the_last_measurement_went_down_with_three_workers(left: int, context: Context, drain: Drain) -> None:
    with session(context.database_url) as opened:
        lost = {"owner": "gone", "attempt": MAX_ATTEMPTS, "lease_until": ENDED_LEASE}
        opened.execute(update(Job).where(Job.id == left).values(state="running", **lost))
    reconcile(context.database_url, context.broker_url)
    drain()
    assert list_verdicts(context) == ["undecided"], "the first run of its series"


def test_after_the_last_measurement_was_cancelled(left: int, context: Context, drain: Drain) -> None:
    with session(context.database_url) as opened:
        jobs.cancel(opened, [left])
    reconcile(context.database_url, context.broker_url)
    drain()
    assert list_verdicts(context) == ["undecided"]


def test_not_while_a_measurement_may_still_come(left: int, context: Context, drain: Drain) -> None:
    reconcile(context.database_url, context.broker_url)
    drain()
    with session(context.database_url) as opened:
        assert opened.get_one(Job, left).state in ("waiting", "queued")
        assert len(opened.scalars(select(Job).where(Job.kind == "judge")).all()) == 1


def test_a_judge_that_fails_is_asked_once_more_and_no_further(left: int, context: Context) -> None:
    with session(context.database_url) as opened:
        jobs.cancel(opened, [left])
    for _ in range(3):
        reconcile(context.database_url, context.broker_url)
        with session(context.database_url) as opened:
            opened.execute(update(Job).where(Job.kind == "judge").values(state="failed", failure="out of memory"))
    with session(context.database_url) as opened:
        assert len(opened.scalars(select(Job).where(Job.kind == "judge")).all()) == 2
