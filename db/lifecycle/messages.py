"""Changes the state of messages to people, such as claimed or sent. Only one sender can claim a message."""

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict, Unpack

from sqlalchemy import String, case, cast, exists, func, literal, or_, select, update
from sqlalchemy.orm import Session, aliased

from tilewatch.db.lifecycle.regressions import ITSELF
from tilewatch.db.lifecycle.waiting import after, backoff_s, clock_now
from tilewatch.db.models import Check, Commit, Message, Regression, RegressionEvent
from tilewatch.db.natural_keys import find_or_add
from tilewatch.db.query_parts import is_recorded, read_rows, select_row

MOST_ATTEMPTS = 500
"""The number of attempts (about three days) after which a message counts as failed. The digest then lists it."""

REPORT_WITHIN_S = 7 * 86_400.0
"""The age in seconds up to which a change is reported, so that a new channel gets no messages about old changes."""

UNCLEAR = "its sender ended while sending: it may have arrived, so it is not sent again"


@dataclass(frozen=True)
class ClaimedMessage:
    """A claimed message. `about` is the kernel of a regression, or "check" and the GPU model of a check."""

    id: int
    key: str
    kind: str
    channel: str
    subject: str
    body: str
    attempts: int
    regression_id: int | None
    check_id: int | None
    sha: str | None  # the commit that it reports
    about: str | None


@dataclass(frozen=True)
class UnreportedChange:
    """A change of a regression that no message reports yet."""

    event_id: int
    regression_id: int
    repository: str
    kind: str


class NewMessage(TypedDict):
    key: str
    kind: str
    channel: str
    subject: str
    body: str
    regression_id: NotRequired[int | None]
    alarm_id: NotRequired[int | None]
    check_id: NotRequired[int | None]
    not_before: NotRequired[dt.datetime | None]


def write(session: Session, **row: Unpack[NewMessage]) -> bool:
    """Stores a message if its key is new. Returns whether it was stored."""
    state = "queued" if row.get("not_before") is None else "held"
    return find_or_add(session, Message, ("key",), {**row, "state": state})[1]


def list_unreported_changes(session: Session) -> list[UnreportedChange]:
    """Lists recent changes of regressions that no message reports yet, the oldest first."""
    event = RegressionEvent
    kind = case(
        (event.action == "open", "opened"),
        (event.action == "reopen", "reopened"),
        ((event.action == "resolve") & (event.who == ITSELF), "recovered"),
        (event.action == "resolve", "resolved"),
        (event.action == "expect", "expected"),
    )
    # The keys of messages about a change contain the event's id, so that no change is reported twice.
    is_reported = exists().where(
        Message.regression_id == event.regression_id,
        func.starts_with(Message.key, literal("event ").concat(cast(event.id, String)).concat(" ")),
    )
    query = (
        select_row(UnreportedChange, [event, Regression], event_id=event.id, kind=kind)
        .join(Regression, Regression.id == event.regression_id)
        .where(kind.is_not(None), ~is_reported, event.at > after(-REPORT_WITHIN_S), ~is_recorded(event.regression_id))
        .order_by(event.id)
    )
    return read_rows(session, query, UnreportedChange)


def list_unreported_checks(session: Session) -> list[int]:
    """Lists the ids of recently ended checks without a message, the oldest first."""
    is_reported = exists().where(Message.check_id == Check.id)
    return list(
        session.scalars(
            select(Check.id).where(Check.ended_at > after(-REPORT_WITHIN_S), ~is_reported).order_by(Check.id)
        )
    )


def event_key(event_id: int, channel: str, sha: str | None = None) -> str:
    """Returns the key of a message about a change of a regression."""
    # The key of a message to a forge keeps its commit even if a bisection finds another bad commit.
    return f"event {event_id} to {channel}{f' at {sha}' if sha else ''}"


def list_shas(session: Session, regression_id: int, channel: str) -> list[str]:
    """Lists the commits with messages about a regression, each once, the oldest message first."""
    own = (Message.regression_id == regression_id, Message.channel == channel)
    keys = session.scalars(select(Message.key).where(*own).order_by(Message.id))
    return list(dict.fromkeys(filter(None, map(_read_sha, keys))))


def _read_sha(key: str) -> str | None:
    found = re.search(r" at ([0-9a-f]{40,64})$", key)
    return found[1] if found else None


