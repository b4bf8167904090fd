"""Reads the runs that measured the spans of an operator's launches. worker/judging/spans.py stores these as series."""

from sqlalchemy import and_, exists, select
from sqlalchemy.orm import Session, aliased

from tilewatch.db.models import Measurement, Run, Sweep
from tilewatch.db.worker_reads.judging import Scope
from tilewatch.metrics import SPAN_SUFFIX

SPAN_US = "span_us"
"""The detail of a measurement that has the span of each of its samples (kernels/measuring/careful_timing.py)."""


def list_unstored(session: Session, scope: Scope) -> list[tuple[Sweep, Run, Measurement]]:
    """Lists the runs of a night whose spans are not stored as a series yet, in the order in which they were written."""
    stored = aliased(Run)
    query = (
        select(Sweep, Run, Measurement)
        .join(Run, and_(Run.sweep_id == Sweep.id, Run.origin == scope.origin))
        .join(Measurement, and_(Measurement.run_id == Run.id, Measurement.role == "kernel"))
        .where(
            Sweep.submission_id == scope.submission_id,
            Measurement.detail.has_key(SPAN_US),
            ~exists().where(stored.key == Run.key + SPAN_SUFFIX),
        )
        .order_by(Run.id)
    )
    return [(sweep, run, measured) for sweep, run, measured in session.execute(query)]
