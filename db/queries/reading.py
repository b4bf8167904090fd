"""What the questions share: how rows become dataclasses, and the road from a measurement to its commit."""

from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import CTE, Label, Select, Subquery, func, select, true, tuple_
from sqlalchemy.orm import Session

from db.models import Commit, Measurement, Recording, Run, Sweep, Verdict

Made = TypeVar("Made")
Question = Select[*tuple[Any, ...]]


def measured_points(query: Question) -> Question:
    """The road from a measurement to its commit. A baseline that could not run has no samples, and is no point."""
    return (
        query.select_from(Measurement)
        .join(Run, Run.id == Measurement.run_id)
        .join(Sweep, Sweep.id == Run.sweep_id)
        .join(Commit, Commit.id == Sweep.commit_id)
        .outerjoin(Recording, Recording.id == Run.recording_id)
        .outerjoin(Verdict, Verdict.run_id == Run.id)
        .where(func.cardinality(Measurement.samples_us) > 0)
    )


def series_keys() -> CTE:
    """Kernel, problem and GPU model of every sweep, each once: one index probe per series, however many sweeps it has.

    Postgres answers `select distinct` by reading every sweep (a year of a fleet: 175,000), so this steps by itself.
    """
    columns = (Sweep.kernel, Sweep.problem, Sweep.gpu_model)
    found = select(*columns).order_by(*columns).limit(1).cte("series_keys", recursive=True)
    above = select(*columns).where(tuple_(*columns) > tuple_(*found.c)).order_by(*columns).limit(1).lateral()
    return found.union_all(select(*above.c).select_from(found.join(above, true())))


def or_zero(table: Subquery, *names: str) -> list[Label[Any]]:
    return [func.coalesce(table.c[name], 0).label(name) for name in names]


def read(session: Session, query: Question, row: Callable[..., Made]) -> list[Made]:
    return [row(**found._asdict()) for found in session.execute(query)]
