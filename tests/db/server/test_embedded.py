"""The servers of one machine: there when started, gone with their starter, and clear about what is in their way."""

import contextlib
import fcntl
import json
import os
import pwd
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from tilewatch.db.server import programs, user
from tilewatch.db.server.embedded import Embedded, EmbeddedError, Servers, find_holder

REPOSITORY = Path(__file__).parents[3]
ROOT = os.geteuid() == 0
only_root = pytest.mark.skipif(not ROOT, reason="only root can become another user")

STARTER = """
import sys, time
from pathlib import Path
from tilewatch.db.server.embedded import Embedded
servers = Embedded(Path(sys.argv[1]), fsync=False).start()
print(servers.database_url, servers.broker_url, flush=True)
time.sleep(600)
"""


def test_both_servers_answer_and_keep_what_is_written(scratch: Path) -> None:
    """What was written before a stop is there after the next start, on other ports."""
    with Embedded(scratch) as servers:
        _remember(servers, "before the stop")
    assert not _taken(servers)
    with Embedded(scratch) as servers:
        assert _remembered(servers) == "before the stop"


def test_no_password_no_entry(scratch: Path) -> None:
    with Embedded(scratch, fsync=False) as servers:
        password = json.loads((scratch / "secrets.json").read_text())
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(servers.database_url.replace(password["postgres"], "guess"))
        with (
            pytest.raises(redis.AuthenticationError),
            redis.Redis.from_url(servers.broker_url.replace(password["valkey"], "guess")) as client,
        ):
            client.ping()


def test_passwords_are_shown_to_nobody(scratch: Path) -> None:
    """Not in a file that others may read, not in a command line, not when the servers' addresses are printed."""
    with Embedded(scratch, fsync=False) as servers:
        secrets = scratch / "secrets.json"
        assert stat.S_IMODE(secrets.stat().st_mode) == 0o600
        for password in json.loads(secrets.read_text()).values():
            assert password not in repr(servers)
            assert not any(password.encode() in command for command in _commands())


def test_only_this_machine_can_reach_the_servers(scratch: Path) -> None:
    with Embedded(scratch, fsync=False) as servers:
        ports = {f"{port:04X}" for port in _ports(servers)}
        listening = [
            line.split()[1].split(":")
            for table in ("tcp", "tcp6")
            for line in Path("/proc/net", table).read_text().splitlines()[1:]
            if line.split()[3] == "0A"
        ]
        assert {address for address, port in listening if port in ports} == {"0100007F"}


def test_connections_that_never_log_in_are_closed_by_the_server(scratch: Path) -> None:
    """Another user of this machine may open as many as he likes; without their end nobody else would get in."""
    with Embedded(scratch, fsync=False) as servers:
        with psycopg.connect(servers.database_url) as owner:
            assert owner.execute("show authentication_timeout").fetchone() == ("5s",)
        login = struct.pack("!I", 3 << 16) + b"user\0tilewatch\0\0"  # protocol 3.0
        greeting = struct.pack("!I", 4 + len(login)) + login
        held = [socket.create_connection(("127.0.0.1", _ports(servers)[0])) for _ in range(80)]
        for each in held:
            each.sendall(greeting)
        for each in held:
            with contextlib.suppress(ConnectionResetError):
                while each.recv(4096):
                    pass  # asked for a password; then closed
            each.close()
        psycopg.connect(servers.database_url).close()


def test_workers_and_dashboard_leave_the_owner_a_connection(scratch: Path) -> None:
    with Embedded(scratch, fsync=False) as servers, contextlib.ExitStack() as opened:
        with psycopg.connect(servers.database_url, autocommit=True) as owner:
            owner.execute("create role worker login password 'worker'")
        password = json.loads((scratch / "secrets.json").read_text())["postgres"]
        url = servers.database_url.replace(f"tilewatch:{password}", "worker:worker")
        with pytest.raises(psycopg.OperationalError, match="remaining connection slots are reserved"):
            _open_without_end(url, opened)
        psycopg.connect(servers.database_url).close()


def _open_without_end(url: str, opened: contextlib.ExitStack) -> None:
    while True:
        opened.enter_context(contextlib.closing(psycopg.connect(url)))


def test_a_killed_starter_leaves_nothing_running(scratch: Path) -> None:
    """Not even after SIGKILL, not even with a transaction open; and the next start finds the data whole."""
    with _started_elsewhere(scratch) as (starter, servers):
        _remember(servers, "before the kill")
        with contextlib.closing(psycopg.connect(servers.database_url)) as client:
            client.execute("select 1")
            starter.kill()
            _eventually(lambda: _lock_is_free(scratch))
            assert not _taken(servers)
    with Embedded(scratch, fsync=False) as again:
        assert _remembered(again) == "before the kill"


