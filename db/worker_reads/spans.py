"""Reads the runs that measured the spans of an operator. worker/steps/write_spans.py stores them as series."""

from sqlalchemy import and_, exists, select
from sqlalchemy.orm import Session, aliased

from tilewatch.db.models import Measurement, Run, Sweep
from tilewatch.db.worker_reads.judging import Scope
from tilewatch.metrics import SpanMetric, name_series


def list_unstored(session: Session, scope: Scope, metric: SpanMetric) -> list[tuple[Sweep, Run, Measurement]]:
    """Lists the runs of a night whose spans of this metric are not stored as a series yet, the oldest run first. The
    spans are in the measurement's detail "span_us" or "graph_us" (kernels/measuring/careful_timing.py)."""
    stored = aliased(Run)
    query = (
        select(Sweep, Run, Measurement)
        .join(Run, and_(Run.sweep_id == Sweep.id, Run.origin == scope.origin))
        .join(Measurement, and_(Measurement.run_id == Run.id, Measurement.role == "kernel"))
        .where(
            Sweep.submission_id == scope.submission_id,
            Measurement.detail.has_key(f"{metric}_us"),
            ~exists().where(stored.key == Run.key + name_series("", metric)),
        )
        .order_by(Run.id)
    )
    return [(sweep, run, measured) for sweep, run, measured in session.execute(query)]
