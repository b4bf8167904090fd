"""What the questions share: how rows become dataclasses, and the road from a measurement to its commit."""

from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Label, Select, Subquery, func
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


def or_zero(table: Subquery, *names: str) -> list[Label[Any]]:
    return [func.coalesce(table.c[name], 0).label(name) for name in names]


def read(session: Session, query: Question, row: Callable[..., Made]) -> list[Made]:
    return [row(**found._asdict()) for found in session.execute(query)]