def test_a_start_right_after_a_kill_waits_for_the_old_servers(scratch: Path) -> None:
    with _started_elsewhere(scratch) as (starter, servers):
        _remember(servers, "before the kill")
        postgres_port, broker_port = _ports(servers)
        starter.kill()
        starter.wait()
        with Embedded(scratch, fsync=False, postgres_port=postgres_port, broker_port=broker_port) as again:
            assert _remembered(again) == "before the kill"


def test_whoever_runs_on_a_data_folder_is_found(scratch: Path) -> None:
    assert find_holder(scratch) is None
    with Embedded(scratch, fsync=False):
        assert find_holder(scratch) == str(os.getpid())
    assert find_holder(scratch) is None


def test_a_second_start_on_the_same_data_is_refused(scratch: Path) -> None:
    with (
        Embedded(scratch, fsync=False) as servers,
        pytest.raises(EmbeddedError, match=f"another Tilewatch .process {os.getpid()}. already runs on {scratch}"),
    ):
        Embedded(scratch, fsync=False).start()
    assert not _taken(servers)


@pytest.mark.parametrize("server", ["Postgres", "Valkey"])
def test_a_taken_port_is_reported_in_one_sentence(scratch: Path, server: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ports = {"postgres_port": port} if server == "Postgres" else {"broker_port": port}
        with pytest.raises(EmbeddedError, match=f"{server} cannot listen on port {port} of 127.0.0.1: Address already"):
            Embedded(scratch, **ports).start()
    assert _lock_is_free(scratch)


def test_a_folder_that_cannot_be_written_is_reported_in_one_sentence(scratch: Path) -> None:
    (scratch / "file").write_text("not a folder")
    with pytest.raises(EmbeddedError, match=f"the data folder {scratch}/file/home cannot be used: .*Not a directory"):
        Embedded(scratch / "file" / "home").start()


def test_lost_passwords_are_reported_in_one_sentence(scratch: Path) -> None:
    with Embedded(scratch, fsync=False):
        pass
    (scratch / "secrets.json").unlink()
    with pytest.raises(EmbeddedError, match=f"{scratch}/secrets.json is missing"):
        Embedded(scratch).start()


def test_data_that_postgres_refuses_ends_the_start_with_its_reason(scratch: Path) -> None:
    """And leaves the other server not running either."""
    with Embedded(scratch, fsync=False):
        pass
    (scratch / "postgres" / "PG_VERSION").write_text("9.6\n")
    with pytest.raises(EmbeddedError, match=r"postgres did not start: .*version 9\.6"):
        Embedded(scratch).start()
    assert _lock_is_free(scratch)


def test_a_half_made_database_is_made_again(scratch: Path) -> None:
    (scratch / "postgres.making").mkdir(parents=True)
    (scratch / "postgres.making" / "PG_VERSION").write_text("18\n")
    with Embedded(scratch, fsync=False) as servers:
        _remember(servers, "made")


def test_a_number_reused_after_a_crash_does_not_stop_postgres(scratch: Path) -> None:
    """A crash leaves Postgres' process id in a file; by the next start it may be anybody's, such as ours."""
    with Embedded(scratch, fsync=False):
        pass
    (scratch / "postgres" / "postmaster.pid").write_text(f"{os.getpid()}\n{scratch}/postgres\n1\n5432\n\n127.0.0.1\n")
    with Embedded(scratch, fsync=False) as servers:
        _remember(servers, "started")


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_servers_that_end_are_started_again_where_they_were(scratch: Path, end: signal.Signals) -> None:
    embedded = Embedded(scratch)  # without fsync a kill loses the last commits
    try:
        servers = embedded.start()
        _remember(servers, "before")
        assert embedded.restart_ended() == []
        for name in ("postgres", "valkey"):
            embedded._running[name].send_signal(end)
            embedded._running[name].wait()
        (postgres, valkey) = embedded.restart_ended()
        assert postgres.startswith("postgres ended unexpectedly (")
        assert valkey.endswith("; it is started again in 0.5 s")
        assert embedded.waiting == ("postgres", "valkey")
        _eventually(lambda: embedded.restart_ended() == [] and embedded.waiting == ())
        _eventually(lambda: _answers(servers))
        assert _remembered(servers) == "before"
    finally:
        embedded.stop()


def test_a_server_that_does_not_start_is_tried_again_with_growing_pauses(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded = Embedded(scratch, fsync=False)
    try:
        embedded.start()
        (scratch / "postgres" / "PG_VERSION").rename(scratch / "PG_VERSION")
        now = time.monotonic()
        monkeypatch.setattr("tilewatch.db.server.embedded.time.monotonic", lambda: now)
        embedded._running["postgres"].kill()
        pauses = []
        for _ in range(9):
            embedded._running["postgres"].wait()
            (sentence,) = embedded.restart_ended()
            pauses.append(embedded._pauses_s["postgres"])
            now += pauses[-1]
            assert embedded.restart_ended() == []
        assert pauses == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]
        assert 'PG_VERSION" is missing' in sentence
    finally:
        embedded.stop()


def test_a_thread_may_not_start_the_servers(scratch: Path) -> None:
    """They would end with the thread, while the process goes on."""
    refused: list[str] = []

    def start() -> None:
        with pytest.raises(EmbeddedError) as caught:
            Embedded(scratch).start()
        refused.append(str(caught.value))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert refused == ["the servers can only be started by the main thread"]


@only_root
def test_root_may_keep_the_data_where_only_root_may_go(scratch: Path) -> None:
    """And no folder becomes more open for it."""
    if not user.namespaces_allowed():
        pytest.skip("user namespaces are not allowed here")
    closed = scratch / "closed"
    closed.mkdir(mode=0o700)
    with Embedded(closed / "home", fsync=False) as servers:
        _remember(servers, "as root")
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


@only_root
def test_root_without_namespaces_runs_the_servers_as_nobody(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data changes hands when a machine that had namespaces no longer has them, and back."""
    with Embedded(scratch, fsync=False) as servers:
        _remember(servers, "as root")
    with monkeypatch.context() as patched:
        patched.setattr(user, "namespaces_allowed", lambda: False)
        with Embedded(scratch, fsync=False) as servers:
            assert _remembered(servers) == "as root"
            assert (scratch / "postgres").stat().st_uid == pwd.getpwnam("nobody").pw_uid
    with Embedded(scratch, fsync=False) as servers:
        assert _remembered(servers) == "as root"


@only_root
def test_nobody_cannot_work_where_only_root_may_go(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user, "namespaces_allowed", lambda: False)
    closed = scratch / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(EmbeddedError, match=f"nobody, who cannot enter {closed}/home; choose a data folder"):
        Embedded(closed / "home").start()


@only_root
def test_an_ordinary_user_needs_nothing_special(scratch: Path) -> None:
    nobody = user.choose()
    if not (nobody.can_enter(REPOSITORY) and nobody.can_enter(Path(sys.executable))):
        pytest.skip(f"an ordinary user cannot enter {REPOSITORY} or run {sys.executable}")
    nobody.own(scratch)
    with _started_elsewhere(scratch / "home", nobody.command) as (_, servers):
        _remember(servers, "as an ordinary user")


def test_programs_that_cannot_be_run_where_they_are_work_as_copies(scratch: Path) -> None:
    copied = programs.find(lambda _: False, scratch / "programs")
    for program in (copied.initdb, copied.postgres, copied.valkey):
        assert program.is_relative_to(scratch)
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        assert " 18." in version or "Valkey" in version


def _remember(servers: Servers, text: str) -> None:
    with psycopg.connect(servers.database_url) as connection:
        connection.execute("create table memory as select %s as line", [text])
    with redis.Redis.from_url(servers.broker_url) as client:
        client.set("line", text)


def _remembered(servers: Servers) -> str:
    with psycopg.connect(servers.database_url) as connection, redis.Redis.from_url(servers.broker_url) as client:
        (line,) = connection.execute("select line from memory").fetchone() or ("nothing",)
        assert client.get("line") == line.encode()
        return str(line)


def _answers(servers: Servers) -> bool:
    try:
        _remembered(servers)
    except (psycopg.OperationalError, redis.RedisError):
        return False
    return True


@contextlib.contextmanager
def _started_elsewhere(home: Path, before: tuple[str, ...] = ()) -> Iterator[tuple[subprocess.Popen[str], Servers]]:
    """Servers whose starter can be killed; it is, at the end, if it was not before."""
    starter = subprocess.Popen(
        [*before, sys.executable, "-c", STARTER, str(home)], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    )
    assert starter.stdout is not None
    try:
        yield starter, Servers(*starter.stdout.readline().split())
    finally:
        starter.kill()
        starter.communicate()
        _eventually(lambda: _lock_is_free(home))  # each server holds the lock as long as it runs


def _ports(servers: Servers) -> tuple[int, int]:
    postgres, broker = (int(url.split(":")[3].split("/")[0]) for url in (servers.database_url, servers.broker_url))
    return postgres, broker


def _taken(servers: Servers) -> bool:
    def answers(port: int) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    return any(answers(port) for port in _ports(servers))


def _lock_is_free(home: Path) -> bool:
    with (home / "lock").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _commands() -> list[bytes]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found.append((process / "cmdline").read_bytes())
        except OSError:  # ended meanwhile
            continue
    return found


def _eventually(is_so: Callable[[], bool], patience_s: float = 120) -> None:
    deadline = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)
