"""Runs a command with the oldest servers that are supported: Debian 12's Postgres 15 and Redis 7.

Usage: python tests/debian_servers.py COMMAND...   with TEST_DATABASE_URL and TEST_REDIS_URL set for the command. The
servers live in a temporary folder, listen on free ports of 127.0.0.1 and are gone afterwards. A machine without them is
told so and nothing runs; where CI is set that is a failure.
"""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psycopg
import redis

from tilewatch.db.server.free_ports import HOST, find_free_port

POSTGRES = Path("/usr/lib/postgresql/15/bin")
PASSWORD = "of-these-tests"  # noqa: S105 - of a server that ends with them
READY_LIMIT_S = 60
DIES_WITH_US = ("setpriv", "--pdeathsig=INT")


def main(command: Sequence[str]) -> int:
    redis_server = shutil.which("redis-server")
    if not (POSTGRES / "postgres").exists() or redis_server is None:
        print(
            "NOT TESTED against Debian's Postgres 15 and Redis 7: apt-get install postgresql redis-server",
            file=sys.stderr,
        )
        return 1 if os.environ.get("CI") else 0
    with tempfile.TemporaryDirectory(prefix="tilewatch-debian-") as folder, contextlib.ExitStack() as stack:
        database_url = stack.enter_context(postgres(Path(folder)))
        redis_url = stack.enter_context(redis_of(redis_server, Path(folder)))
        print("against Debian's Postgres 15 and Redis 7:", flush=True)
        environment = {**os.environ, "TEST_DATABASE_URL": database_url, "TEST_REDIS_URL": redis_url}
        return subprocess.run(command, env=environment, check=False).returncode


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[str]:
    data = folder / "postgres"
    data.mkdir(mode=0o700)
    unprivileged: tuple[str, ...] = ()
    if os.geteuid() == 0:  # Postgres refuses to run as root
        nobody = pwd.getpwnam("nobody")
        folder.chmod(0o711)
        os.chown(data, nobody.pw_uid, nobody.pw_gid)
        unprivileged = (f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups")
    as_user = (*DIES_WITH_US, *unprivileged, "--")
    password = folder / "password"
    password.write_text(PASSWORD)
    password.chmod(0o644)
    asked = ("--auth=scram-sha-256", f"--pwfile={password}")  # a login's password is among what is tested
    making = (POSTGRES / "initdb", "-D", data, "-U", "postgres", *asked, "--no-sync", "--encoding=UTF8")
    subprocess.run([*as_user, *map(str, making)], check=True, stdout=subprocess.DEVNULL, cwd="/")
    port = find_free_port()
    options = ("-p", str(port), "-h", HOST, "-k", "", "-c", "fsync=off", "-c", "max_connections=100")
    url = f"postgresql://postgres:{PASSWORD}@{HOST}:{port}/postgres"
    with running([*as_user, str(POSTGRES / "postgres"), "-D", str(data), *options], folder / "postgres.log"):
        wait(lambda: psycopg.connect(url).close(), psycopg.OperationalError)
        yield url


@contextlib.contextmanager
def redis_of(program: str, folder: Path) -> Iterator[str]:
    port = find_free_port()
    options = ("--port", str(port), "--bind", HOST, "--save", "", "--appendonly", "no", "--dir", str(folder))
    url = f"redis://{HOST}:{port}/0"
    with running([*DIES_WITH_US, "--", program, *options], folder / "redis.log"), redis.Redis.from_url(url) as client:
        wait(client.ping, redis.ConnectionError)
        yield url


@contextlib.contextmanager
def running(command: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, cwd="/", process_group=0) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)


def wait(ready: Callable[[], object], not_yet: type[Exception]) -> None:
    deadline = time.monotonic() + READY_LIMIT_S
    while True:
        try:
            ready()
            return
        except not_yet:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit("usage: python tests/debian_servers.py COMMAND...")
    sys.exit(main(sys.argv[1:]))
