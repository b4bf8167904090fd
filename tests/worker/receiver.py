"""A small true web server for tests of telling: it keeps what it was asked and answers as it is told to."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    told: Any


@dataclass(frozen=True)
class Answer:
    status: int = 200
    told: Any = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Receiver:
    """`answer` says what each request gets; `asked` is what came, those that were turned away included."""

    url: str
    answer: Callable[[Asked], Answer] = lambda _: Answer()
    asked: list[Asked] = field(default_factory=list)
    taken: list[Asked] = field(default_factory=list)

    def subjects(self) -> list[str]:
        """What arrived, in order: what was answered with a success."""
        return [asked.told["subject"] for asked in self.taken]


@contextmanager
def receiver() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            told = json.loads(self.rfile.read(length)) if length else None
            asked = Asked(self.command, self.path, dict(self.headers), told)
            here.asked.append(asked)
            answer = here.answer(asked)
            body = json.dumps(answer.told).encode()
            if answer.status < 300:
                here.taken.append(asked)
            self.send_response(answer.status)
            for name, value in {**answer.headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST

        def log_message(self, *_: object) -> None:
            """Not on the terminal of a test."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    here = Receiver(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield here
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
