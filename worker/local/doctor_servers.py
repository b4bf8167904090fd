"""Checks for `tilewatch doctor` whether servers and workers answer."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException

from tilewatch import errors
from tilewatch.db.server.embedded import Servers
from tilewatch.kernels.device import Gpu
from tilewatch.worker.settings import NotRunning, Settings


@dataclass(frozen=True)
class Finding:
    """One line of the report. `ok` is None if an optional thing is missing."""

    name: str
    ok: bool | None
    found: str
    fix: str | None = None


def list_server_findings(settings: Settings) -> Iterator[Finding]:
    try:
        servers = settings.connection()
    except NotRunning as error:
        yield Finding("Postgres and Redis", None, str(error))
        return
    for name, examine in (("Postgres", _postgres), ("Redis", _redis)):
        try:
            yield Finding(name, True, f"answers at {examine(servers)}")
        except Exception as error:
            sentence = errors.sentence(error)
            if sentence is None:
                raise
            yield Finding(name, False, sentence, "make up, or correct TILEWATCH_DATABASE_URL and TILEWATCH_BROKER_URL")


def _postgres(servers: Servers) -> str:
    from tilewatch.db import migrate, session

    session.require_database(servers.database_url)
    migrate.require_head(servers.database_url)
    return session.address(servers.database_url)


def _redis(servers: Servers) -> str:
    from tilewatch.worker.queue import dispatch

    dispatch.require_broker(servers.broker_url)
    return dispatch.address(servers.broker_url)


def list_worker_findings(settings: Settings, gpus_here: Sequence[Gpu]) -> Iterator[Finding]:
    """Yields a finding about each worker that may run here."""
    ours = runs_here(settings)
    for endpoint in _list_health_endpoints(settings, gpus_here):
        yield _worker(*endpoint, ours=ours)


def runs_here(settings: Settings) -> bool:
    """Returns whether the settings name servers. If not, workers that answer belong to another installation."""
    try:
        settings.connection()
    except NotRunning:
        return False
    return True


def _list_health_endpoints(settings: Settings, gpus_here: Sequence[Gpu]) -> Iterator[tuple[str, str, int]]:
    """Yields the name, address and port of each worker's health endpoint."""
    address = settings.health_address
    yield "compile worker", address, settings.compile_health_port
    yield "judge worker", address, settings.judge_health_port
    yield "worker that sends messages", address, settings.tell_health_port
    if settings.gpu_health_port:
        for gpu in gpus_here:
            yield f"worker of GPU {gpu.index}", address, settings.gpu_health_port + gpu.index


def _worker(name: str, address: str, number: int, *, ours: bool) -> Finding:
    """Returns a finding about a worker's health endpoint. A worker that does not answer is not an error."""
    if not number:
        return Finding(name, None, "has no health endpoint")
    host = "127.0.0.1" if address == "0.0.0.0" else address  # noqa: S104 - only to be asked
    try:
        with closing(HTTPConnection(host, number, timeout=10)) as connection:
            connection.request("GET", "/healthz")
            answer = connection.getresponse()
            sentence = answer.read().decode(errors="replace").strip()
    except (OSError, ValueError, HTTPException):
        return Finding(name, None, f"does not run here (nothing answers at {host}:{number})")
    if not ours:
        return Finding(name, None, f"does not run here (another Tilewatch answers at {host}:{number})")
    healthy = answer.status == HTTPStatus.OK
    return Finding(name, healthy, sentence, None if healthy else "docs/operate/operations.md explains each sentence")
