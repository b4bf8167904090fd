"""Reads which configs outside the kernel's short list a series has tried in one state. A state is the machine code, the
compiler, the driver version and the search space."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import and_, func, or_, select, true
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session, aliased

from tilewatch.db.models import Compilation, Config, Measurement, Run, Sweep, Trial
from tilewatch.db.query_parts import NOT_TRIED, SERIES, Query

REACH = 1.3
"""The largest ratio of a config's time to the winner's at which the config may still win later in the same state."""

CERTIFICATE = Measurement.detail["certificate"]
DRIVER = func.split_part(Run.toolchain["driver"].astext, ".", 1)


@dataclass(frozen=True)
class TriedConfigs:
    """The tried configs outside the short list that have the code, compiler and driver of the newest run."""

    source_sha256: str
    compiler: str
    driver: str  # the major version
    has_changed: bool  # whether an earlier run had other code, another compiler or another driver
    near: dict[str, bool] = field(default_factory=dict)  # whether each came near a winner, oldest trial first
    kept: list[Mapping[str, int]] = field(default_factory=list)  # that won or tied in the newest run


@dataclass(frozen=True)
class TriedState:
    """How many configs outside the short list were tried with a run's code, compiler, driver and search space."""

    certificate: Mapping[str, Any] | None  # of the previous run in this state; None for its first run
    listed: Sequence[int]  # the short list
    rest: int  # configs outside the short list
    tried: int  # of the rest


def list_tried(session: Session, repository: str, gpu_model: str) -> dict[tuple[str, str], TriedConfigs]:
    """Returns the tried configs by kernel and problem. Leaves out kernels without a short list."""
    last = (
        _join_runs(select(Sweep.kernel, Sweep.problem, Run.id.label("run_id")))
        .where(Sweep.repository == repository, Sweep.gpu_model == gpu_model)
        .ext(distinct_on(Sweep.kernel, Sweep.problem))
        .order_by(Sweep.kernel, Sweep.problem, Run.finished_at.desc(), Run.id.desc())
        .subquery()
    )
    oldest = (
        _join_runs(select(Sweep.kernel, Sweep.problem, func.min(Run.id).label("run_id")))
        .where(Sweep.repository == repository, Sweep.gpu_model == gpu_model)
        .group_by(Sweep.kernel, Sweep.problem)
        .subquery()
    )
    compiler = (
        select(func.coalesce(func.max(Compilation.compiler), ""))
        .join(Trial, Trial.compilation_id == Compilation.id)
        .where(Trial.sweep_id == Sweep.id)
        .correlate(Sweep)
        .scalar_subquery()
    )
    newest = (
        _join_runs(
            select(
                last,
                Sweep.source_sha256,
                compiler.label("compiler"),
                DRIVER.label("driver"),
                Sweep.space["listed"].label("listed"),
                func.array_append(Run.tie, Measurement.config_id).label("best"),
                CERTIFICATE["first_run"].as_integer().label("first_run"),
                func.coalesce(CERTIFICATE["first_run"].as_integer() > oldest.c.run_id, true()).label("has_changed"),
            )
        )
        .join(last, last.c.run_id == Run.id)
        .join(oldest, and_(oldest.c.kernel == last.c.kernel, oldest.c.problem == last.c.problem))
        .cte("newest")
    )
    found = {
        (row.kernel, row.problem): TriedConfigs(row.source_sha256, row.compiler, row.driver, row.has_changed)
        for row in session.execute(select(newest))
    }
    is_drawn = ~newest.c.listed.contains(func.to_jsonb(Config.id))
    of_series = and_(Sweep.kernel == newest.c.kernel, Sweep.problem == newest.c.problem)
    tried = (
        _join_runs(select(newest.c.kernel, newest.c.problem, Config.sha256))
        .add_columns(func.bool_or(Trial.median_us <= REACH * Measurement.median_us).label("near"))
        .join(newest, and_(of_series, CERTIFICATE["first_run"].as_integer() == newest.c.first_run))
        .join(Trial, Trial.sweep_id == Sweep.id)
        .join(Config, Config.id == Trial.config_id)
        .where(Sweep.repository == repository, Sweep.gpu_model == gpu_model, Run.id >= newest.c.first_run)
        .where(~NOT_TRIED, is_drawn)
        .group_by(newest.c.kernel, newest.c.problem, Config.id)
        .order_by(func.max(Run.finished_at), Config.sha256)
    )
    for row in session.execute(tried):
        found[row.kernel, row.problem].near[row.sha256] = bool(row.near)
    kept = select(newest.c.kernel, newest.c.problem, Config.params).join(Config, Config.id == func.any(newest.c.best))
    for row in session.execute(kept.where(is_drawn).order_by(Config.id)):
        found[row.kernel, row.problem].kept.append(row.params)
    return found


