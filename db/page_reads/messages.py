"""Reads messages to people, and everything about one regression."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func
from sqlalchemy.orm import Session

from tilewatch.db.models import Mark, Message
from tilewatch.db.page_reads.regressions import (
    EventRow,
    RegressionRow,
    RegressionSeriesRow,
    find_regression,
    list_events,
    list_series,
)
from tilewatch.db.query_parts import read_rows, select_row


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
    """A regression with its series, events, marks and messages. The worst series and the oldest event come first."""

    regression: RegressionRow
    series: tuple[RegressionSeriesRow, ...]
    events: tuple[EventRow, ...]
    marks: tuple[MarkRow, ...]
    messages: tuple[MessageRow, ...]


def find_story(session: Session, regression_id: int) -> RegressionStory | None:
    """Returns a regression with its series, events, marks and messages; None if the regression does not exist."""
    row = find_regression(session, regression_id)
    if row is None:
        return None
    marks = select_row(MarkRow, [Mark]).where(Mark.regression_id == regression_id).order_by(Mark.id)
    sent = select_row(MessageRow, [Message]).where(Message.regression_id == regression_id).order_by(Message.id)
    return RegressionStory(
        row,
        tuple(list_series(session, regression_id)),
        tuple(reversed(list_events(session, regression_id))),
        tuple(read_rows(session, marks, MarkRow)),
        tuple(read_rows(session, sent, MessageRow)),
    )


def list_messages(
    session: Session, *, states: Sequence[str] | None = None, since: dt.datetime | None = None, limit: int = 100
) -> list[MessageRow]:
    """Lists messages in the given states that were last tried at `since` or later, the newest first."""
    query = select_row(MessageRow, [Message])
    if since is not None:
        query = query.where(func.coalesce(Message.claimed_at, Message.created_at) >= since)
    if states is not None:
        query = query.where(Message.state.in_(states))
    return read_rows(session, query.order_by(Message.id.desc()).limit(limit), MessageRow)
