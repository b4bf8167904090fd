"""Everything on one machine in one command: servers, tables, dashboard, workers, the first nightly, until Ctrl-C.

Decides what runs here and tells a person how far it is. How a server runs is db/server/embedded.py's, how a child
process lives and ends is children.py's, and what the work is the workers know.
"""

import contextlib
import functools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import tilewatch
from tilewatch import errors
from tilewatch.db import migrate
from tilewatch.db.lifecycle import jobs
from tilewatch.db.queries import queue
from tilewatch.db.server.embedded import Embedded, Servers
from tilewatch.db.session import session
from tilewatch.kernels.device import OLDEST_DRIVER, Gpu, gpus
from tilewatch.kernels.recording.git_commit import NoHistory, repository_name
from tilewatch.text import short_sha
from tilewatch.worker.local import port
from tilewatch.worker.local.children import Child, Children
from tilewatch.worker.local.doctor import PACKAGED_CUDA, nvcc
from tilewatch.worker.queue import dispatch
from tilewatch.worker.settings import CHECKOUT, Settings

DASHBOARD_LIMIT_S = 120  # Streamlit's first import on a cold disk takes long; a dead dashboard is noticed before
GPU_WORKERS_LIMIT_S = 60
LOOK_EVERY_S = 1.0
SPEAK_EVERY_S = 15.0  # where the output is no terminal
MOST_COMPILERS = 16  # each holds a database connection or two, and the embedded Postgres takes 50
MEMORY_PER_COMPILER_BYTES = 1 << 30  # tileiras needs a few hundred MB, more while it unrolls a large tile
PACKAGE = Path(tilewatch.__file__).parent
RECORDINGS = CHECKOUT / "recordings"
WITHOUT_GPU = ("gemm_fp8",)
"""What a nightly compiles where nothing is measured: 500 configs for each architecture take two cores some five
minutes, the whole suite's 9,000 an hour and a half."""


