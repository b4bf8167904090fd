"""Repairs the queue after a crash, or after Redis lost messages."""

from tilewatch.db.lifecycle import checks, jobs
from tilewatch.db.lifecycle.jobs import UnsentJob
from tilewatch.db.session import session
from tilewatch.db.worker_reads import gpus, steps
from tilewatch.worker.queue import dispatch, follow_up


def reconcile(database_url: str, broker_url: str) -> list[UnsentJob]:
    """Ends expired leases, queues jobs that need not wait any longer, and returns the jobs whose messages were lost."""
    with session(database_url) as opened:
        jobs.requeue_expired(opened)
        jobs.release(opened, steps.list_ready_to_measure(opened))
        jobs.cancel(opened, gpus.list_stranded_jobs(opened))
        checks.end_stranded(opened)
        follow_up.judge_the_rest(opened)
        queued = jobs.list_unsent(opened, dispatch.RESEND_AFTER_S)
    return dispatch.find_lost(broker_url, queued)
