"""Starts PgBouncer in front of a Postgres, with the settings of docs/operate/nodes.md."""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import make_url

from tilewatch.db.server.free_ports import find_free_port

START_LIMIT_S = 30.0


@contextlib.contextmanager
def open_pool(program: str, database_url: str, folder: Path) -> Iterator[str]:
    """Starts PgBouncer 1.21 or newer by the command `program`. Yields the URL by which workers reach the database
    through it."""
    url = make_url(database_url)
    port = find_free_port()
    folder.mkdir()
    logins, settings = folder / "logins.txt", folder / "pgbouncer.ini"
    logins.write_text(f'"{url.username}" "{url.password}"\n')
    settings.write_text(f"""
[databases]
* = host={url.host} port={url.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {logins}
pool_mode = transaction
max_prepared_statements = 200
default_pool_size = 100
max_client_conn = 5000
log_connections = 0
log_disconnections = 0
{"user = nobody" if os.geteuid() == 0 else ""}
""")
    for each in (folder, logins, settings):
        each.chmod(0o755)  # PgBouncer runs as nobody when this is run by root; the password is made for this one run
    started = subprocess.Popen([program, "--quiet", str(settings)])
    try:
        _wait(started, port)
        yield url.set(port=port).render_as_string(hide_password=False)
    finally:
        started.terminate()
        started.wait()


def _wait(started: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and started.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise SystemExit(f"PgBouncer does not answer on port {port} after {START_LIMIT_S:.0f} s")
