"""Reads the repositories and series in the database, and all points of one series."""

import datetime as dt
import difflib
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import ARRAY, BigInteger, Text, bindparam, cast, exists, func, select, true
from sqlalchemy.orm import Session

from tilewatch.db import commit_order
from tilewatch.db.models import (
    Commit,
    Compilation,
    Config,
    GpuModel,
    Measurement,
    Quarantine,
    Recording,
    Repository,
    Run,
    Submission,
    Sweep,
    Trial,
    Verdict,
)
from tilewatch.db.query_parts import (
    MACHINE,
    SERIES,
    SHORT_DETAIL,
    Query,
    is_of_series,
    make_row,
    read_fields,
    read_rows,
    select_named,
    series_keys,
)
from tilewatch.db.repository_names import BRANCH_START, name_of_branch
from tilewatch.db.row_columns import CodeColumns, JudgedRunColumns, MeasurementColumns, SeriesRow
from tilewatch.errors import ExpectedError


@dataclass(frozen=True)
class PointRow(JudgedRunColumns, MeasurementColumns, CodeColumns):
    """A point of a trend: one implementation in one run."""

    left_branch_at: dt.datetime | None  # None while the commit is on the branch
    toolchain_sha256: str
    samples: int
    work: list[Any] | None
    operator: str
    quarantined: bool


class UnknownName(ExpectedError):
    """Raised for a name that no sweep has. The message suggests the nearest known name."""


def require_known(session: Session, **given: str | None) -> None:
    """Raises UnknownName if no sweep has all of these names; None stands for all names."""
    asked = {what: name for what, name in given.items() if name is not None}
    query, of = select(Sweep.id), ""
    for what, name in asked.items():
        column = getattr(Sweep, what)
        if session.scalar(query.where(column == name).limit(1)) is not None:
            query, of = query.where(column == name), f"{of or ' of'} {name}"
            continue
        known = session.scalars(query.with_only_columns(column).distinct().order_by(column)).all()
        nearest = difflib.get_close_matches(name, known, 1, cutoff=0.0)
        hint = f"; the nearest is '{nearest[0]}'" if nearest else "; there is no sweep yet"
        raise UnknownName(f"no sweep{of} has the {what.replace('_', ' ').replace('gpu', 'GPU')} '{name}'{hint}")


def list_repositories(session: Session) -> list[str]:
    """Lists the repositories that have a submission, the watched repositories first."""
    own = func.bool_or(Submission.reason != "recorded")
    is_branch = Commit.repository.contains(BRANCH_START, autoescape=True)
    removed = exists().where(Repository.name == Commit.repository, Repository.removed_at.is_not(None))
    query = (
        select(Commit.repository)
        .join(Submission, Submission.commit_id == Commit.id)
        .group_by(Commit.repository)
        .order_by(own.desc(), removed, is_branch, func.min(Submission.id))
    )
    return list(session.scalars(query))


def list_watched(session: Session) -> list[str]:
    """Lists the names of the watched repositories, the oldest first."""
    query = select(Repository.name).where(Repository.removed_at.is_(None)).order_by(Repository.added_at)
    return list(session.scalars(query))


def list_series(session: Session) -> list[SeriesRow]:
    """Lists every series that has at least one run, sorted by name."""
    keys = series_keys()
    has_run = select(Run.id).join(Sweep, Sweep.id == Run.sweep_id).where(*is_of_series(keys)).limit(1).lateral()
    query = (
        select(*keys.c, GpuModel.name.label("gpu_name"))
        .select_from(keys)
        .join(has_run, true())
        .join(GpuModel, GpuModel.slug == keys.c.gpu_model)
        .order_by(*keys.c)
    )
    return read_rows(session, query, SeriesRow)


def list_branches(
    session: Session, repository: str, kernel: str, problem: str, gpu_model: str, limit: int
) -> list[str]:
    """Lists a repository's branches that have runs of a series, the newest run's branch first."""
    start = name_of_branch(repository, "").removesuffix(")")
    query = (
        select(Sweep.repository)
        .join(Run, Run.sweep_id == Sweep.id)
        .where(
            Sweep.repository.startswith(start, autoescape=True),
            Sweep.kernel == kernel,
            Sweep.problem == problem,
            Sweep.gpu_model == gpu_model,
        )
        .group_by(Sweep.repository)
        .order_by(func.max(Run.id).desc())
        .limit(limit)
    )
    return list(session.scalars(query))


