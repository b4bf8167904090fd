"""What nights take of the GPUs, by repository and kernel."""

import datetime as dt

import pytest
from sqlalchemy import delete, select, update

from tests.worker.fixtures import tiny_repository
from tests.worker.fixtures.worker_context import Drain
from tilewatch.db.models import Measurement, Run, Submission, Sweep
from tilewatch.db.page_reads.gpu_health import list_gpu_times
from tilewatch.db.session import session
from tilewatch.worker.context import Context
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting.submit import submit_nightly, submit_sweep

NOON = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)
WEEK = (NOON - dt.timedelta(days=1), NOON + dt.timedelta(days=1))


def test_the_gpu_time_of_nights_is_without_waiting_for_the_gpu(
    settings: Settings, context: Context, drain: Drain
) -> None:
    for day in (19, 20):
        submit_nightly(settings, gpus=("sim",), night=dt.date(2026, 11, day))
    submit_sweep(settings, tiny_repository.KERNEL, "1024", gpus=("sim",))
    drain()
    with session(context.database_url) as opened:
        nightly = select(Run.id).join(Sweep).join(Submission).where(Submission.reason == "nightly")
        run_id = opened.scalars(nightly).first()
        opened.execute(update(Run).values(started_at=NOON, finished_at=NOON + dt.timedelta(seconds=10)))
        detail = {"seconds": {"waiting": 4.0, "sweep": 3.0}}
        one = (Measurement.run_id == run_id, Measurement.role == "kernel")
        opened.execute(update(Measurement).where(*one).values(detail=detail))
        (row,) = list_gpu_times(opened, *WEEK)
        assert list_gpu_times(opened, WEEK[0], NOON) == []
        opened.execute(delete(Measurement).where(Measurement.run_id == run_id))
        (wrong,) = list_gpu_times(opened, *WEEK)
    assert (wrong.runs, wrong.gpu_s) == (4, pytest.approx(40.0)), "a run without a right answer takes its time too"
    assert (row.kernel, row.nights, row.series, row.runs) == (tiny_repository.KERNEL, 2, 2, 4)
    assert row.gpu_s == pytest.approx(36.0), "10 s of each run of a nightly, of which one waited for 4 s"
