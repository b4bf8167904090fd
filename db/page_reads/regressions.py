"""Reads regressions, their series and events, and the changes of one series."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select, text
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session, aliased

from tilewatch.db.models import (
    OPEN_REGRESSION,
    Commit,
    GpuModel,
    Mark,
    Regression,
    RegressionEvent,
    RegressionSeries,
)
from tilewatch.db.query_parts import (
    Query,
    find_not_apart,
    find_row,
    is_counted,
    is_recorded,
    is_simulated,
    read_rows,
    select_row,
)
from tilewatch.db.repository_names import is_example

MOST_ENDED = 500


@dataclass(frozen=True)
class RegressionRow:
    """A confirmed change, better or worse. A `size` of +0.05 means that its worst series is 5 % slower."""

    id: int
    direction: str
    repository: str
    kernel: str
    category: str
    cause: str
    explanation: list[str]
    good_sha: str
    good_subject: str
    bad_sha: str
    bad_subject: str
    commits_in_range: int
    size: float
    low: float
    high: float
    state: str
    owner: str | None
    note: str | None
    link: str | None
    opened_at: dt.datetime
    changed_at: dt.datetime
    series: int
    gpu_models: list[str]
    right: int
    wrong: int
    recorded: bool  # came with a recording, so people were notified elsewhere
    simulated: bool  # no GPU made its times
    counted: bool  # on pages and in messages: neither recorded nor a planted example


@dataclass(frozen=True)
class RegressionSeriesRow:
    """A series that a regression changed, with the size of the change."""

    kernel: str
    problem: str
    gpu_model: str
    gpu_name: str
    run_id: int
    good_run_id: int | None
    size: float
    low: float
    high: float
    recovered_at: dt.datetime | None
    not_apart: str | None = None


@dataclass(frozen=True)
class EventRow:
    at: dt.datetime
    who: str
    action: str
    from_state: str | None
    to_state: str
    note: str | None


@dataclass(frozen=True)
class MoveRow:
    """A change of a regression's state to `to_state`."""

    regression_id: int
    to_state: str
    at: dt.datetime


@dataclass(frozen=True)
class LevelRow:
    """A confirmed change of one series by a commit after `good_position`, up to and including `bad_position`."""

    regression_id: int
    direction: str
    state: str
    good_position: int
    bad_position: int
    size: float


def describe_origin(row: Mapping[Any, Any]) -> str:
    """Returns words for a regression's origin, such as " (simulated)"; an empty string for a local GPU."""
    if is_example(row["repository"]):
        return " (planted example)"
    return " (simulated)" if row["simulated"] else " (recorded)" if row["recorded"] else ""


def list_regressions(session: Session, limit: int | None = None) -> list[RegressionRow]:
    """Lists the newest regressions, newest first. If `limit` is None, all open regressions are included."""
    query = _regressions().order_by(Regression.opened_at.desc(), Regression.id.desc()).limit(limit)
    if limit is None:
        is_open = Regression.state.in_(OPEN_REGRESSION)
        ended = select(Regression.id).where(~is_open).order_by(Regression.changed_at.desc()).limit(MOST_ENDED)
        query = query.where(is_open | Regression.id.in_(ended))
    return read_rows(session, query, RegressionRow)


def find_regression(session: Session, regression_id: int) -> RegressionRow | None:
    """Returns a regression; None if the regression does not exist."""
    return find_row(session, _regressions().where(Regression.id == regression_id), RegressionRow)


def list_series(session: Session, regression_id: int) -> list[RegressionSeriesRow]:
    """Lists the series that one regression changed, the worst first."""
    query = (
        select_row(
            RegressionSeriesRow,
            [RegressionSeries],
            gpu_name=GpuModel.name,
            not_apart=find_not_apart(RegressionSeries.run_id),
        )
        .join(GpuModel, GpuModel.slug == RegressionSeries.gpu_model)
        .where(RegressionSeries.regression_id == regression_id)
        .order_by(func.abs(RegressionSeries.size).desc(), RegressionSeries.id)
    )
    return read_rows(session, query, RegressionSeriesRow)


def list_events(session: Session, regression_id: int) -> list[EventRow]:
    """Lists the events of one regression, the newest first."""
    query = (
        select_row(EventRow, [RegressionEvent])
        .where(RegressionEvent.regression_id == regression_id)
        .order_by(RegressionEvent.at.desc(), RegressionEvent.id.desc())
    )
    return read_rows(session, query, EventRow)


def find_last_moves(session: Session, until: dt.datetime) -> dict[int, MoveRow]:
    """Returns each regression's last change of state up to a time, by the regression's id."""
    event = RegressionEvent
    query = (
        select_row(MoveRow, [event])
        .where(event.from_state.is_distinct_from(event.to_state), event.at <= until)
        .ext(distinct_on(event.regression_id))
        .order_by(event.regression_id, event.at.desc(), event.id.desc())
    )
    return {row.regression_id: row for row in read_rows(session, query, MoveRow)}


def list_levels(session: Session, repository: str, kernel: str, problem: str, gpu_model: str) -> list[LevelRow]:
    """Lists the confirmed changes of one series, the oldest first."""
    good, bad = aliased(Commit), aliased(Commit)
    query = (
        select_row(LevelRow, [RegressionSeries, Regression], good_position=good.position, bad_position=bad.position)
        .join(Regression, Regression.id == RegressionSeries.regression_id)
        .join(good, good.id == Regression.good_commit_id)
        .join(bad, bad.id == Regression.bad_commit_id)
        .where(
            Regression.repository == repository,
            RegressionSeries.kernel == kernel,
            RegressionSeries.problem == problem,
            RegressionSeries.gpu_model == gpu_model,
        )
        .order_by(bad.position, RegressionSeries.id)
    )
    return read_rows(session, query, LevelRow)


def _regressions() -> Query:
    good, bad = aliased(Commit), aliased(Commit)
    own = RegressionSeries.regression_id == Regression.id
    models = select(func.array_agg(RegressionSeries.gpu_model.distinct())).where(own).scalar_subquery()
    series = select(func.count()).select_from(RegressionSeries).where(own).scalar_subquery()

    def marks(right: bool) -> Query:
        return select(func.count()).where(Mark.regression_id == Regression.id, Mark.right.is_(right))

    return (
        select_row(
            RegressionRow,
            [Regression],
            good_sha=good.sha,
            good_subject=good.subject,
            bad_sha=bad.sha,
            bad_subject=bad.subject,
            commits_in_range=func.greatest(bad.position - good.position, 1),
            series=series,
            gpu_models=func.coalesce(models, text("'{}'")),
            right=marks(True).scalar_subquery(),
            wrong=marks(False).scalar_subquery(),
            recorded=is_recorded(Regression.id),
            simulated=is_simulated(Regression.id),
            counted=is_counted(),
        )
        .join(good, good.id == Regression.good_commit_id)
        .join(bad, bad.id == Regression.bad_commit_id)
    )