def list_points(
    session: Session, repository: str, kernel: str, problem: str, gpu_model: str, *, static_facts: bool = True
) -> list[PointRow]:
    """Lists every measurement of a series and its baselines, in the order of the commits."""
    about = {"repository": repository, "kernel": kernel, "problem": problem, "gpu_model": gpu_model}
    # Two queries, because one joined query with 41 columns took 31 us of CPU time per point. A year of nights has 1,000
    # points.
    runs = read_fields(session, _select_runs(), ("toolchain", "work", "rate"), about)
    sweep_of = {run["run_id"]: run.pop("sweep_id") for run in runs}
    nothing = dict.fromkeys(PointRow.__dataclass_fields__)
    known = {run["run_id"]: {**nothing, **run} for run in runs}
    # Static facts are slow, because the winners' trials lie far apart among millions.
    query = _select_measurements(static_facts=static_facts)
    ids = {"run_ids": list(sweep_of), "sweep_ids": list(sweep_of.values())}
    measured = read_fields(session, query, ("params", "detail"), ids)
    return [make_row(PointRow, {**known[each["run_id"]], **each}) for each in measured]


_STATIC_FACTS = tuple(CodeColumns.__dataclass_fields__)
_OF_MEASUREMENTS = (*MeasurementColumns.__dataclass_fields__, "samples")
_OF_RUNS = [name for name in PointRow.__dataclass_fields__ if name not in (*_STATIC_FACTS, *_OF_MEASUREMENTS)]


@cache
def _select_runs() -> Query:
    """Returns the query for the runs of a series. Its bound parameters have the names in SERIES."""
    ill = (
        select(Quarantine.id)
        .where(
            Quarantine.gpu_uuid == Run.gpu_uuid,
            Quarantine.began_at <= Run.finished_at,
            func.coalesce(Quarantine.ended_at, Run.finished_at) >= Run.started_at,
        )
        .exists()
    )
    return (
        select_named(
            (*_OF_RUNS, "sweep_id"),
            [Run, Commit, Sweep, GpuModel, Verdict],
            run_id=Run.id,
            machine=MACHINE,
            measured_at=Run.finished_at,
            device_name=Run.gpu_name,
            toolchain=cast(Run.toolchain, Text),
            work=Sweep.space["work"].astext,
            rate=Sweep.space["rate"].astext,
            operator=func.concat(Sweep.kernel, " ", Sweep.problem),
            quarantined=ill,
        )
        .select_from(Run)
        .join(Sweep, Sweep.id == Run.sweep_id)
        .join(Commit, Commit.id == Sweep.commit_id)
        .join(GpuModel, GpuModel.slug == Sweep.gpu_model)
        .outerjoin(Recording, Recording.id == Run.recording_id)
        .outerjoin(Verdict, Verdict.run_id == Run.id)
        .where(*is_of_series({name: bindparam(name, type_=Text) for name in SERIES}))
        .order_by(*commit_order.oldest_first(), Run.finished_at, Run.id)
    )


@cache
def _select_measurements(*, static_facts: bool) -> Query:
    """Returns the query for the measurements of runs, in the order of the runs."""
    ids = (bindparam(name, type_=ARRAY(BigInteger)) for name in ("run_ids", "sweep_ids"))
    runs = func.unnest(*ids).table_valued("run_id", "sweep_id", with_ordinality="place").render_derived("listed")
    query = (
        select_named(
            ("run_id", *_OF_MEASUREMENTS),
            [Measurement],
            params=cast(Config.params, Text),
            samples=func.cardinality(Measurement.samples_us),
            detail=cast(SHORT_DETAIL, Text),
        )
        .select_from(runs)
        .join(Measurement, Measurement.run_id == runs.c.run_id)
        .outerjoin(Config, Config.id == Measurement.config_id)
        # Baselines that could not run have no samples.
        .where(func.cardinality(Measurement.samples_us) > 0)
        .order_by(runs.c.place, Measurement.id)
    )
    if not static_facts:
        return query
    return (
        query.add_columns(*(getattr(Compilation, name) for name in _STATIC_FACTS))
        .outerjoin(Trial, (Trial.sweep_id == runs.c.sweep_id) & (Trial.config_id == Measurement.config_id))
        .outerjoin(Compilation, Compilation.id == Trial.compilation_id)
    )
