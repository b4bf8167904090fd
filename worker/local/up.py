"""Implements `tilewatch up`: runs servers, dashboard, workers and the first nightly on one machine until Ctrl-C."""

import contextlib
import functools
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tilewatch import processes
from tilewatch.db import migrate
from tilewatch.db.page_reads import queue
from tilewatch.db.server.embedded import Embedded, Servers, find_holder, write_private
from tilewatch.db.session import DATABASE_IS_AWAY, DatabaseUnreachable, find_trouble, session
from tilewatch.errors import ExpectedError
from tilewatch.kernels.device import OLDEST_DRIVER, Gpu, gpus
from tilewatch.kernels.recording.git_commit import NoHistory, repository_name
from tilewatch.worker.local import apart, port, programs, watchdog
from tilewatch.worker.local.children import Child, Children
from tilewatch.worker.local.local_logins import let_owner_act, make_dashboard_login, make_worker_login
from tilewatch.worker.local.programs import PACKAGE, SECRETS_OF_PEOPLE, withhold
from tilewatch.worker.local.screen import Screen, progress
from tilewatch.worker.process.ended import open_alarm
from tilewatch.worker.settings import CHECKOUT, Settings, find_bad_home

DASHBOARD_LIMIT_S = 120  # long, because Streamlit's first import from a cold disk is slow
GPU_WORKERS_LIMIT_S = 60
HOST = socket.gethostname()
LOOK_EVERY_S = 1.0
LOOK_AT_POSTGRES_S = 15.0
RECORDINGS = PACKAGE / "recordings"
"""The folder with the recordings that this checkout or wheel contains."""
WITHOUT_GPU = ("gemm_fp8",)
"""The kernels of a nightly on a machine without a GPU. Compiling their 500 configs per architecture takes two cores
five minutes. All kernels have 9,000 configs, for which two cores need an hour and a half."""


def end_on_signals() -> list[int]:
    """Makes SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt. Returns a list that collects the signals' numbers."""
    came: list[int] = []

    def interrupt(kind: int, _: object) -> None:
        came.append(kind)
        raise KeyboardInterrupt

    # Without this, a script's background process ignores SIGINT. The list is for psycopg, whose cleanup may replace
    # KeyboardInterrupt.
    for kind in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(kind, interrupt)
    return came


def up(settings: Settings) -> int:
    """Runs Tilewatch until Ctrl-C or SIGTERM. Returns the exit code."""
    screen = Screen()
    signals = end_on_signals()
    processes.forbid_inspection()
    processes.adopt_orphans()
    try:
        with contextlib.ExitStack() as stack:
            try:
                _run(settings, screen, stack, signals)
            except BaseException:
                if not signals:
                    raise
                screen.print_line("stopping; press Ctrl-C again to stop at once")
        processes.kill_descendants(os.getpid())  # processes that a library has started and not ended
    except KeyboardInterrupt:
        screen.print_line("stopped at once")
        return 0
    except ExpectedError as error:
        screen.print_line(f"tilewatch: {find_bad_home(error) or error}")
        return 1
    screen.print_line(f"stopped; the data stays in {settings.home}")
    return 0


class CannotRun(ExpectedError):
    """Raised if Tilewatch cannot run on this machine. The message is a sentence."""


