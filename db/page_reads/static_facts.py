"""Reads the static facts of cubins, such as registers and spills, over the commits and between two sweeps."""

import datetime as dt
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import ColumnElement, case, func, or_, select, true
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session, aliased

from tilewatch.db import commit_order, trial_facts
from tilewatch.db.models import Commit, Compilation, Config, GpuModel, Sweep, Trial
from tilewatch.db.query_parts import is_of_series, is_swept, read_rows, series_keys
from tilewatch.db.row_columns import SeriesRow


@dataclass(frozen=True)
class SpaceRow(SeriesRow):
    """A series with a sweep, and the architecture of its GPU model."""

    arch: str


@dataclass(frozen=True)
class StaticRow:
    """Counts of one sweep's configs, such as how many spill. db/trial_facts.py explains the counts."""

    sweep_id: int
    sha: str
    subject: str
    committed_at: dt.datetime
    position: int
    left_branch_at: dt.datetime | None
    compiler: str
    settled: int
    compiled: int
    timeouts: int
    errors: int
    spilling: int
    tma: int
    tensor_core: int
    median_registers: float | None
    compile_s: float


@dataclass(frozen=True)
class CubinChangeRow:
    """One config whose static facts differ between two sweeps."""

    params: dict[str, Any]
    status_before: str
    status_after: str
    failure: str | None
    registers_before: int | None
    registers_after: int | None
    stack_before: int | None
    stack_after: int | None
    tma_before: int | None
    tma_after: int | None
    tensor_core_before: int | None
    tensor_core_after: int | None
    code_bytes_before: int | None
    code_bytes_after: int | None


@dataclass(frozen=True)
class SpillsRow:
    """The spilling configs of a kernel's newest compiled sweep on a problem."""

    kernel: str
    problem: str
    sha: str
    subject: str
    compiled: int
    spilling: int
    most_stack_bytes: int  # of one thread


def list_spills(session: Session, repository: str, gpu_model: str) -> list[SpillsRow]:
    """Lists the spills of each kernel and problem, the largest share of spilling configs first."""
    keys = series_keys()
    compiled = (
        select(Sweep.id)
        .where(*is_of_series(keys), Sweep.commit_id == Commit.id, _is_compiled())
        .order_by(Sweep.id.desc())
        .limit(1)
        .correlate(keys, Commit)
        .lateral()
    )
    # The newest commits are read first, mostly only one, because a series has years of sweeps.
    newest = (
        select(compiled.c.id, Commit.sha, Commit.subject)
        .join(compiled, true())
        .where(Commit.repository == keys.c.repository)
        .order_by(*commit_order.newest_first(), compiled.c.id.desc())
        .limit(1)
        .correlate(keys)
        .lateral()
    )
    query = (
        select(keys.c.kernel, keys.c.problem, newest.c.sha, newest.c.subject, trial_facts.of_sweep().label("facts"))
        .select_from(keys)
        .join(newest, true())
        .join(Sweep, Sweep.id == newest.c.id)
        .where(keys.c.repository == repository, keys.c.gpu_model == gpu_model)
    )
    names = ("compiled", "spilling", "most_stack_bytes")
    rows = [
        SpillsRow(*of_sweep, **{name: facts[name] for name in names}) for *of_sweep, facts in session.execute(query)
    ]
    return sorted(rows, key=lambda row: (-row.spilling / max(row.compiled, 1), row.kernel, row.problem))


def _is_compiled() -> ColumnElement[bool]:
    """Returns the condition that the enclosing query's sweep has a compilation, even a failed one."""
    has_cubin = select(Trial.config_id).where(Trial.sweep_id == Sweep.id, Trial.compilation_id.is_not(None)).exists()
    return case((Sweep.trial_facts.is_(None), has_cubin), else_=Sweep.trial_facts["settled"].as_integer() > 0)


def list_spaces(session: Session) -> list[SpaceRow]:
    """Lists the series that have a sweep, sorted by repository and architecture."""
    keys = series_keys()
    query = (
        select(*keys.c, GpuModel.name.label("gpu_name"), GpuModel.arch)
        .join(GpuModel, GpuModel.slug == keys.c.gpu_model)
        .where(is_swept(keys.c.kernel))
        .order_by(keys.c.repository, GpuModel.arch, keys.c.gpu_model, keys.c.kernel, keys.c.problem)
    )
    return read_rows(session, query, SpaceRow)


def list_static_facts(
    session: Session, repository: str, kernel: str, problem: str, gpu_model: str, commits: int = 90
) -> list[StaticRow]:
    """Lists counts of configs, such as how many spill, at each recent commit, the oldest commit first."""
    names = [each.name for each in fields(StaticRow)]
    newest = (
        select(Sweep.id.label("sweep_id"), Commit.id, *(getattr(Commit, name) for name in names[1:6]))
        .join(Commit, Commit.id == Sweep.commit_id)
        .where(*is_of_series({"repository": repository, "kernel": kernel, "problem": problem, "gpu_model": gpu_model}))
        .where(_is_compiled())
        .ext(distinct_on(Commit.left_branch_at.is_(None), *commit_order.latest_columns()))
        .order_by(*commit_order.newest_first(), Sweep.id.desc())
        .limit(commits)
        .subquery()
    )
    query = (
        select(*(newest.c[name] for name in names[:6]), trial_facts.of_sweep())
        .join(Sweep, Sweep.id == newest.c.sweep_id)
        .order_by(*commit_order.oldest_first(newest.c))
    )
    return [
        StaticRow(*of_sweep, **{name: facts[name] for name in names[6:]}) for *of_sweep, facts in session.execute(query)
    ]


def list_cubin_changes(session: Session, before: int, after: int) -> list[CubinChangeRow]:
    """Lists the configs whose static facts differ between two sweeps. Configs that stopped compiling come first."""
    trial_before, trial_after = aliased(Trial), aliased(Trial)
    old, new = aliased(Compilation), aliased(Compilation)
    columns = {"status": "status", "registers": "registers", "stack": "stack_bytes"}
    columns |= {"tma": "tma_loads", "tensor_core": "tensor_core_mmas"}
    query = (
        select(
            Config.params,
            new.failure,
            *(
                getattr(side, column).label(f"{name}_{when}")
                for name, column in (*columns.items(), ("code_bytes", "code_bytes"))
                for side, when in ((old, "before"), (new, "after"))
            ),
        )
        .select_from(trial_before)
        .join(trial_after, trial_after.config_id == trial_before.config_id)
        .join(old, old.id == trial_before.compilation_id)
        .join(new, new.id == trial_after.compilation_id)
        .join(Config, Config.id == trial_before.config_id)
        .where(
            trial_before.sweep_id == before,
            trial_after.sweep_id == after,
            old.id != new.id,
            or_(*[getattr(old, each).is_distinct_from(getattr(new, each)) for each in columns.values()]),
        )
        .order_by(
            case(((old.status == "ok") & (new.status != "ok"), 0), else_=1),
            (func.coalesce(new.stack_bytes, 0) - func.coalesce(old.stack_bytes, 0)).desc(),
            Config.id,
        )
    )
    return read_rows(session, query, CubinChangeRow)
