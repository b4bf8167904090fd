"""The job that judges a run: queued where a run came on record, was imported, will never come, or was replayed."""

from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import jobs
from tilewatch.db.lifecycle.jobs import Unsent
from tilewatch.worker.queue.dispatch import JUDGE


def add(
    opened: Session,
    run_id: int,
    *,
    submission_id: int | None,
    subject: str,
    priority: int,
    again: str | None = None,
) -> tuple[Unsent, bool]:
    """Its doorbell, and whether it is new: a run is judged once, and once more for each reason to do so `again`."""
    job_id, new = jobs.add(
        opened,
        key=f"judge:{run_id}" if again is None else f"judge:{run_id}:{again}",
        kind="judge",
        queue=JUDGE,
        subject=subject,
        payload={},
        submission_id=submission_id,
        run_id=run_id,
        priority=priority,
    )
    return Unsent(job_id, JUDGE), new
