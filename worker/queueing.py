"""What a person may do to queued work: cancel it and retry it, one job or a whole submission. Needs no GPU stack.

A cancel reaches a running job's worker with its next renewal; a retry also rings for the jobs, as submitting does.
"""

from dataclasses import dataclass
from typing import Self

from sqlalchemy.orm import Session

from db import jobs, steps
from db.jobs import ENDED_SHORT
from db.session import session
from worker import dispatch


class NoSuchWork(Exception):
    """A job or submission that is not there, or not in a state for what was asked; the message is a sentence."""


@dataclass(frozen=True)
class Chosen:
    """One job, or every job of one submission."""

    job_id: int | None
    submission_id: int | None

    @classmethod
    def of(cls, job_id: int | None, submission_id: int | None) -> Self:
        if (job_id is None) == (submission_id is None):
            raise NoSuchWork("name either one job or one --submission; `tilewatch status` shows their numbers")
        return cls(job_id, submission_id)


def cancel(database_url: str, chosen: Chosen) -> str:
    with session(database_url) as opened:
        wanted = (
            _jobs(opened, chosen) if chosen.submission_id is None else steps.open_jobs(opened, chosen.submission_id)
        )
        ended = jobs.cancel(opened, wanted)
        if not ended:
            raise NoSuchWork(_nothing(opened, chosen, "has ended", "nothing left to cancel"))
    return f"cancelled {_counted(ended)}"


def retry(database_url: str, broker_url: str, chosen: Chosen) -> str:
    with session(database_url) as opened:
        wanted = (
            _jobs(opened, chosen) if chosen.submission_id is None else steps.ended_short(opened, chosen.submission_id)
        )
        again = jobs.retry(opened, wanted)
        if not again:
            states = ", ".join(ENDED_SHORT)
            raise NoSuchWork(_nothing(opened, chosen, f"is not one of {states}", "no job that ended short"))
        jobs.release(opened, steps.ready_to_measure(opened, chosen.submission_id))
        queued = jobs.unsent(opened, dispatch.RESEND_AFTER_S)
    dispatch.send(dispatch.sender(broker_url), database_url, queued)
    return f"queued {_counted(again)} again"


def _jobs(opened: Session, chosen: Chosen) -> list[int]:
    assert chosen.job_id is not None
    if steps.job_state(opened, chosen.job_id) is None:
        raise NoSuchWork(f"there is no job {chosen.job_id}; `tilewatch status` shows the numbers of jobs")
    return [chosen.job_id]


def _nothing(opened: Session, chosen: Chosen, wrong: str, none_left: str) -> str:
    if chosen.job_id is not None:
        return f"job {chosen.job_id} {wrong}: it is {steps.job_state(opened, chosen.job_id)}"
    assert chosen.submission_id is not None
    if not steps.is_submission(opened, chosen.submission_id):
        return f"there is no submission {chosen.submission_id}; `tilewatch status` shows their numbers"
    return f"submission {chosen.submission_id} has {none_left}"


def _counted(job_ids: list[int]) -> str:
    return f"job {job_ids[0]}" if len(job_ids) == 1 else f"{len(job_ids)} jobs"
