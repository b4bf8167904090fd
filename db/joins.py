"""Shared parts of queries: rows as dataclasses, the joins from a measurement to its commit, conditions of a series."""

import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from sqlalchemy import (
    CTE,
    BindParameter,
    ColumnElement,
    Label,
    Select,
    Subquery,
    and_,
    exists,
    func,
    select,
    true,
    tuple_,
)
from sqlalchemy.orm import InstrumentedAttribute, Session

from tilewatch.db.models import Commit, Measurement, Recording, RegressionSeries, Run, Sweep, Verdict

Made = TypeVar("Made")
SERIES = ("repository", "kernel", "problem", "gpu_model")
"""The columns that name a series: two repositories may have a kernel of one name."""

WORKER_ALIVE_S = 60
"""A worker writes its heartbeat every few seconds; one that was silent for longer than this counts as gone."""

Query = Select[*tuple[Any, ...]]


def measured_points(query: Query) -> Query:
    """Joins a measurement to its run, sweep and commit, and to its recording and verdict if it has them.

    A baseline that could not run has no samples, and is left out.
    """
    return (
        query.select_from(Measurement)
        .join(Run, Run.id == Measurement.run_id)
        .join(Sweep, Sweep.id == Run.sweep_id)
        .join(Commit, Commit.id == Sweep.commit_id)
        .outerjoin(Recording, Recording.id == Run.recording_id)
        .outerjoin(Verdict, Verdict.run_id == Run.id)
        .where(func.cardinality(Measurement.samples_us) > 0)
    )


def judged_runs(query: Query) -> Query:
    """Joins a verdict to its run, sweep and commit."""
    return (
        query.select_from(Verdict)
        .join(Run, Run.id == Verdict.run_id)
        .join(Sweep, Sweep.id == Run.sweep_id)
        .join(Commit, Commit.id == Sweep.commit_id)
    )


def measured_runs(query: Query) -> Query:
    """Joins a run to its sweep and commit, and to the measurement of its kernel."""
    return (
        query.select_from(Run)
        .join(Sweep, Sweep.id == Run.sweep_id)
        .join(Commit, Commit.id == Sweep.commit_id)
        .join(Measurement, and_(Measurement.run_id == Run.id, Measurement.role == "kernel"))
    )


def series_keys() -> CTE:
    """Selects the key of each series once, by one index probe per series, however many sweeps it has.

    Postgres answers `select distinct` by reading every sweep (a year of a fleet: 175,000), so this steps through the
    index by itself, with a recursive query.
    """
    columns = [getattr(Sweep, name) for name in SERIES]
    keys = select(*columns).order_by(*columns).limit(1).cte("series_keys", recursive=True)
    above = select(*columns).where(tuple_(*columns) > tuple_(*keys.c)).order_by(*columns).limit(1).lateral()
    return keys.union_all(select(*above.c).select_from(keys.join(above, true())))


def is_of_series(keys: CTE | Mapping[str, str] | Mapping[str, BindParameter[str]]) -> list[ColumnElement[bool]]:
    """Returns the conditions under which a sweep is of the series with these keys."""
    columns = keys.c if isinstance(keys, CTE) else keys
    return [getattr(Sweep, name) == columns[name] for name in SERIES]


def is_recorded(regression_id: ColumnElement[int] | InstrumentedAttribute[int]) -> ColumnElement[bool]:
    """True for a regression that was confirmed elsewhere and came with a recording."""
    return _has_run_of(regression_id, "recorded")


def is_simulated(regression_id: ColumnElement[int] | InstrumentedAttribute[int]) -> ColumnElement[bool]:
    """True for a regression of simulated runs: no GPU showed it."""
    return _has_run_of(regression_id, "simulated")


def _has_run_of(regression_id: ColumnElement[int] | InstrumentedAttribute[int], origin: str) -> ColumnElement[bool]:
    return (
        exists()
        .where(RegressionSeries.regression_id == regression_id)
        .where(Run.id == RegressionSeries.run_id, Run.origin == origin)
    )


def or_zero(table: Subquery, *names: str) -> list[Label[Any]]:
    """Selects these columns with 0 for null."""
    return [func.coalesce(table.c[name], 0).label(name) for name in names]


def read_rows(
    session: Session,
    query: Query,
    row: Callable[..., Made],
    documents: Sequence[str] = (),
    values: Mapping[str, object] = MappingProxyType({}),
) -> list[Made]:
    """Runs the query and makes one `row`, a dataclass, of each result; the columns have the names of its fields.

    `values` are those of the query's bound parameters, for a query that is made once: SQLAlchemy needs 5 ms to put one
    of 30 columns and ten tables together (2 cores, 2026-11-23). `documents` are columns that the query selects as the
    text of a JSON document. Equal texts are decoded once, and their rows share the object: in a year of nights there
    are a few toolchains and configs.
    """
    found = session.execute(query, values)
    names = list(found.keys())
    fields = list(row.__dataclass_fields__)  # type: ignore[attr-defined]
    places = [names.index(field) for field in fields]
    written = [fields.index(name) for name in documents]
    decoded: dict[str | None, Any] = {None: None}
    made = []
    for columns in found:
        cells = [columns[place] for place in places]
        for place in written:
            text = cells[place]
            if text not in decoded:
                decoded[text] = json.loads(text)
            cells[place] = decoded[text]
        made.append(row(*cells))  # by place: with 40 names a third slower
    return made