class Screen:
    """Lines for a person; the last one is overwritten while work goes on, or repeated now and then in a log."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._shown = ""
        self._spoke_at = 0.0

    def say(self, line: str) -> None:
        self._write(f"\r\033[K{line}\n" if self._terminal else f"{line}\n")
        self._shown = ""

    def progress(self, line: str) -> None:
        if line == self._shown:
            return
        if self._terminal:
            width = os.get_terminal_size(sys.stdout.fileno()).columns
            self._write(f"\r\033[K{line[: width - 1]}")
        elif time.monotonic() - self._spoke_at >= SPEAK_EVERY_S:
            self._write(f"{line}\n")
        else:
            return
        self._shown = line
        self._spoke_at = time.monotonic()

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def up(settings: Settings) -> int:
    """Runs until Ctrl-C, SIGTERM or a closed terminal. The exit code is 0 when a person ended it."""
    screen = Screen()
    for kind in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(kind, signal.default_int_handler)  # all three mean the same: end what was started
    try:
        with contextlib.ExitStack() as stack:
            try:
                _run(settings, screen, stack)
            except KeyboardInterrupt:
                screen.say("ending what was started here; once more Ctrl-C ends it at once")
    except KeyboardInterrupt:
        screen.say("ended at once")
        return 0
    except Exception as error:
        sentence = errors.sentence(error)
        if sentence is None and not isinstance(error, CannotRun):
            raise
        screen.say(f"tilewatch: {sentence or error}")
        return 1
    screen.say(f"ended; the data stays in {settings.home}")
    return 0


class CannotRun(Exception):
    """Tilewatch cannot run, or go on, on this machine; the message is a sentence."""


def _run(settings: Settings, screen: Screen, stack: contextlib.ExitStack) -> None:
    # Said now rather than after a minute of starting servers.
    if reason := port.taken(settings.port):
        raise CannotRun(
            f"port {settings.port} cannot be used for the dashboard ({reason}); set TILEWATCH_PORT to another"
        )
    own = None if settings.database_url else Embedded(settings.home)
    servers = stack.enter_context(own) if own else settings.connection()
    screen.say(f"Postgres and {'Valkey run' if own else 'Redis are given'}; data in {settings.home}")
    migrate.upgrade(servers.database_url)
    screen.say(f"database at revision {migrate.head()}")
    if own:
        stack.enter_context(announced(settings.connection_file, servers))

    (settings.home / "log").mkdir(parents=True, exist_ok=True)
    children = Children(CHECKOUT, settings.home / "log")
    stack.callback(children.stop)
    boards = tuple(usable(gpus(), screen.say))
    settings = narrowed(settings, boards)
    environment = environment_of(settings, servers)

    def watch() -> None:
        for death in children.tend():
            screen.say(f"tilewatch: {death.sentence}")
        for sentence in own.ended() if own else ():
            raise CannotRun(sentence)

    children.start(dashboard(settings, environment))
    address = f"http://localhost:{settings.port}"
    answers = functools.partial(port.healthy, settings.port)
    _wait(answers, watch, DASHBOARD_LIMIT_S, f"the dashboard does not answer at {address}")
    screen.say(f"Tilewatch is at {address}")

    compilers = compile_processes(len(os.sched_getaffinity(0)), _memory_bytes())
    for child in workers(settings, environment, boards, compilers):
        children.start(child)
    named = ", ".join(f"GPU {board.index} ({board.name})" for board in boards) or "no NVIDIA GPU to measure on"
    screen.say(f"workers: {compilers} compiling, 1 judging, {named}")
    if settings.kernels == WITHOUT_GPU:
        screen.say(f"nightlies here compile {', '.join(WITHOUT_GPU)} alone; TILEWATCH_KERNELS=all compiles the suite")
    _import(settings, servers, screen)
    if boards:  # a nightly asks for measurements on the GPU models that have a worker
        reported = functools.partial(_all_reported, servers, len(boards))
        _wait(reported, watch, GPU_WORKERS_LIMIT_S, "the GPU workers do not report; see their logs")
    _submit(settings, screen)
    while True:
        watch()
        screen.progress(progress(servers))
        time.sleep(LOOK_EVERY_S)


@contextlib.contextmanager
def announced(file: Path, servers: Servers) -> Iterator[None]:
    """The other commands find the servers through this file, which holds passwords and so belongs to one user."""
    making = file.with_suffix(".making")
    making.unlink(missing_ok=True)
    with open(os.open(making, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        json.dump({"database_url": servers.database_url, "broker_url": servers.broker_url}, out)
    making.rename(file)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def environment_of(settings: Settings, servers: Servers) -> dict[str, str]:
    return {
        **os.environ,
        "TILEWATCH_HOME": str(settings.home),
        **({"TILEWATCH_KERNELS": ",".join(settings.kernels)} if settings.kernels is not None else {}),
        "TILEWATCH_DATABASE_URL": servers.database_url,
        "TILEWATCH_BROKER_URL": servers.broker_url,
        # So that `python -m` and the programs beside it are those of the environment that `up` runs in.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYTHONUNBUFFERED": "1",
    }


def dashboard(settings: Settings, environment: Mapping[str, str]) -> Child:
    # Installed anywhere but in site-packages, Streamlit takes itself for a checkout of its own and refuses a port.
    installed = ("--global.developmentMode", "false")
    options = ("--server.port", str(settings.port), "--server.address", "localhost", "--server.headless", "true")
    not_its_own = ("TILEWATCH_BROKER_URL", "TILEWATCH_FORGE_TOKEN")
    reads_only = {name: value for name, value in environment.items() if name not in not_its_own}
    app = str(PACKAGE / "dashboard" / "server.py")
    return Child("dashboard", (sys.executable, "-m", "streamlit", "run", app, *installed, *options), reads_only)


def workers(
    settings: Settings, environment: Mapping[str, str], boards: Iterable[Gpu], compilers: int
) -> Iterator[Child]:
    """One worker for compiling, one for judging and telling, one per GPU, and the clock of the nightlies."""
    celery = (sys.executable, "-m", "celery", "-A", "tilewatch.worker.app")
    # Mingle and gossip are for workers that coordinate; ours meet in Postgres, and start a second sooner without.
    worker = (*celery, "worker", "--loglevel", "INFO", "--without-mingle", "--without-gossip")
    yield Child("compile", (*worker, "-Q", "compile", "-n", "compile@%h", "-c", str(compilers)), environment)
    yield Child("judge", (*worker, "-Q", "judge,tell", "-n", "judge@%h", "-c", "1"), environment)
    for board in boards:
        assert board.model is not None
        place = ("-Q", f"gpu.{board.model.slug}", "-n", f"gpu{board.index}@%h", "-c", "1")
        shown = {**cuda_home(), **environment, "CUDA_VISIBLE_DEVICES": board.uuid}
        yield Child(f"gpu{board.index}", (*worker, *place), shown)
    schedule = ("beat", "--loglevel", "INFO", "-s", str(settings.home / "beat"))
    yield Child("beat", (*celery, *schedule, "--pidfile="), environment)


def cuda_home() -> dict[str, str]:
    """DeepGEMM finds a machine's CUDA toolkit by itself, but not the nvcc that came with the tile compiler."""
    return {"CUDA_HOME": str(PACKAGED_CUDA)} if nvcc() == PACKAGED_CUDA / "bin" / "nvcc" else {}