def list_unwritten_keys(session: Session, keys: Sequence[str]) -> list[str]:
    """Returns the given keys that no stored message has."""
    written = set(session.scalars(select(Message.key).where(Message.key == func.any(list(keys)))))
    return [key for key in keys if key not in written]


def find_last_digest(session: Session, without: Sequence[str]) -> dt.datetime | None:
    """Returns the time of the newest digest message whose key is not in `without`; None if there is no digest."""
    is_digest = (Message.kind == "digest") & Message.key.not_in(without)
    return session.scalar(select(func.max(Message.created_at)).where(is_digest))


def claim(
    session: Session, repeatable: Sequence[str], lease_s: float, without: Sequence[str] = ()
) -> ClaimedMessage | None:
    """Claims the oldest message that may be sent now; None if there is none. Skips the channels in `without`."""
    earlier = aliased(Message)
    overtakes = exists().where(
        earlier.regression_id == Message.regression_id,
        earlier.channel == Message.channel,
        earlier.id < Message.id,
        earlier.state.in_(("queued", "held")),
    )
    due = or_(Message.not_before.is_(None), Message.not_before <= clock_now())
    chosen = (
        select(Message.id)
        .where(Message.state.in_(("queued", "held")), due, Message.channel.not_in(list(without)), ~overtakes)
        .order_by(Message.id)
        .limit(1)
        .with_for_update(skip_locked=True)
        .cte("chosen")
        .prefix_with("materialized")
    )
    is_repeatable = Message.channel == func.any(list(repeatable))
    row = session.execute(
        update(Message)
        .where(Message.id == chosen.c.id)
        .values(
            # A repeatable channel recognises a repeated message. If the sender dies, its message is due again after the
            # lease. Any other message might then arrive twice, so it counts as failed until `mark_sent` or `put_off`.
            state=case((is_repeatable, "queued"), else_="failed"),
            trouble=case((is_repeatable, Message.trouble), else_=literal(UNCLEAR)),
            not_before=after(lease_s),
            claimed_at=clock_now(),
            attempts=Message.attempts + 1,
        )
        .returning(*(getattr(Message, name) for name in ClaimedMessage.__dataclass_fields__ if hasattr(Message, name)))
    ).one_or_none()
    if row is None:
        return None
    if row.check_id is not None:
        which = select(Check.head_sha, literal("check ").concat(Check.gpu_model)).where(Check.id == row.check_id)
    else:
        which = (
            select(Commit.sha, Regression.kernel)
            .join(Regression, Regression.bad_commit_id == Commit.id)
            .where(Regression.id == row.regression_id)
        )
    sha, about = session.execute(which).one_or_none() or (None, None)
    return ClaimedMessage(**row._mapping, sha=_read_sha(row.key) or sha, about=about)


def mark_sent(session: Session, message_id: int) -> None:
    """Marks a message as sent."""
    _end(session, message_id, {"state": "sent", "sent_at": clock_now(), "not_before": None, "trouble": None})


def put_off(session: Session, message_id: int, trouble: str, wait_s: float | None = None) -> None:
    """Queues a refused message again. After MOST_ATTEMPTS attempts, marks the message as failed."""
    doubled = backoff_s(Message.attempts - 1)
    over = Message.attempts >= MOST_ATTEMPTS
    _end(
        session,
        message_id,
        {
            "state": case((over, "failed"), else_="queued"),
            "not_before": after(doubled if wait_s is None else wait_s),
            "trouble": trouble,
        },
    )


def fail(session: Session, message_id: int, trouble: str) -> None:
    """Marks a message as failed. It is not sent again."""
    _end(session, message_id, {"state": "failed", "not_before": None, "trouble": trouble})


def retry(session: Session, message_ids: Sequence[int]) -> list[int]:
    """Queues failed messages again and returns their ids."""
    anew = {"state": "queued", "attempts": 0, "not_before": None, "trouble": None}
    which = Message.id == func.any(list(message_ids))
    changed = update(Message).where(which, Message.state == "failed").values(**anew).returning(Message.id)
    return list(session.scalars(changed))


def _end(session: Session, message_id: int, columns: dict[str, Any]) -> None:
    session.execute(update(Message).where(Message.id == message_id).values(**columns))
