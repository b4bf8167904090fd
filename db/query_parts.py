"""Parts that queries share, such as joins, conditions for a series, and results as dataclasses."""

import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from sqlalchemy import (
    CTE,
    BindParameter,
    ColumnElement,
    FromClause,
    ScalarSelect,
    Select,
    and_,
    exists,
    false,
    func,
    select,
    true,
    tuple_,
)
from sqlalchemy.orm import InstrumentedAttribute, Session

from tilewatch.db.models import (
    TOTAL,
    Commit,
    Measurement,
    Recording,
    Regression,
    RegressionSeries,
    Run,
    Sweep,
    Trial,
    Verdict,
)
from tilewatch.db.repository_names import EXAMPLES
from tilewatch.metrics import SPAN_METRICS, name_series

Made = TypeVar("Made")
SERIES = ("repository", "kernel", "problem", "gpu_model")
"""The columns that identify a series. Two repositories may have a kernel of the same name."""

WORKER_ALIVE_S = 60
"""The seconds without a heartbeat after which a worker counts as gone. Workers write one every few seconds."""

Query = Select[*tuple[Any, ...]]

MACHINE = func.coalesce(Recording.machine, Run.host)
"""The machine of a run: the machine of its recording, else its host. The query must outer-join Recording."""

SHORT_DETAIL = Measurement.detail.op("-")("checklist")
"""The JSON stored with a measurement, without the checklist, whose 3 kB are too much for hundreds of runs."""


def committed_runs(query: Query) -> Query:
    """Adds joins from a run to its sweep and commit."""
    return query.select_from(Run).join(Sweep, Sweep.id == Run.sweep_id).join(Commit, Commit.id == Sweep.commit_id)


def judged_runs(query: Query) -> Query:
    """Adds joins from a run to its sweep and commit, and to its verdict."""
    return committed_runs(query).join(Verdict, Verdict.run_id == Run.id)


def measured_runs(query: Query) -> Query:
    """Adds joins from a run to its sweep and commit, and to the measurement of its kernel."""
    return committed_runs(query).join(Measurement, and_(Measurement.run_id == Run.id, Measurement.role == "kernel"))


def series_keys() -> CTE:
    """Returns a recursive query for the key of each series."""
    columns = [getattr(Sweep, name) for name in SERIES]
    # It needs one index probe per series. `select distinct` would read every sweep (175,000 in a year of a fleet).
    keys = select(*columns).order_by(*columns).limit(1).cte("series_keys", recursive=True)
    above = select(*columns).where(tuple_(*columns) > tuple_(*keys.c)).order_by(*columns).limit(1).lateral()
    return keys.union_all(select(*above.c).select_from(keys.join(above, true())))


def is_of_series(keys: CTE | Mapping[str, str] | Mapping[str, BindParameter[str]]) -> list[ColumnElement[bool]]:
    """Returns the conditions that a sweep belongs to the series with these keys."""
    columns = keys.c if isinstance(keys, CTE) else keys
    return [getattr(Sweep, name) == columns[name] for name in SERIES]


def is_swept(kernel: ColumnElement[str] | InstrumentedAttribute[str]) -> ColumnElement[bool]:
    """Returns the condition that a sweep of this kernel tried configs."""
    # Totals and spans are computed from the runs of other sweeps (totals.py, write_spans.py).
    return and_(kernel != TOTAL, *(~kernel.endswith(name_series("", metric)) for metric in SPAN_METRICS))


DIED = "% process died: %"
"""The SQL pattern of the failure of a config whose tracing or compiling ended with its process."""

NOT_TRIED = Trial.status.in_(("waiting", "compiled"))
"""The condition that no GPU has tried a config: it still waits to be compiled or measured, or a run left it out."""


def is_drawn() -> ColumnElement[bool]:
    """Returns the condition that a trial's config is outside the kernel's short list; false without a short list."""
    listed = Sweep.space["listed"]
    return and_(func.coalesce(listed.is_not(None), false()), ~listed.contains(func.to_jsonb(Trial.config_id)))


def is_part_of_space() -> ColumnElement[bool]:
    """Returns the condition that a run tried only some of the configs of the enclosing query's sweep."""
    # Configs outside the list do not count: a night stops trying them when one hangs.
    left_out = exists().where(Trial.sweep_id == Sweep.id, NOT_TRIED, ~is_drawn()).correlate(Sweep)
    return and_(exists().where(Run.sweep_id == Sweep.id).correlate(Sweep), left_out)


