"""Host code that needs a package is left to a worker of the queue `record`, if there is one."""

import pytest
from sqlalchemy import text, update
from sqlalchemy.orm import Session

from tilewatch.db.models import Worker
from tilewatch.kernels.library_errors import PackageMissing
from tilewatch.worker.queue.dispatch import TRACE_QUEUE
from tilewatch.worker.queue.tracers import ADVICE, require_tracer


@pytest.mark.parametrize(
    ("queues", "silent_s", "is_taken"),
    [((TRACE_QUEUE, "compile"), 0, True), (("compile",), 0, False), ((TRACE_QUEUE,), 600, False), (None, 0, False)],
)
def test_a_missing_package_is_an_error_with_advice_unless_a_live_worker_records(
    db_session: Session, queues: tuple[str, ...] | None, silent_s: int, is_taken: bool
) -> None:
    if queues is not None:
        db_session.add(Worker(name="w", kind="compile", host="n", toolchain={}, queues=list(queues)))
        db_session.flush()
        db_session.execute(update(Worker).values(seen_at=text(f"now() - interval '{silent_s} s'")))
    if is_taken:
        require_tracer(db_session, PackageMissing("torch is not installed"))
        return
    with pytest.raises(PackageMissing) as missing:
        require_tracer(db_session, PackageMissing("torch is not installed"))
    assert str(missing.value) == f"torch is not installed; {ADVICE}"
