"""How one message leaves the house: by a service of Apprise, a webhook or the log. What came of it is a value.

Knows no database and no regression. Two kinds of trouble: what may pass is tried again (outbox.py says when), and what
the service will never take is not. Nothing that is said here shows an address: it is the right to write there.
"""

import datetime as dt
import email.utils
import logging
import re
from dataclasses import dataclass
from typing import Protocol, Self
from urllib.parse import urlsplit

import requests
import structlog

log = structlog.get_logger()

CONNECT_LIMIT_S, ANSWER_LIMIT_S = 4.0, 10.0
SERVICE_LIMIT_S = 20.0
"""Of Apprise, for all that one service may need several requests for. Well under outbox.py's LEASE_S."""

REFUSED = (400, 410, 413, 415, 422)
"""Answers to what was sent. Others (401, 404, 5xx) are about the set-up or the moment, and a person may mend those."""

LONGEST_ASKED_S = 86_400.0
SECRET_LENGTH = 6
"""Pieces of an address this long may be secrets; shorter ones are words such as `api`."""


@dataclass(frozen=True)
class Note:
    """One message to one channel. `key` is the same however often it is sent; `sha` and `kernel` are for a forge."""

    key: str
    kind: str
    subject: str
    body: str
    attempt: int = 1
    sha: str | None = None
    kernel: str | None = None
    link: str | None = None


@dataclass(frozen=True)
class Outcome:
    """Taken, or why not: `again` says whether another attempt makes sense, and after how long if the service said."""

    trouble: str | None = None
    again: bool = False
    wait_s: float | None = None

    @classmethod
    def later(cls, trouble: str, wait_s: float | None = None) -> Self:
        return cls(trouble, again=True, wait_s=None if wait_s is None else min(max(wait_s, 0.0), LONGEST_ASKED_S))

    @classmethod
    def never(cls, trouble: str) -> Self:
        return cls(trouble)


TAKEN = Outcome()


class Sender(Protocol):
    """`repeatable`: a note that is sent twice arrives once, because the other side knows its key."""

    @property
    def repeatable(self) -> bool: ...

    def carry(self, note: Note) -> Outcome: ...


@dataclass(frozen=True)
class Log:
    """The carrier for those who have set up no channel."""

    repeatable: bool = True

    def carry(self, note: Note) -> Outcome:
        log.warning("told", kind=note.kind, subject=note.subject, body=note.body)
        return TAKEN


@dataclass(frozen=True)
class Webhook:
    """JSON to an address. A receiver that remembers Idempotency-Key takes a note once, even if we crash in between."""

    address: str
    repeatable: bool = True

    def carry(self, note: Note) -> Outcome:
        told = {"key": note.key, "kind": note.kind, "subject": note.subject, "body": note.body, "link": note.link}
        try:
            answer = requests.post(
                self.address,
                json=told,
                headers={"Idempotency-Key": note.key},
                timeout=(CONNECT_LIMIT_S, ANSWER_LIMIT_S),
                allow_redirects=False,
            )
        except requests.RequestException as error:
            return Outcome.later(f"the webhook cannot be reached ({type(error).__name__})")
        return outcome_of(answer, "the webhook")


@dataclass(frozen=True)
class Service:
    """One of Apprise's services: mail, Slack, Teams and so on. Most know no keys, so no note is risked twice."""

    address: str
    repeatable: bool = False

    def carry(self, note: Note) -> Outcome:
        from apprise import Apprise, AppriseAsset, NotifyFormat  # half a second, and not needed for the others

        logging.getLogger("apprise").setLevel(logging.INFO)  # its DEBUG lines show the address
        service = Apprise(asset=AppriseAsset(app_id="Tilewatch", service_timeout=SERVICE_LIMIT_S, async_mode=False))
        if not service.add(self.address):
            return Outcome.never("Apprise cannot read the channel's address; see its documentation for the service")
        with service.notify(body=note.body, title=note.subject, body_format=NotifyFormat.TEXT) as result:
            if result:
                return TAKEN
            said = [entry.message for entry in result.logs() if entry.level in TROUBLES]
        return Outcome.later(without_secrets(said[-1] if said else "the service did not take it", self.address))


TROUBLES = ("WARNING", "ERROR", "CRITICAL")
"""Levels of the log entries in which Apprise tells what went wrong."""


def outcome_of(answer: requests.Response, who: str, now: dt.datetime | None = None) -> Outcome:
    """What an HTTP answer means for a note."""
    if answer.ok:
        return TAKEN
    said = f"{who} answers {answer.status_code} {answer.reason or ''}".strip()
    if answer.status_code in REFUSED:
        return Outcome.never(said)
    return Outcome.later(said, asked_wait_s(answer, now or dt.datetime.now(dt.UTC)))


def asked_wait_s(answer: requests.Response, now: dt.datetime) -> float | None:
    """How long the other side asks us to wait: Retry-After in seconds or as a date, or GitHub's spent allowance."""
    asked = answer.headers.get("Retry-After", "").strip()
    if asked.isdecimal():
        return float(asked)
    if asked:
        try:
            return (email.utils.parsedate_to_datetime(asked) - now).total_seconds()
        except ValueError:
            return None
    reset = answer.headers.get("X-RateLimit-Reset", "")
    if answer.headers.get("X-RateLimit-Remaining") == "0" and reset.isdecimal():
        return float(reset) - now.timestamp()
    return None


def without_secrets(text: str, address: str) -> str:
    """A sentence of a service, without what of our address it may repeat; the host's name may stay."""
    host = urlsplit(address).hostname or ""
    pieces = {piece for piece in re.split(r"[/:@?&=+,]+", address) if len(piece) >= SECRET_LENGTH}
    for piece in sorted(pieces - {host}, key=len, reverse=True):
        text = text.replace(piece, "...")
    return text