def narrowed(settings: Settings, boards: Sequence[Gpu]) -> Settings:
    """Where nothing will be measured and nobody said what to sweep, not the whole of our own library's suite."""
    if boards or settings.kernels is not None or settings.repository != CHECKOUT:
        return settings
    return settings.model_copy(update={"kernels": WITHOUT_GPU})


def usable(found: Iterable[Gpu], say: Callable[[str], None]) -> Iterator[Gpu]:
    """The GPUs that can be measured on; says why another cannot."""
    for gpu in found:
        driver = gpu.driver.split(".")[0]
        if gpu.model is None:
            say(f"GPU {gpu.index} ({gpu.name}) is left alone: Tilewatch does not know this model")
        elif driver.isdigit() and int(driver) < OLDEST_DRIVER:
            say(f"GPU {gpu.index} ({gpu.name}) is left alone: its driver {gpu.driver} is older than {OLDEST_DRIVER}")
        else:
            yield gpu


def compile_processes(cores: int, memory_bytes: int) -> int:
    return max(1, min(cores, memory_bytes // MEMORY_PER_COMPILER_BYTES, MOST_COMPILERS))


def progress(servers: Servers) -> str:
    """One line: what is under way, by GPU model."""
    with session(servers.database_url) as opened:
        under_way = [row for row in queue.list_submissions(opened) if row.state in queue.IN_PROGRESS]
    if not under_way:
        return "everything that was submitted is done; Ctrl-C ends Tilewatch"
    return " · ".join(describe(row) for row in reversed(under_way))


def describe(row: queue.SubmissionRow) -> str:
    steps = f" {row.settled_trials} of {row.trials} configs" if row.state == "compiling" else ""
    return f"{row.reason} {short_sha(row.sha)} for {row.gpu_name}: {row.state}{steps}"


def _import(settings: Settings, servers: Servers, screen: Screen) -> None:
    """What was recorded of our own library belongs to this checkout, whatever its clone is called; a story in a folder
    of its own is of a repository of its own."""
    from tilewatch.worker.transfer.importing import import_file

    own = _name(CHECKOUT) if settings.repository == CHECKOUT else None
    for recording in sorted(RECORDINGS.glob("*.jsonl.gz")):
        screen.say(import_file(servers.database_url, recording, named=own).sentence)
    for recording in sorted(RECORDINGS.glob("*/*.jsonl.gz")):
        screen.say(import_file(servers.database_url, recording).sentence)
    with session(servers.database_url) as opened:
        queued = jobs.list_unsent(opened, dispatch.RESEND_AFTER_S)
    dispatch.send(dispatch.sender(servers.broker_url), servers.database_url, queued)


def _name(repository: Path) -> str | None:
    """None without Git history, which is no reason to leave the recordings out."""
    try:
        return repository_name(repository)
    except NoHistory:
        return None


def _submit(settings: Settings, screen: Screen) -> None:
    """The first nightly. A folder without Git history is no reason to take the dashboard away again."""
    from tilewatch.worker.steps.submit import submit_nightly

    try:
        screen.say(submit_nightly(settings).sentence)
    except Exception as error:
        sentence = errors.sentence(error)
        if sentence is None:
            raise
        screen.say(f"tilewatch: no nightly was submitted: {sentence}")


def _all_reported(servers: Servers, boards: int) -> bool:
    with session(servers.database_url) as opened:
        return sum(row.kind == "gpu" and row.alive for row in queue.list_workers(opened)) >= boards


def _wait(ready: Callable[[], bool], watch: Callable[[], None], limit_s: float, sentence: str) -> None:
    deadline = time.monotonic() + limit_s
    while not ready():
        watch()
        if time.monotonic() > deadline:
            raise CannotRun(sentence)
        time.sleep(0.1)


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
