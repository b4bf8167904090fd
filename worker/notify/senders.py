"""Sends one message by Apprise, a webhook or the log. Results and log lines never contain the secret address."""

import datetime as dt
import email.utils
import logging
import re
from dataclasses import dataclass
from typing import Protocol, Self
from urllib.parse import urlsplit

import requests
import structlog

from tilewatch.text import fit_lines

log = structlog.get_logger()

CONNECT_LIMIT_S, ANSWER_LIMIT_S = 4.0, 10.0
SERVICE_LIMIT_S = 20.0
"""The most seconds in which an Apprise service must send a message. It is well below outbox.py's LEASE_S."""

REFUSED = (301, 302, 303, 307, 308, 400, 410, 413, 415, 422)
"""The HTTP statuses after which no further attempt is made. Other failures (401, 404, 5xx) may pass or be repaired."""

LONGEST_RETRY_AFTER_S = 86_400.0
SECRET_LENGTH = 6
"""The least length of a piece of an address that counts as secret. Shorter pieces are words such as `api`."""


@dataclass(frozen=True)
class OutgoingMessage:
    """A message to one channel. A repeated attempt has the same `key`. Only forges use `sha` and `about`."""

    key: str
    kind: str
    subject: str
    body: str
    attempt: int = 1
    sha: str | None = None
    about: str | None = None
    link: str | None = None


@dataclass(frozen=True)
class SendResult:
    """The result of an attempt to send. `trouble` is None if it succeeded; `again` says whether to try again."""

    trouble: str | None = None
    again: bool = False
    wait_s: float | None = None

    @classmethod
    def later(cls, trouble: str, wait_s: float | None = None) -> Self:
        return cls(trouble, again=True, wait_s=None if wait_s is None else min(max(wait_s, 0.0), LONGEST_RETRY_AFTER_S))

    @classmethod
    def never(cls, trouble: str) -> Self:
        return cls(trouble)


TAKEN = SendResult()


class Sender(Protocol):
    """Sends messages to one channel. If `repeatable` is True, a repeated message is shown only once."""

    @property
    def repeatable(self) -> bool: ...

    def send(self, message: OutgoingMessage) -> SendResult: ...


@dataclass(frozen=True)
class Closed:
    """A channel with wrong settings. It sends nothing and returns the reason."""

    trouble: str
    repeatable = True

    def send(self, _: OutgoingMessage) -> SendResult:
        return SendResult.later(self.trouble)


@dataclass(frozen=True)
class Log:
    """Writes messages to the log of this process. It is used if no channel is configured."""

    repeatable: bool = True

    def send(self, message: OutgoingMessage) -> SendResult:
        log.warning("message", kind=message.kind, subject=message.subject, body=message.body)
        return TAKEN


@dataclass(frozen=True)
class Webhook:
    """Sends messages as JSON to an address. An Idempotency-Key marks repeated messages."""

    address: str
    repeatable: bool = True

    def send(self, message: OutgoingMessage) -> SendResult:
        fields = {
            "key": message.key,
            "kind": message.kind,
            "subject": message.subject,
            "body": message.body,
            "link": message.link,
        }
        try:
            answer = requests.post(
                self.address,
                json=fields,
                headers={"Idempotency-Key": message.key},
                timeout=(CONNECT_LIMIT_S, ANSWER_LIMIT_S),
                allow_redirects=False,
            )
        except requests.RequestException as error:
            return SendResult.later(f"the webhook cannot be reached ({type(error).__name__})")
        return read_result(answer, "the webhook")


@dataclass(frozen=True)
class Service:
    """Sends messages by an Apprise service such as mail or Slack. Most services show repeated messages twice."""

    address: str
    repeatable: bool = False

    def send(self, message: OutgoingMessage) -> SendResult:
        from apprise import Apprise, AppriseAsset, NotifyFormat  # imported here: it takes 0.5 s

        logging.getLogger("apprise").setLevel(logging.INFO)  # its DEBUG lines show the address
        service = Apprise(asset=AppriseAsset(app_id="Tilewatch", service_timeout=SERVICE_LIMIT_S, async_mode=False))
        if not service.add(self.address):
            return SendResult.never("Apprise cannot read the channel's address; see its documentation for the service")
        room = min((server.body_maxlen for server in service), default=len(message.body)) - len(message.subject) - 2
        body = "\n".join(fit_lines(message.body.split("\n"), room, message.link))
        with service.notify(body=body, title=message.subject, body_format=NotifyFormat.TEXT) as result:
            if result:
                return TAKEN
            errors = [entry.message for entry in result.logs() if entry.level in ERROR_LEVELS]
        return SendResult.later(without_secrets(errors[-1] if errors else "the service refused it", self.address))


ERROR_LEVELS = ("WARNING", "ERROR", "CRITICAL")
"""The levels of Apprise's log entries that say why a message was not sent."""


def read_result(answer: requests.Response, who: str, now: dt.datetime | None = None) -> SendResult:
    """Returns the result of an attempt to send, read from an HTTP response."""
    if is_accepted(answer):
        return TAKEN
    trouble = f"{who} answers {answer.status_code} {answer.reason or ''}".strip()
    # A redirect is a refusal: another address must not get the message.
    if answer.status_code in REFUSED:
        return SendResult.never(trouble)
    return SendResult.later(trouble, requested_wait_s(answer, now or dt.datetime.now(dt.UTC)))


def is_accepted(answer: requests.Response) -> bool:
    return 200 <= answer.status_code < 300


def requested_wait_s(answer: requests.Response, now: dt.datetime) -> float | None:
    """Returns the seconds that a service asks to wait; None if it asks for no wait."""
    retry_after = answer.headers.get("Retry-After", "").strip()
    if retry_after.isdecimal():
        return float(retry_after)
    if retry_after:
        try:
            until = email.utils.parsedate_to_datetime(retry_after)
        except ValueError:
            return None
        return (until.replace(tzinfo=until.tzinfo or dt.UTC) - now).total_seconds()
    reset = answer.headers.get("X-RateLimit-Reset", "")
    if answer.headers.get("X-RateLimit-Remaining") == "0" and reset.isdecimal():
        return float(reset) - now.timestamp()
    return None


def without_secrets(text: str, address: str) -> str:
    """Returns a text in which pieces of a channel's address are replaced by "..."."""
    host = urlsplit(address).hostname or ""
    pieces = {piece for piece in re.split(r"[/:@?&=+,]+", address) if len(piece) >= SECRET_LENGTH}
    for piece in sorted(pieces - {host}, key=len, reverse=True):
        text = text.replace(piece, "...")
    return text
