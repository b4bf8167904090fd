"""Reads which configs outside its short list a series has tried in the state of its newest run.

A state is the machine code of the configs and the driver's major version. Runs belong to one state as long as the
configs that they share have the same cubins, so a new compiler or a changed source begins another one."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Row, and_, exists, func, or_, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session, aliased

from tilewatch.db.models import Compilation, Config, Measurement, Run, Sweep, Trial
from tilewatch.db.query_parts import SERIES

Newest = Row[int, int, list[int], str, list[int], int]


@dataclass(frozen=True)
class TriedConfigs:
    """The configs of a space that a series has tried in its newest state. `listed` counts the short list, `rest` the
    others; `sha256` names those of the others that were tried, the one tried longest ago first.

    `full_look` is when the last of the others was tried for the first time, None before. `ahead` is the largest share
    by which the fastest of the others beat the short list in a run. `kept` are those that won or tied in the newest
    run.
    """

    listed: int
    rest: int
    sha256: Sequence[str]
    full_look: dt.datetime | None
    ahead: float
    kept: Sequence[Mapping[str, int]]


def list_short_listed_series(session: Session, repository: str, gpu_model: str) -> list[tuple[str, str]]:
    """Lists the kernels and problems with a short list."""
    of_model = (Sweep.repository == repository, Sweep.gpu_model == gpu_model, Sweep.space.has_key("rest"))
    found = session.execute(select(Sweep.kernel, Sweep.problem).where(*of_model).distinct())
    return [(row.kernel, row.problem) for row in found]


def find_tried(session: Session, series: Mapping[str, str]) -> TriedConfigs | None:
    """Returns the tried configs of a series (SERIES names its fields); None if it has no run with a short list."""
    runs = and_(*(getattr(Sweep, name) == series[name] for name in SERIES), Run.origin != "recorded")
    newest = _find_newest(session, runs)
    if newest is None:
        return None
    in_state = and_(runs, Run.finished_at > _find_state_start(session, runs, newest))
    tried = _list_tried(session, in_state, newest.listed)
    return TriedConfigs(
        listed=len(newest.listed),
        rest=newest.rest,
        sha256=[row.sha256 for row in tried],
        full_look=max(row.first_tried for row in tried) if tried and len(tried) >= newest.rest else None,
        ahead=_find_ahead(session, in_state, newest.listed),
        kept=_list_kept(session, newest),
    )


def list_full_looks(session: Session, series: Mapping[str, str]) -> list[float]:
    """Lists `ahead` of the newest full look of each series of a series' repository and GPU model."""
    certificate = Measurement.detail["certificate"]
    query = (
        select(certificate["ahead"].as_float())
        .join(Run, Run.id == Measurement.run_id)
        .join(Sweep, Sweep.id == Run.sweep_id)
        .where(
            *(getattr(Sweep, name) == series[name] for name in ("repository", "gpu_model")),
            Measurement.role == "kernel",
            certificate["untried"].astext == "0",
        )
        .ext(distinct_on(Sweep.kernel, Sweep.problem))
        .order_by(Sweep.kernel, Sweep.problem, Run.finished_at.desc())
    )
    return list(session.scalars(query))


def _find_newest(session: Session, runs: ColumnElement[bool]) -> Newest | None:
    query = (
        select(
            Run.id,
            Run.sweep_id,
            Run.tie,
            func.split_part(Run.toolchain["driver"].astext, ".", 1).label("driver"),
            Sweep.space["listed"].label("listed"),
            Sweep.space["rest"].as_integer().label("rest"),
        )
        .join(Sweep, Sweep.id == Run.sweep_id)
        .where(runs, Sweep.space.has_key("rest"))
        .order_by(Run.finished_at.desc(), Run.id.desc())
        .limit(1)
    )
    return session.execute(query).one_or_none()


def _find_state_start(session: Session, runs: ColumnElement[bool], newest: Newest) -> dt.datetime:
    """Returns the end of the last run of another state: one that has other cubins for configs of the newest, or another
    driver. Returns the beginning of time if no run is of another state."""
    base, head = aliased(Trial), aliased(Trial)
    base_code, head_code = aliased(Compilation), aliased(Compilation)
    has_other_code = (
        exists()
        .where(base.sweep_id == Sweep.id, base_code.id == base.compilation_id, head.config_id == base.config_id)
        .where(head.sweep_id == newest.sweep_id, head_code.id == head.compilation_id)
        .where(base_code.content_key != head_code.content_key)
        .correlate(Sweep)
    )
    has_other_driver = func.split_part(Run.toolchain["driver"].astext, ".", 1) != newest.driver
    query = select(func.max(Run.finished_at)).join(Sweep, Sweep.id == Run.sweep_id)
    found = session.scalar(query.where(runs, or_(has_other_driver, has_other_code)))
    return found or dt.datetime.min.replace(tzinfo=dt.UTC)


def _list_tried(
    session: Session, in_state: ColumnElement[bool], listed: Sequence[int]
) -> Sequence[Row[str, dt.datetime]]:
    """Lists the configs outside the short list that a run tried, whether they got a time or failed."""
    query = (
        select(Config.sha256, func.min(Run.finished_at).label("first_tried"))
        .join(Trial, Trial.config_id == Config.id)
        .join(Sweep, Sweep.id == Trial.sweep_id)
        .join(Run, Run.sweep_id == Sweep.id)
        .where(in_state, Trial.status.not_in(("waiting", "compiled")), Config.id.not_in(listed))
        .group_by(Config.id)
        .order_by(func.max(Run.finished_at), Config.sha256)
    )
    return session.execute(query).all()


def _find_ahead(session: Session, in_state: ColumnElement[bool], listed: Sequence[int]) -> float:
    is_listed = Trial.config_id.in_(listed)
    times = (
        select(
            func.min(Trial.median_us).filter(is_listed).label("listed"),
            func.min(Trial.median_us).filter(~is_listed).label("others"),
        )
        .join(Sweep, Sweep.id == Trial.sweep_id)
        .join(Run, Run.sweep_id == Sweep.id)
        .where(in_state)
        .group_by(Run.id)
        .subquery()
    )
    return max(session.scalar(select(func.max(1 - times.c.others / times.c.listed))) or 0.0, 0.0)


def _list_kept(session: Session, newest: Newest) -> list[Mapping[str, int]]:
    won = select(Measurement.config_id).where(Measurement.run_id == newest.id, Measurement.role == "kernel")
    is_best = or_(Config.id.in_(newest.tie), Config.id.in_(won))
    return list(
        session.scalars(select(Config.params).where(is_best, Config.id.not_in(newest.listed)).order_by(Config.id))
    )