def _run(settings: Settings, screen: Screen, stack: contextlib.ExitStack, signals: Sequence[int]) -> None:
    if reason := port.taken(settings.port):  # before the servers start, which may take a minute
        if (holder := find_holder(settings.home)) is not None:
            raise CannotRun(f"Tilewatch runs on {settings.home} already (process {holder})")
        raise CannotRun(
            f"port {settings.port} cannot be used for the dashboard ({reason}); set TILEWATCH_PORT to another"
        )
    own = None if settings.database_url else Embedded(settings.home)
    servers = stack.enter_context(own) if own else settings.connection()
    screen.print_line(f"Postgres and {'Valkey run' if own else 'Redis are your own'}; data in {settings.home}")
    os.umask(0o077)
    close_to_others(settings.home)
    migrate.upgrade(servers.database_url, screen.print_line)
    screen.print_line(f"database at revision {migrate.head()}")
    dashboard_url = servers.database_url
    if own:
        dashboard_url = make_dashboard_login(servers.database_url, let_owner_act(os.environ))
        servers = replace(servers, database_url=make_worker_login(servers.database_url))
        stack.enter_context(write_connection_file(settings.connection_file, servers))

    (settings.home / "log").mkdir(parents=True, exist_ok=True)
    children = Children(CHECKOUT, settings.home / "log", functools.partial(port.wake, settings.port))
    stack.callback(children.stop)
    gpus_here = tuple(find_usable(gpus(), screen.print_line))
    settings = limit_kernels(settings, gpus_here)
    environment = programs.child_environment(settings, servers)
    look_for_trouble = DatabaseTrouble(servers.database_url)
    hung = watchdog.start(settings.home / "log" / "up.ended")
    unwritten = [(f"up on {HOST}", hung)] if hung else []  # alarms that wait for Postgres

    def watch() -> None:
        if signals:
            raise KeyboardInterrupt
        ended = [(death.name, death.sentence) for death in children.restart_dead()]
        ended += [(sentence.partition(" ")[0], sentence) for sentence in (own.restart_ended() if own else ())]
        for name, sentence in ended:
            screen.print_line(f"tilewatch: {sentence}")
            unwritten.append((f"{name} on {HOST}", sentence))
        while unwritten and look_for_trouble() is None and open_alarm(servers.database_url, *unwritten[0]):
            del unwritten[0]

    def show() -> None:
        watch()
        ended = (*(own.waiting if own else ()), *children.waiting)
        screen.progress(progress(servers, ended, look_for_trouble()))

    visitors = let_owner_act(environment)
    children.start(programs.dashboard(settings, {**visitors, "TILEWATCH_DATABASE_URL": dashboard_url}))
    _start_api(settings, environment, children, screen)  # beside the dashboard: both need seconds of a core
    address = f"http://localhost:{settings.port}"
    answers = functools.partial(port.healthy, settings.port)
    wait(answers, watch, DASHBOARD_LIMIT_S, f"the dashboard does not answer at {address}")
    screen.print_line(f"Tilewatch is at {address}")

    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    compilers = programs.count_compilers(processes.count_cores(), memory_bytes, len(gpus_here))
    for child in programs.workers(settings, environment, gpus_here, compilers):
        children.start(child)
    named = ", ".join(f"GPU {gpu.index} ({gpu.name})" for gpu in gpus_here) or "no NVIDIA GPU to measure on"
    screen.print_line(f"workers: {compilers} compiling, 1 judging, 1 sending messages, {named}")
    if settings.kernels == WITHOUT_GPU:
        screen.print_line(
            f"nightlies here compile only {', '.join(WITHOUT_GPU)}; TILEWATCH_KERNELS=all compiles the whole suite"
        )
    no_secrets = withhold(environment, *SECRETS_OF_PEOPLE)
    run_apart = functools.partial(apart.run_apart, environment=no_secrets, logs=settings.home / "log", meanwhile=show)
    for line in run_apart("first_nightlies", failed="no nightly was submitted"):
        screen.print_line(line)
    if gpus_here:  # after the nightly, which compiles while they start
        reported = functools.partial(_all_reported, servers, len(gpus_here))
        wait(reported, watch, GPU_WORKERS_LIMIT_S, "the GPU workers did not start; see their logs")
    # after the nightly, which would otherwise wait for half a minute (64 cores, 2026-11-28)
    own_name = _name(CHECKOUT) if _watches_checkout(settings) else None
    shipped = "shipped_recordings", str(RECORDINGS), own_name or ""
    for line in run_apart(*shipped, failed="not all recordings were imported"):
        screen.print_line(line)
    while True:
        show()
        time.sleep(LOOK_EVERY_S)


