"""Serves a worker's `/healthz`, `/livez` and `/metrics` by HTTP, from a thread that answers while a job runs."""

import threading
from collections.abc import Callable, Sequence
from http import HTTPStatus

import structlog

from tilewatch.worker.process.http_server import SmallHandler, SmallServer

log = structlog.get_logger()

Troubles = Callable[[], Sequence[str]]
"""Returns sentences on why this worker cannot work now, or why it needs a restart; an empty sequence if all is well."""

PLAIN = "text/plain; charset=utf-8"
METRICS = "text/plain; version=0.0.4; charset=utf-8"


class Endpoint:
    """An HTTP server that runs from `start` to `stop`. If the port is taken, it only logs this."""

    def __init__(
        self, address: str, port: int, troubles: Troubles, stuck: Troubles, exposition: Callable[[], bytes]
    ) -> None:
        self._address, self._port = address, port
        self._sentences, self._exposition = {"/healthz": troubles, "/livez": stuck}, exposition
        self._server: SmallServer | None = None

    def start(self) -> int | None:
        """Starts the server and returns its port; None if the port cannot be used."""
        try:
            self._server = SmallServer((self._address, self._port), self._handler())
        except OSError as error:
            log.warning("no health endpoint", address=self._address, port=self._port, reason=error.strerror)
            return None
        threading.Thread(target=self._server.serve_forever, name="health endpoint", daemon=True).start()
        port: int = self._server.server_address[1]
        log.info("health endpoint", address=self._address, port=port)
        return port

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def forget(self) -> None:
        """Closes the socket in a forked child, so that the port becomes free when the parent ends."""
        if self._server is not None:
            self._server.socket.close()
            self._server = None

    def _handler(self) -> type[SmallHandler]:
        sentences, exposition = self._sentences, self._exposition

        class HealthHandler(SmallHandler):
            def do_GET(self) -> None:
                if self.path in sentences:
                    wrong = sentences[self.path]()
                    status = HTTPStatus.SERVICE_UNAVAILABLE if wrong else HTTPStatus.OK
                    self.answer(status, PLAIN, ("; ".join(wrong) or "ok").encode() + b"\n")
                elif self.path == "/metrics":
                    self.answer(HTTPStatus.OK, METRICS, exposition())
                else:
                    self.answer(HTTPStatus.NOT_FOUND, PLAIN, b"expected /healthz, /livez or /metrics\n")

        return HealthHandler
