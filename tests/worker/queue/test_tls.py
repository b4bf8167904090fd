"""Encrypted roads to Postgres and Redis: certificates are checked, and a whole job is done over them.

The servers that tests start cannot encrypt, so a small one of ours stands in front of each: it ends TLS and passes on.
"""

import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url

from tests.worker.fixtures.celery_process import celery_worker, wait_for
from tilewatch.db.lifecycle import jobs
from tilewatch.db.models import Job
from tilewatch.db.session import DatabaseUnreachable, engine, require_database, session
from tilewatch.worker.context import Context
from tilewatch.worker.queue import dispatch
from tilewatch.worker.queue.dispatch import BrokerUnreachable
from tilewatch.worker.settings import Settings

SSL_REQUEST = bytes.fromhex("0000000804d2162f")
"""What a Postgres client sends first, in the clear, to ask for TLS."""


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Self-signed, so that it is its own authority; the key lies beside it."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    made = tmp_path / "server.crt"
    how = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    whose = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    to = ["-keyout", str(made.with_suffix(".key")), "-out", str(made)]
    subprocess.run(["openssl", *how, *whose, *to], check=True, capture_output=True)
    return made


@contextlib.contextmanager
def encrypted(certificate: Path, port: int, *, postgres: bool) -> Iterator[int]:
    """The port of a road to a server of this machine."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    with socket.create_server(("127.0.0.1", 0)) as door:
        threading.Thread(target=_serve, args=(door, context, port, postgres), daemon=True).start()
        yield int(door.getsockname()[1])


def _serve(door: socket.socket, context: ssl.SSLContext, port: int, postgres: bool) -> None:
    with contextlib.suppress(OSError):  # the door was closed
        while True:
            guest, _ = door.accept()
            threading.Thread(target=_pass_on, args=(guest, context, port, postgres), daemon=True).start()


def _pass_on(guest: socket.socket, context: ssl.SSLContext, port: int, postgres: bool) -> None:
    with contextlib.suppress(OSError), guest:
        if postgres:
            if guest.recv(8) != SSL_REQUEST:
                return
            guest.sendall(b"S")
        with (
            context.wrap_socket(guest, server_side=True) as inside,
            socket.create_connection(("127.0.0.1", port)) as home,
        ):
            back = threading.Thread(target=_pump, args=(home, inside), daemon=True)
            back.start()
            _pump(inside, home)
            back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def test_postgres_is_reached_encrypted_and_its_certificate_is_checked(context: Context, certificate: Path) -> None:
    plain = make_url(context.database_url)
    with encrypted(certificate, plain.port or 5432, postgres=True) as port:
        road = plain.set(host="127.0.0.1", port=port)
        query = {"sslmode": "verify-full", "sslrootcert": str(certificate)}
        good = road.set(query=query).render_as_string(hide_password=False)
        require_database(good)
        engine(good).dispose()
        unknown = road.set(query={"sslmode": "verify-full", "sslrootcert": "system"}).render_as_string(
            hide_password=False
        )
        with pytest.raises(DatabaseUnreachable, match="certificate"):
            require_database(unknown)


def test_redis_is_reached_encrypted_and_its_certificate_is_checked(broker_url: str, certificate: Path) -> None:
    plain = make_url(broker_url)
    with encrypted(certificate, plain.port or 6379, postgres=False) as port:
        road = plain.set(drivername="rediss", host="127.0.0.1", port=port)
        dispatch.require_broker(
            road.set(query={"ssl_ca_certs": str(certificate)}).render_as_string(hide_password=False)
        )
        with pytest.raises(BrokerUnreachable, match="certificate verify failed"):
            dispatch.require_broker(road.render_as_string(hide_password=False))


def test_a_job_is_sent_taken_and_ended_over_encrypted_roads(
    settings: Settings, context: Context, certificate: Path
) -> None:
    database, broker = make_url(context.database_url), make_url(context.broker_url)
    with (
        encrypted(certificate, database.port or 5432, postgres=True) as database_port,
        encrypted(certificate, broker.port or 6379, postgres=False) as broker_port,
    ):
        over_tls = settings.model_copy(
            update={
                "database_url": database.set(
                    host="127.0.0.1",
                    port=database_port,
                    query={"sslmode": "verify-full", "sslrootcert": str(certificate)},
                ).render_as_string(hide_password=False),
                "broker_url": broker.set(
                    drivername="rediss", host="127.0.0.1", port=broker_port, query={"ssl_ca_certs": str(certificate)}
                ).render_as_string(hide_password=False),
                "judge_health_port": 0,
            }
        )
        log = settings.home / "judge@test.log"
        with celery_worker(over_tls, "judge", "judge@test"):
            with session(over_tls.connection().database_url) as opened:
                job_id, _ = jobs.add(opened, key="k", kind="judge", queue="judge", subject="of no run", payload={})
            queued = [jobs.UnsentJob(job_id, "judge")]
            dispatch.send(dispatch.sender(over_tls.connection().broker_url), over_tls.connection().database_url, queued)
            wait_for(lambda: state(context, job_id) == "failed", log)
        engine(over_tls.connection().database_url).dispose()


def state(context: Context, job_id: int) -> str:
    with session(context.database_url) as opened:
        return opened.get_one(Job, job_id).state