def is_recorded(regression_id: ColumnElement[int] | InstrumentedAttribute[int]) -> ColumnElement[bool]:
    """Returns the condition that a regression was imported with a recording from another database."""
    return _has_run_of(regression_id, "recorded")


def is_counted() -> ColumnElement[bool]:
    """Returns the condition that pages count a regression, because it is neither an example nor imported."""
    return Regression.repository.not_in(EXAMPLES) & ~is_recorded(Regression.id)


def is_simulated(regression_id: ColumnElement[int] | InstrumentedAttribute[int]) -> ColumnElement[bool]:
    """Returns the condition that a regression was found in simulated runs, which use no GPU."""
    return _has_run_of(regression_id, "simulated")


def _has_run_of(regression_id: ColumnElement[int] | InstrumentedAttribute[int], origin: str) -> ColumnElement[bool]:
    return (
        exists()
        .where(RegressionSeries.regression_id == regression_id)
        .where(Run.id == RegressionSeries.run_id, Run.origin == origin)
    )


def find_not_apart(run_id: InstrumentedAttribute[int]) -> ScalarSelect[str | None]:
    """Returns a subquery for the reason why host code ran in a run's timed process; null if it ran elsewhere."""
    stated, found = (func.nullif(Measurement.detail[name].astext, "") for name in ("stated", "not_apart"))
    shared = Measurement.detail["library_runs_apart"].astext == "false"
    query = select(func.coalesce(stated, found)).where(
        Measurement.run_id == run_id, Measurement.role == "kernel", shared
    )
    return query.limit(1).scalar_subquery()


def take_turns(session: Session, work: str) -> None:
    """Waits for other processes that do this work, then excludes them until the transaction ends."""
    session.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(work, 0))))


def select_row(row: type[Any], tables: Sequence[Any], **named: Any) -> Query:
    """Returns the query for the fields of a dataclass. `select_named` explains the arguments."""
    return select_named(row.__dataclass_fields__, tables, **named)


def select_named(names: Iterable[str], tables: Sequence[Any], **named: Any) -> Query:
    """Returns the query for these columns, each from `named` or from the first table that has the column."""

    def find_column(name: str) -> Any:
        if name in named:
            return named[name].label(name)
        return next(getattr(table, name).label(name) for table in columns if hasattr(table, name))

    columns = [table.c if isinstance(table, FromClause) else table for table in tables]
    return select(*map(find_column, names))


def read_rows(
    session: Session,
    query: Query,
    row: type[Made],
    documents: Sequence[str] = (),
    values: Mapping[str, object] = MappingProxyType({}),
) -> list[Made]:
    """Runs a query and returns its results as dataclasses. `read_fields` explains the arguments."""
    found = read_fields(session, query, documents, values)
    if found and found[0].keys() != row.__dataclass_fields__.keys():  # type: ignore[attr-defined]
        raise TypeError(f"the columns {sorted(found[0])} are not the fields of {row.__name__}")
    return [make_row(row, fields) for fields in found]


def find_row(session: Session, query: Query, row: type[Made]) -> Made | None:
    """Returns the first result of a query as a dataclass; None if there is no result."""
    return next(iter(read_rows(session, query, row)), None)


def read_fields(
    session: Session,
    query: Query,
    documents: Sequence[str] = (),
    values: Mapping[str, object] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """Runs a query with bound `values` and returns dicts. Columns in `documents` are decoded from JSON text."""
    # Queries with bound parameters are built once per process. SQLAlchemy needs 5 ms to build one with 30 columns and
    # ten tables (2 cores, 2026-11-23).
    session.flush()
    found = session.connection().execute(query, values)  # session.execute takes a third more time
    names = list(found.keys())
    # fetched all at once: one by one took a quarter more time (3,000 rows, 2026-11-23)
    made = [dict(zip(names, columns, strict=True)) for columns in found.all()]
    for name in documents:
        # Equal texts share one object: a year of nights has few toolchains and configs.
        decoded: dict[str | None, Any] = {None: None}
        for fields in made:
            text = fields[name]
            if text not in decoded:
                decoded[text] = json.loads(text)
            fields[name] = decoded[text]
    return made


def make_row(row: type[Made], fields: dict[str, Any]) -> Made:
    """Returns a dataclass instance that uses `fields` as its attribute dict, without a copy."""
    # The constructor of a frozen dataclass took 8 us for 40 fields (2 cores, 2026-11-23).
    made = row.__new__(row)
    object.__setattr__(made, "__dict__", fields)
    return made
