"""Receives the messages of `tilewatch demo` as a webhook, and shows them on a local page."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tilewatch.db.server.free_ports import HOST

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

    class _Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = min(int(self.headers.get("Content-Length") or 0), LONGEST_BYTES)
            taken = json.loads(self.rfile.read(length) or b"{}")
            mailbox.messages.append(Message(str(taken.get("subject", "")), str(taken.get("body", ""))))
            self._answer(b"{}", "application/json")

        def do_GET(self) -> None:
            self._answer(mailbox.draw().encode(), "text/html; charset=utf-8")

        def _answer(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Does nothing, because the terminal is for the demo's own lines."""

    with ThreadingHTTPServer((HOST, 0), _Handler) as server:
        mailbox = Mailbox(f"http://{HOST}:{server.server_port}/")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield mailbox
        finally:
            server.shutdown()
