"""Receives the messages of `tilewatch demo` as a webhook, and shows them on a local page."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from html import escape
from http import HTTPStatus

from tilewatch.db.server.free_ports import HOST
from tilewatch.worker.process.http_server import SmallHandler, serve

LONGEST_BYTES = 1 << 20
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "pre{white-space:pre-wrap;border:1px solid #8a94a3;border-radius:6px;padding:1rem}"
    ":root{color-scheme:light dark}"
)


@dataclass(frozen=True)
class Message:
    subject: str
    body: str


@dataclass
class Mailbox:
    """The received messages, the oldest first. `url` receives messages and shows them."""

    url: str
    messages: list[Message] = field(default_factory=list)

    def draw(self) -> str:
        """Returns the page with the messages, the newest first."""
        parts = [f"<h2>{escape(each.subject)}</h2><pre>{escape(each.body)}</pre>" for each in reversed(self.messages)]
        shown = "".join(parts) or "<p>No message yet.</p>"
        return (
            f'<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="5">'
            f"<title>Messages of the demo</title><style>{STYLE}</style><h1>Messages of the demo</h1>{shown}</html>"
        )


@contextmanager
def open_mailbox() -> Iterator[Mailbox]:
    """Serves a mailbox on a free port of this machine until the block ends."""

    class MailboxHandler(SmallHandler):
        def do_POST(self) -> None:
            with suppress(ValueError, TypeError, RecursionError):
                length = min(int(self.headers.get("Content-Length", "")), LONGEST_BYTES)
                taken = dict(json.loads(self.rfile.read(length) if length > 0 else ""))
                mailbox.messages.append(Message(str(taken.get("subject", "")), str(taken.get("body", ""))))
                return self.answer(HTTPStatus.OK, "application/json", b"{}")
            return self.send_error(HTTPStatus.BAD_REQUEST)

        def do_GET(self) -> None:
            self.answer(HTTPStatus.OK, "text/html; charset=utf-8", mailbox.draw().encode())

    with serve(MailboxHandler, HOST) as server:
        mailbox = Mailbox(f"http://{HOST}:{server.server_port}/")
        yield mailbox
