"""Acting on queued work from the command line: the action of db/lifecycle/actions.py, and the bell rung at once.

Needs no GPU stack. A cancel reaches a running job's worker with its next renewal.
"""

from tilewatch.db.lifecycle import actions, jobs
from tilewatch.db.lifecycle.actions import Chosen
from tilewatch.db.session import session
from tilewatch.worker.queue import dispatch


def cancel(database_url: str, chosen: Chosen, who: str) -> str:
    with session(database_url) as opened:
        return actions.cancel(opened, chosen, who)


def retry(database_url: str, broker_url: str, chosen: Chosen, who: str) -> str:
    with session(database_url) as opened:
        said = actions.retry(opened, chosen, who)
        queued = jobs.unsent(opened, dispatch.RESEND_AFTER_S)
    dispatch.send(dispatch.sender(broker_url), database_url, queued)
    return said
