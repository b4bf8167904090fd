"""A person takes queued work back, or has it done again."""

import pytest
from sqlalchemy import select

from tests.worker.cli.conftest import Tilewatch
from tests.worker.fixtures.compiled_sweep import add_gpu_worker
from tests.worker.fixtures.worker_context import Drain
from tilewatch.db.lifecycle import jobs
from tilewatch.db.models import Action, Job
from tilewatch.db.session import session
from tilewatch.worker import run_job
from tilewatch.worker.context import Context
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting.submit import submit_nightly

WHO = "ada"


def states(context: Context) -> list[str]:
    with session(context.database_url) as opened:
        return sorted(opened.scalars(select(Job.state)))


def test_a_submission_is_cancelled_and_taken_up_again(
    settings: Settings, context: Context, drain: Drain, tilewatch: Tilewatch
) -> None:
    add_gpu_worker(context)
    (submission_id,) = submit_nightly(settings, gpus=("h200",)).submission_ids
    assert states(context) == ["queued", "waiting", "waiting"]
    one = ("--submission", str(submission_id), "--who", WHO)
    assert tilewatch("cancel", *one) == "cancelled 3 jobs\n"
    assert states(context) == ["cancelled"] * 3
    assert drain() == 0
    assert tilewatch("retry", *one) == "queued 3 jobs again\n"
    assert states(context) == ["queued", "waiting", "waiting"]
    with session(context.database_url) as opened:
        rows = [(row.who, row.action, row.wanted, row.outcome) for row in opened.scalars(select(Action).order_by("id"))]
    assert rows == [
        (WHO, "cancel", {"submission": submission_id}, "cancelled 3 jobs"),
        (WHO, "retry", {"submission": submission_id}, "queued 3 jobs again"),
    ]


def test_a_failed_job_is_retried_by_its_number(context: Context, tilewatch: Tilewatch) -> None:
    job_id = judge_job(context)
    run_job.run(job_id, "tester#1", context)
    assert states(context) == ["failed"]
    assert tilewatch("retry", str(job_id)) == f"queued job {job_id} again\n"
    assert states(context) == ["queued"]


def test_what_cannot_be_cancelled_or_retried_is_named(context: Context, tilewatch: Tilewatch) -> None:
    job_id = str(judge_job(context))
    for arguments, sentence in (
        (("retry", job_id), f"job {job_id} is not one of failed, poison, cancelled: it is queued"),
        (("cancel", "4711"), "there is no job 4711"),
        (("cancel", "--submission", "4711"), "there is no submission 4711"),
    ):
        assert sentence in tilewatch(*arguments, fails=True)
    tilewatch("cancel", job_id)
    assert f"job {job_id} has ended: it is cancelled" in tilewatch("cancel", job_id, fails=True)


@pytest.mark.parametrize("chosen", [(), ("1", "--submission", "2")])
def test_one_job_or_one_submission_must_be_named(tilewatch: Tilewatch, chosen: tuple[str, ...]) -> None:
    assert "name either one job or one submission" in tilewatch("cancel", *chosen, fails=True)


def judge_job(context: Context) -> int:
    """One that fails when it is done: it names no run."""
    with session(context.database_url) as opened:
        job_id, _ = jobs.add(opened, key="k", kind="judge", queue="judge", subject="s", payload={})
    return job_id
