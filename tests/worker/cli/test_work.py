"""A person takes queued work back, or has it done again."""

import pytest
from sqlalchemy import select

from tests.worker.fixtures.worker_context import Drain
from tests.worker.steps.test_compile import gpu_worker_is_here
from tilewatch.db.lifecycle import jobs
from tilewatch.db.lifecycle.actions import Chosen, NoSuchWork
from tilewatch.db.models import Action, Job
from tilewatch.db.session import session
from tilewatch.worker import run_job
from tilewatch.worker.cli import queueing
from tilewatch.worker.context import Context
from tilewatch.worker.settings import Settings
from tilewatch.worker.steps.submit import submit_nightly

WHO = "ada"


def states(context: Context) -> list[str]:
    with session(context.database_url) as opened:
        return sorted(opened.scalars(select(Job.state)))


def test_a_submission_is_cancelled_and_taken_up_again(settings: Settings, context: Context, drain: Drain) -> None:
    gpu_worker_is_here(context)
    (submission_id,) = submit_nightly(settings, gpus=("h200",)).submission_ids
    assert states(context) == ["queued", "waiting", "waiting"]
    chosen = Chosen.of(None, submission_id)
    assert queueing.cancel(context.database_url, chosen, WHO) == "cancelled 3 jobs"
    assert states(context) == ["cancelled"] * 3
    assert drain() == 0
    assert queueing.retry(context.database_url, context.broker_url, chosen, WHO) == "queued 3 jobs again"
    assert states(context) == ["queued", "waiting", "waiting"]
    with session(context.database_url) as opened:
        told = [(row.who, row.action, row.wanted, row.said) for row in opened.scalars(select(Action).order_by("id"))]
    assert told == [
        (WHO, "cancel", {"submission": submission_id}, "cancelled 3 jobs"),
        (WHO, "retry", {"submission": submission_id}, "queued 3 jobs again"),
    ]


def test_a_failed_job_is_retried_by_its_number(context: Context) -> None:
    job_id = judge_job(context)
    run_job.run(job_id, "tester#1", context)
    assert states(context) == ["failed"]
    said = queueing.retry(context.database_url, context.broker_url, Chosen.of(job_id, None), WHO)
    assert said == f"queued job {job_id} again"
    assert states(context) == ["queued"]


def test_what_cannot_be_cancelled_or_retried_is_said(context: Context) -> None:
    job_id = judge_job(context)
    both = context.database_url, context.broker_url
    with pytest.raises(NoSuchWork, match=f"job {job_id} is not one of failed, poison, cancelled: it is queued"):
        queueing.retry(*both, Chosen.of(job_id, None), WHO)
    with pytest.raises(NoSuchWork, match="there is no job 4711"):
        queueing.cancel(context.database_url, Chosen.of(4711, None), WHO)
    with pytest.raises(NoSuchWork, match="there is no submission 4711"):
        queueing.cancel(context.database_url, Chosen.of(None, 4711), WHO)
    queueing.cancel(context.database_url, Chosen.of(job_id, None), WHO)
    with pytest.raises(NoSuchWork, match=f"job {job_id} has ended: it is cancelled"):
        queueing.cancel(context.database_url, Chosen.of(job_id, None), WHO)


@pytest.mark.parametrize("named", [(None, None), (1, 2)])
def test_one_job_or_one_submission_must_be_named(named: tuple[int | None, int | None]) -> None:
    with pytest.raises(NoSuchWork, match="name either one job or one --submission"):
        Chosen.of(*named)


def judge_job(context: Context) -> int:
    """One that fails when it is done: it names no run."""
    with session(context.database_url) as opened:
        job_id, _ = jobs.add(opened, key="k", kind="judge", queue="judge", subject="s", payload={})
    return job_id