class DatabaseTrouble:
    """A callable that returns a sentence about trouble with Postgres, or None. It checks at most every 15 seconds."""

    def __init__(self, database_url: str) -> None:
        self._database_url, self._look_at, self._found = database_url, 0.0, ""

    def __call__(self) -> str | None:
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_AT_POSTGRES_S
            try:
                self._found = find_trouble(self._database_url) or ""
            except DatabaseUnreachable as error:
                self._found = str(error)
        return self._found or None


def _start_api(settings: Settings, environment: Mapping[str, str], children: Children, screen: Screen) -> None:
    """Starts the API, unless its port is 0 or in use."""
    if not settings.api_port:
        return
    if reason := port.taken(settings.api_port):
        screen.print_line(
            f"programs are not answered: port {settings.api_port} cannot be used ({reason}); "
            "set TILEWATCH_API_PORT to another"
        )
        return
    serves = withhold(environment, "TILEWATCH_FORGE_TOKEN", "TILEWATCH_API_TOKEN")
    children.start(Child("api", (sys.executable, "-m", "tilewatch.worker.cli.main", "api"), serves))
    screen.print_line(f"programs are answered at http://localhost:{settings.api_port} (docs/reference/api.md)")


def close_to_others(home: Path) -> None:
    """Removes other users' rights to the contents of a data folder."""
    for each in home.iterdir():
        # Root's servers may run as nobody (db/server/user.py), so the programs stay readable.
        if each.name != "programs" and not each.is_symlink():
            each.chmod(each.stat().st_mode & 0o700)


@contextlib.contextmanager
def write_connection_file(file: Path, servers: Servers) -> Iterator[None]:
    """Writes the file with the servers' addresses for other commands, and deletes it when the block ends."""
    write_private(file, json.dumps({"database_url": servers.database_url, "broker_url": servers.broker_url}))
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def limit_kernels(settings: Settings, gpus_here: Sequence[Gpu]) -> Settings:
    """Returns the settings, limited to a few kernels if Tilewatch watches its own library without a GPU."""
    if gpus_here or settings.kernels is not None or not _watches_checkout(settings):
        return settings
    return settings.model_copy(update={"kernels": WITHOUT_GPU})


def _watches_checkout(settings: Settings) -> bool:
    """Returns whether the watched repository is this checkout of Tilewatch."""
    return settings.repository == CHECKOUT and (CHECKOUT / ".git").exists()


def find_usable(gpus_here: Iterable[Gpu], print_line: Callable[[str], None]) -> Iterator[Gpu]:
    """Yields the GPUs that can measure, and prints why the others cannot."""
    for gpu in gpus_here:
        driver = gpu.driver.split(".")[0]
        if gpu.model is None:
            print_line(f"GPU {gpu.index} ({gpu.name}) is not used: cuTile compiles for sm_80 and later")
        elif driver.isdigit() and int(driver) < OLDEST_DRIVER:
            print_line(
                f"GPU {gpu.index} ({gpu.name}) is not used: its driver {gpu.driver} is older than {OLDEST_DRIVER}"
            )
        else:
            yield gpu


def _name(repository: Path) -> str | None:
    """Returns the name of a repository; None if it has no Git history."""
    try:
        return repository_name(repository)
    except NoHistory:
        return None


def _all_reported(servers: Servers, workers: int) -> bool:
    with contextlib.suppress(*DATABASE_IS_AWAY), session(servers.database_url) as opened:
        return sum(row.kind == "gpu" and row.alive for row in queue.list_workers(opened)) >= workers
    return False


def wait(ready: Callable[[], bool], watch: Callable[[], object], limit_s: float, sentence: str) -> None:
    """Waits until `ready` returns True, and calls `watch` meanwhile. Raises CannotRun after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while not ready():
        watch()
        if time.monotonic() > deadline:
            raise CannotRun(sentence)
        time.sleep(0.1)
