"""Checks that a worker can run host code that needs extra Python packages."""

from sqlalchemy.orm import Session

from tilewatch.db.worker_reads import steps
from tilewatch.kernels.library_errors import PackageMissing
from tilewatch.worker.queue.dispatch import TRACE_QUEUE

ADVICE = (
    f"no worker takes the queue {TRACE_QUEUE}: install the package on one node and start a worker there "
    f"with -Q {TRACE_QUEUE} (docs/operate/nodes.md)"
)


def require_tracer(session: Session, error: PackageMissing) -> None:
    """Raises PackageMissing, with advice, if no live worker serves the queue `record`."""
    if not steps.is_taken(session, TRACE_QUEUE):
        raise PackageMissing(f"{error}; {ADVICE}")
