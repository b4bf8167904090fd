"""Workers with an object store: refused at the start without it, waiting while it is away, done when it is back."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from sqlalchemy import select, update

from tests.kernels.fixtures.s3_server import S3Server, s3_server
from tests.worker.fixtures.celery_process import PATIENCE_S, celery_worker, workers
from tilewatch.db.lifecycle import jobs
from tilewatch.db.models import Job, Trial
from tilewatch.db.session import session
from tilewatch.worker import run_job
from tilewatch.worker.context import Context
from tilewatch.worker.process import health_checks
from tilewatch.worker.queue.outage import NotNow
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting.submit import submit_nightly


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with pytest.MonkeyPatch.context() as patch, s3_server(patch) as started:
        yield started


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(("queue", "act"), [("compile", "written"), ("gpu.sim", "read")])
def test_a_worker_without_its_bucket_ends_with_a_sentence(
    settings: Settings, context: Context, queue: str, act: str
) -> None:
    misspelt = settings.model_copy(update={"store_url": "s3://misspelt/cubins"})
    with celery_worker(misspelt, queue, "worker@test") as process:
        assert process.wait(PATIENCE_S) == 1
    words = (settings.home / "worker@test.log").read_text()
    assert f"tilewatch: the cubin store s3://misspelt/cubins cannot be {act}: " in words
    assert "Traceback" not in words
    assert "s3-secret" not in words
    assert workers(context) == []


def test_jobs_wait_while_the_store_is_away_and_none_fails(
    settings: Settings, context: Context, server: S3Server
) -> None:
    here = replace(context, store_url="s3://cubins/worker")
    submit_nightly(settings)
    with session(context.database_url) as opened:
        (plan,) = jobs.list_unsent(opened, 0)
    batches = run_job.run(plan.id, "tester#1", here)
    assert batches
    server.stop()
    for job in batches:
        with pytest.raises(NotNow, match="the cubin store s3://cubins/worker cannot be "):
            run_job.run(job.id, "tester#1", here)
    with session(context.database_url) as opened:
        rows = opened.execute(select(Job.state, Job.attempt, Job.put_offs).where(Job.kind == "compile")).all()
        trouble = opened.scalars(select(Job.trouble).where(Job.state == "queued")).first()
    assert set(rows) == {("done", 1, 0), ("queued", 0, 1)}
    assert trouble is not None
    assert trouble.startswith("the cubin store s3://cubins/worker cannot be ")
    examine = health_checks.list_health_checks("compile", None, here, settings.home, lambda: 1.0, lambda: None)
    (answer,) = examine()
    assert answer.startswith("the cubin store s3://cubins/worker cannot be written: ")

    server.start()
    with session(context.database_url) as opened:
        opened.execute(update(Job).values(not_before=None))
    for job in batches:
        run_job.run(job.id, "tester#1", here)
    with session(context.database_url) as opened:
        assert set(opened.scalars(select(Job.state).where(Job.kind == "compile"))) == {"done"}
        assert "waiting" not in set(opened.scalars(select(Trial.status)))
    assert any(key.startswith("worker/") and key.endswith(".cubin") for key in server.list_keys())
    assert examine() == ()
