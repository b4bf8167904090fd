"""What the questions share: how rows become dataclasses, and the road from a measurement to its commit."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from sqlalchemy import CTE, ColumnElement, Label, Select, Subquery, exists, func, select, true, tuple_
from sqlalchemy.orm import InstrumentedAttribute, Session

from tilewatch.db.models import Commit, Measurement, Recording, RegressionSeries, Run, Sweep, Verdict

Made = TypeVar("Made")
SERIES = ("repository", "kernel", "problem", "gpu_model")
"""What names a series: two repositories may have a kernel of one name."""

WORKER_ALIVE_S = 60
"""A worker says it is here every few seconds; one that was silent this long is not counted on."""

Query = Select[*tuple[Any, ...]]


def measured_points(query: Query) -> Query:
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
    """What names each series of all sweeps, each once: one index probe per series, however many sweeps it has.

    Postgres answers `select distinct` by reading every sweep (a year of a fleet: 175,000), so this steps by itself.
    """
    columns = [getattr(Sweep, name) for name in SERIES]
    found = select(*columns).order_by(*columns).limit(1).cte("series_keys", recursive=True)
    above = select(*columns).where(tuple_(*columns) > tuple_(*found.c)).order_by(*columns).limit(1).lateral()
    return found.union_all(select(*above.c).select_from(found.join(above, true())))


def is_of_series(keys: CTE | Mapping[str, str]) -> list[ColumnElement[bool]]:
    """That a sweep is of the series that these name."""
    columns = keys.c if isinstance(keys, CTE) else keys
    return [getattr(Sweep, name) == columns[name] for name in SERIES]


def is_recorded(regression_id: ColumnElement[int] | InstrumentedAttribute[int]) -> ColumnElement[bool]:
    """Whether a regression was confirmed elsewhere and is known here from a file."""
    return (
        exists()
        .where(RegressionSeries.regression_id == regression_id)
        .where(Run.id == RegressionSeries.run_id, Run.origin == "recorded")
    )


def or_zero(table: Subquery, *names: str) -> list[Label[Any]]:
    return [func.coalesce(table.c[name], 0).label(name) for name in names]


def read_rows(session: Session, query: Query, row: Callable[..., Made]) -> list[Made]:
    return [row(**found._asdict()) for found in session.execute(query)]