def find_state(session: Session, sweep_id: int, run_id: int) -> TriedState | None:
    """Counts the configs tried with a run's code, compiler and driver; None if the kernel has no short list."""
    of_run = select(Sweep.space, DRIVER.label("driver")).join(Run, Run.sweep_id == Sweep.id).where(Run.id == run_id)
    space, driver = session.execute(of_run).one()
    if "rest" not in space:
        return None
    this, base, head = aliased(Sweep), aliased(Trial), aliased(Trial)
    base_code, head_code = aliased(Compilation), aliased(Compilation)
    is_same = and_(base_code.code_sha256 == head_code.code_sha256, base_code.compiler == head_code.compiler)
    is_series = and_(*(getattr(this, name) == getattr(Sweep, name) for name in SERIES), this.id == sweep_id)
    has_same_code = (
        select(func.bool_and(is_same))
        .join(base, base_code.id == base.compilation_id)
        .join(head, head.config_id == base.config_id)
        .join(head_code, head_code.id == head.compilation_id)
        .where(base.sweep_id == Sweep.id, head.sweep_id == sweep_id)
        .correlate(Sweep)
        .scalar_subquery()
    )
    has_same_space = and_(
        this.space["axes"] == Sweep.space["axes"],
        func.jsonb_array_length(Sweep.space["listed"]) + Sweep.space["rest"].as_integer()
        == len(space["listed"]) + space["rest"],
    )
    same = (
        _join_runs(select(CERTIFICATE))
        .join(this, is_series)
        .where(CERTIFICATE.has_key("first_run"), driver == DRIVER, has_same_code, has_same_space)
        .order_by(Run.finished_at.desc())
        .limit(1)
    )
    certificate = session.scalar(same)
    first_run = run_id if certificate is None else certificate["first_run"]
    in_state = or_(Run.id == run_id, CERTIFICATE["first_run"].as_integer() == first_run)
    tried = (
        select(func.count(Trial.config_id.distinct()))
        .join(Sweep, Sweep.id == Trial.sweep_id)
        .join(this, is_series)
        .join(Run, Run.sweep_id == Sweep.id)
        .outerjoin(Measurement, and_(Measurement.run_id == Run.id, Measurement.role == "kernel"))
        .where(in_state, ~NOT_TRIED, Trial.config_id.not_in(space["listed"]))
    )
    return TriedState(certificate, space["listed"], space["rest"], session.scalars(tried).one())


def list_full_looks(session: Session, series: Mapping[str, str]) -> list[float]:
    """Lists the share by which the best config beats the short list, for each series with all configs tried."""
    query = (
        _join_runs(select(CERTIFICATE["ahead"].as_float()))
        .where(
            *(getattr(Sweep, name) == series[name] for name in ("repository", "gpu_model")),
            CERTIFICATE["untried"].astext == "0",
        )
        .ext(distinct_on(Sweep.kernel, Sweep.problem))
        .order_by(Sweep.kernel, Sweep.problem, Run.finished_at.desc())
    )
    return list(session.scalars(query))


def _join_runs(query: Query) -> Query:
    """Adds joins from runs to their sweeps and measurements, for kernels with a short list."""
    return (
        query.select_from(Run)
        .join(Sweep, Sweep.id == Run.sweep_id)
        .join(Measurement, and_(Measurement.run_id == Run.id, Measurement.role == "kernel"))
        .where(Run.origin != "recorded", Sweep.space.has_key("rest"))
    )
