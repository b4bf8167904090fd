"""Puts right what a crash or an empty Redis left behind: the job table says what should be queued, and is believed."""

from db import jobs, steps
from db.jobs import Unsent
from db.session import session
from worker import dispatch, replay


def reconcile(database_url: str, broker_url: str) -> list[Unsent]:
    """The jobs to send again."""
    with session(database_url) as opened:
        jobs.requeue_expired(opened)
        jobs.release(opened, steps.ready_to_measure(opened))
        replay.give_up(opened)
        queued = jobs.unsent(opened, dispatch.RESEND_AFTER_S)
    return dispatch.lost(broker_url, queued)
