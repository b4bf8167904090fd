"""Regressions as people triage them: the list, one with its series and history, and what was said of it to whom."""

import dataclasses
import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, func, select, true
from sqlalchemy.orm import Session, aliased

from db.models import Base, Commit, GpuModel, Mark, Message, Regression, RegressionEvent, RegressionSeries
from db.queries.reading import Question, read


@dataclass(frozen=True)
class RegressionRow:
    """`bad_*` is the commit that brought it when `commits` is 1, else the end of a range of that many commits."""

    id: int
    direction: str
    repository: str
    kernel: str
    category: str
    cause: str
    explanation: tuple[str, ...]
    size: float
    low: float
    high: float
    state: str
    owner: str | None
    note: str | None
    link: str | None
    opened_at: dt.datetime
    changed_at: dt.datetime
    good_sha: str
    bad_sha: str
    bad_subject: str
    commits: int
    series: int
    recovered_series: int
    gpu_models: tuple[str, ...]
    marked_right: int
    marked_wrong: int


@dataclass(frozen=True)
class RegressionSeriesRow:
    """`run_id` is the evidence: the run whose night confirmed the change; `good_run_id` one before it."""

    regression_id: int
    kernel: str
    problem: str
    gpu_model: str
    gpu_name: str
    size: float
    low: float
    high: float
    run_id: int
    good_run_id: int | None
    recovered_at: dt.datetime | None


@dataclass(frozen=True)
class EventRow:
    at: dt.datetime
    who: str
    action: str
    from_state: str | None
    to_state: str
    note: str | None


@dataclass(frozen=True)
class MarkRow:
    right: bool
    who: str
    note: str | None
    at: dt.datetime


@dataclass(frozen=True)
class MessageRow:
    id: int
    kind: str
    channel: str
    subject: str
    state: str
    attempts: int
    not_before: dt.datetime | None
    sent_at: dt.datetime | None
    trouble: str | None
    created_at: dt.datetime


@dataclass(frozen=True)
class RegressionStory:
    """One regression with everything that is known of it; the worst series and the oldest event come first."""

    regression: RegressionRow
    series: tuple[RegressionSeriesRow, ...]
    events: tuple[EventRow, ...]
    marks: tuple[MarkRow, ...]
    messages: tuple[MessageRow, ...]


def regressions(
    session: Session,
    *,
    states: Sequence[str] | None = None,
    direction: str | None = None,
    kernel: str | None = None,
    since: dt.datetime | None = None,
    limit: int = 500,
) -> list[RegressionRow]:
    """The newest first. `since` is of the last change, so that what was resolved lately is there too."""
    query = _regressions()
    if states is not None:
        query = query.where(Regression.state.in_(states))
    if direction is not None:
        query = query.where(Regression.direction == direction)
    if kernel is not None:
        query = query.where(Regression.kernel == kernel)
    if since is not None:
        query = query.where(Regression.changed_at >= since)
    return _read(session, query.order_by(Regression.opened_at.desc(), Regression.id.desc()).limit(limit))


def regression(session: Session, regression_id: int) -> RegressionStory | None:
    found = _read(session, _regressions().where(Regression.id == regression_id))
    if not found:
        return None
    return RegressionStory(
        found[0],
        tuple(regression_series(session, [regression_id])),
        tuple(read(session, _of(RegressionEvent, EventRow, regression_id), EventRow)),
        tuple(read(session, _of(Mark, MarkRow, regression_id), MarkRow)),
        tuple(read(session, _of(Message, MessageRow, regression_id), MessageRow)),
    )


def regression_series(session: Session, regression_ids: Sequence[int]) -> list[RegressionSeriesRow]:
    """The series of these regressions, the most changed first."""
    own = [name for name in RegressionSeriesRow.__dataclass_fields__ if name != "gpu_name"]
    query = (
        select(*(getattr(RegressionSeries, name) for name in own), GpuModel.name.label("gpu_name"))
        .join(GpuModel, GpuModel.slug == RegressionSeries.gpu_model)
        .where(RegressionSeries.regression_id == func.any(list(regression_ids)))
        .order_by(RegressionSeries.regression_id, func.abs(RegressionSeries.size).desc(), RegressionSeries.id)
    )
    return read(session, query, RegressionSeriesRow)


def messages(
    session: Session, *, states: Sequence[str] | None = None, since: dt.datetime | None = None, limit: int = 100
) -> list[MessageRow]:
    """What is, was or could not be told, the newest first. `since` is of when it was tried last."""
    query = select(*_columns(Message, MessageRow))
    if since is not None:
        query = query.where(func.coalesce(Message.claimed_at, Message.created_at) >= since)
    if states is not None:
        query = query.where(Message.state.in_(states))
    return read(session, query.order_by(Message.id.desc()).limit(limit), MessageRow)


def _of(model: type[RegressionEvent | Mark | Message], row: type, regression_id: int) -> Question:
    return select(*_columns(model, row)).where(model.regression_id == regression_id).order_by(model.id)


def _columns(model: type[Base], row: type) -> list[ColumnElement[Any]]:
    return [getattr(model, field.name) for field in dataclasses.fields(row)]


def _regressions() -> Question:
    good, bad = aliased(Commit), aliased(Commit)
    of_series = (
        select(
            func.count().label("series"),
            func.count(RegressionSeries.recovered_at).label("recovered_series"),
            func.array_agg(RegressionSeries.gpu_model.distinct()).label("gpu_models"),
        )
        .where(RegressionSeries.regression_id == Regression.id)
        .lateral()
    )
    of_marks = (
        select(
            func.count().filter(Mark.right).label("marked_right"),
            func.count().filter(~Mark.right).label("marked_wrong"),
        )
        .where(Mark.regression_id == Regression.id)
        .lateral()
    )
    own = [name for name in RegressionRow.__dataclass_fields__ if hasattr(Regression, name)]
    return (
        select(
            *(getattr(Regression, name) for name in own),
            good.sha.label("good_sha"),
            bad.sha.label("bad_sha"),
            bad.subject.label("bad_subject"),
            (bad.position - good.position).label("commits"),
            of_series,
            of_marks,
        )
        .select_from(Regression)
        .join(good, good.id == Regression.good_commit_id)
        .join(bad, bad.id == Regression.bad_commit_id)
        .join(of_series, true())
        .join(of_marks, true())
    )


def _read(session: Session, query: Question) -> list[RegressionRow]:
    return [
        RegressionRow(
            **{
                **row._asdict(),
                "explanation": tuple(row.explanation),
                "gpu_models": tuple(row.gpu_models or ()),
            }
        )
        for row in session.execute(query)
    ]
