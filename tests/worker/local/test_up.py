"""`tilewatch up` as a person uses it: one process, Ctrl-C, and again, with a small watched repository."""

import contextlib
import datetime as dt
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import event, make_url, update

from tests.conftest import Admin
from tests.worker.fixtures import small_disk as disks
from tests.worker.fixtures import tiny_repository
from tilewatch import processes
from tilewatch.db.lifecycle import jobs
from tilewatch.db.models import Job
from tilewatch.db.page_reads.submissions import SubmissionRow
from tilewatch.db.server.embedded import Servers
from tilewatch.db.server.free_ports import find_free_port, find_free_ports
from tilewatch.db.session import engine, session
from tilewatch.kernels.device import GPU_MODELS, Gpu
from tilewatch.worker.local import port, programs, screen, shipped_recordings, up
from tilewatch.worker.local.local_logins import MOST_OF_WORKERS
from tilewatch.worker.queue import dispatch
from tilewatch.worker.settings import Settings

DEADLINE_S = 300.0  # against a hang: a message that is lost while a worker starts is sent again after up to two minutes
LOOK_EVERY_S = 0.5
"""To look costs a login to Postgres, or a look at every process of the machine."""
TRIALS = len(tiny_repository.PROBLEMS) * tiny_repository.CONFIGS
ROOT = Path(__file__).parents[3]
SMALL_RECORDING = ROOT / "recordings" / "story" / "h200.jsonl.gz"
FOREIGN_RECORDING = ROOT / "recordings" / "rivals" / "h200-cublas.jsonl.gz"
START = """
import os, pathlib
from tilewatch.worker.cli.main import main
from tilewatch.worker.local import children, programs, up, watchdog
children.STILL_S = watchdog.STILL_S = 12.0
up.RECORDINGS = pathlib.Path({recordings!r})
hang, progress = pathlib.Path({recordings!r}, "hang"), up.progress
up.progress = lambda *given: os.read(os.pipe()[0], 1) if hang.exists() else progress(*given)
if not {workers!r}:
    programs.workers = lambda *_: ()
main()
"""


IMPATIENT = """
from tilewatch.worker.local import screen, up
screen.PRINT_EVERY_S = up.LOOK_AT_POSTGRES_S = 0.5
"""


@pytest.fixture(scope="module")
def tilewatch(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command, in a checkout whose recordings are small: those of this one take ten seconds of two cores."""
    recordings = tmp_path_factory.mktemp("recordings")
    (recordings / "elsewhere").mkdir()
    shutil.copy(SMALL_RECORDING, recordings / "own.jsonl.gz")
    shutil.copy(FOREIGN_RECORDING, recordings / "elsewhere" / "foreign.jsonl.gz")
    return [sys.executable, "-c", START.format(recordings=str(recordings), workers=True)]


@pytest.fixture
def environment(scratch: Path) -> dict[str, str]:
    """A home, a port and a repository of the test's own."""
    port, api_port = find_free_ports(2)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TILEWATCH_")}
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),  # of a copy of the tree, where there is one
        "TILEWATCH_HOME": str(scratch / "home"),
        "TILEWATCH_PORT": str(port),
        "TILEWATCH_API_PORT": str(api_port),
        "TILEWATCH_REPOSITORY": str(tiny_repository.make(scratch / "watched")),
        "TILEWATCH_LIBRARY": "library",
        "TILEWATCH_WATCH": "h200",
        "TILEWATCH_FORGE_TOKEN": "of-the-forge",
    }


SETTLED = """
    select count(*) from trials join sweeps on sweeps.id = sweep_id join submissions on submissions.id = submission_id
    where reason = 'nightly' and status <> 'waiting'
"""  # the recordings bring trials of their own


class Running:
    """`tilewatch up` under way. Its output goes to a file, because a pipe that nobody reads would stop it."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], output: Path) -> None:
        self.environment, self.output = environment, output
        with output.open("wb") as out:
            up_command = [*command, "up"]
            self.process = processes.start(up_command, environment=environment, log=out, folder=Path("/"))

    def printed(self) -> str:
        return self.output.read_text(encoding="utf-8")

    def until(self, true: Callable[[], object]) -> None:
        def goes_on() -> object:
            assert self.process.poll() is None, self.printed()
            assert "ended unexpectedly" not in self.printed(), self.printed()
            return true()

        self.wait(goes_on)

    def wait(self, true: Callable[[], object]) -> None:
        """Also beyond an unexpected end of a child, which the test brought about."""
        deadline = time.monotonic() + DEADLINE_S
        while not true():
            assert time.monotonic() < deadline, self.printed()
            time.sleep(LOOK_EVERY_S)

    def until_compiled(self) -> None:
        self.until(lambda: self.settled_trials() == TRIALS)

    def settled_trials(self) -> int:
        try:
            with psycopg.connect(self.written("database_url")) as connection:
                row = connection.execute(SETTLED).fetchone()
        except (FileNotFoundError, psycopg.Error):  # it is only starting
            return 0
        return int(row[0]) if row else 0

    def written(self, name: str) -> str:
        """An address of its servers, as other commands find it."""
        file = Path(self.environment["TILEWATCH_HOME"]) / "connection.json"
        return str(json.loads(file.read_text())[name])

    def forgot_the_dead(self) -> bool:
        """Does what two minutes do to the jobs and messages of workers that were killed; False: not yet."""
        over = "update jobs set lease_until = pg_postmaster_start_time() where state = 'running'"
        return self._changed(over) and self.forgot_waits()

    def forgot_waits(self) -> bool:
        """Does it to messages alone, and to jobs that were put off. Asked again and again, it takes no lease away: on a
        busy machine a job would run three times and be given up."""
        lost = "update jobs set sent_at = now() - interval '2 min', not_before = null where state = 'queued'"
        return self._changed(lost)

    def _changed(self, statement: str) -> bool:
        try:
            with psycopg.connect(self.written("database_url")) as connection:
                connection.execute(statement.encode())
        except psycopg.Error:
            return False
        return True

    def end(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        return self.process.wait(DEADLINE_S)


@pytest.fixture
def start(tilewatch: list[str], environment: dict[str, str], scratch: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def one(command: Sequence[str] = tilewatch) -> Running:
        started.append(Running(command, environment, scratch / f"output{len(started)}"))
        return started[-1]

    yield one
    for running in started:
        running.end(signal.SIGTERM)


def _descendants(parent: int) -> dict[int, str]:
    """Every process below one, with its command line."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    found: dict[int, str] = {}
    todo = [parent]
    while todo:
        above = todo.pop()
        for pid in (pid for pid, parent in parents.items() if parent == above):
            found[pid] = _command(pid)
            todo.append(pid)
    return found


def _command(pid: int) -> str:
    """Empty for a process that is gone, or waits to be buried."""
    return _read(pid, "cmdline").replace("\0", " ")


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _left(processes: dict[int, str]) -> list[str]:
    """Those that still run, and are not just another process with a number used again."""
    return [command for pid, command in processes.items() if command and _command(pid) == command]


def _series(environment: dict[str, str]) -> str:
    """What programs are answered; empty while nobody answers."""
    try:
        with urllib.request.urlopen(f"http://localhost:{environment['TILEWATCH_API_PORT']}/v1/series") as answer:
            return str(answer.read().decode())
    except urllib.error.URLError:
        return ""


def _stop_and_see_it_restarted(running: Running, words: str) -> None:
    """Stops a child as a debugger does. `up` ends it, says so, opens an alarm and starts it again."""
    (stopped,) = (
        pid for pid, command in _descendants(running.process.pid).items() if words in command and os.getpgid(pid) == pid
    )
    os.kill(stopped, signal.SIGSTOP)

    def is_restarted() -> bool:
        named = [pid for pid, command in _descendants(running.process.pid).items() if words in command]
        return bool(named) and stopped not in named

    running.wait(is_restarted)
    assert "judge ended unexpectedly (it made no progress for 12 s and was ended)" in running.printed()
    with psycopg.connect(running.written("database_url")) as connection:
        alarms = connection.execute("select subject, detail from alarms where kind = 'process_ended' order by id")
        (up_ended, why), (judge_ended, _) = alarms.fetchall()
    assert (up_ended, why) == (f"up on {socket.gethostname()}", "up made no progress")
    assert judge_ended == f"judge on {socket.gethostname()}"


def _list_open_to_others(home: Path) -> list[str]:
    return [each.name for each in home.iterdir() if each.is_dir() and each.stat().st_mode & 0o077]


def test_a_killed_one_leaves_no_process_and_the_next_does_the_rest_and_ends_at_ctrl_c(
    tilewatch: list[str], start: Callable[..., Running], environment: dict[str, str]
) -> None:
    """Everything that runs, asked of two starts: each takes 10 s of CPU."""
    first = start()
    with_token: set[str] = set()

    def submitted() -> bool:
        for pid, command in _descendants(first.process.pid).items():
            with contextlib.suppress(OSError):
                if b"of-the-forge" in Path(f"/proc/{pid}/environ").read_bytes():
                    with_token.add(command)
        return "submitted the nightly" in first.printed()

    first.until(submitted)
    # Programs of the system have it too, for a moment; and what was forked and has not started yet.
    python = {command for command in with_token if " -m " in command} - {_command(first.process.pid)}
    assert all("-Q tell" in command for command in python), python
    assert python or os.geteuid(), "root sees it"
    assert "1 judging, 1 sending messages, " in first.printed()
    first.until(lambda: "foreign.jsonl.gz" in first.printed())  # recordings are imported after the nightly is submitted
    assert "imported 6 runs" in first.printed()
    home = Path(environment["TILEWATCH_HOME"])
    assert _list_open_to_others(home) == []
    processes = _descendants(first.process.pid)
    workers = {pid: command for pid, command in processes.items() if "celery" in command}
    umasks = {pid: _read(pid, "status").partition("\nUmask:\t")[2][:4] for pid in workers}
    here = [pid for pid, command in workers.items() if _command(pid) == command]  # others ended meanwhile
    assert {umasks[pid] for pid in here} == {"0077"}, "what they make is open to others"
    first.end(signal.SIGKILL)
    first.wait(lambda: not _left(processes))

    (home / "log" / "up.ended").write_text("up made no progress")
    second = start()
    second.until(lambda: "database at revision" in second.printed())
    second.until(second.forgot_the_dead)
    second.until(lambda: "was submitted before" in second.printed())
    second.until(lambda: port.healthy(int(environment["TILEWATCH_PORT"])))
    dispatch.sender(second.written("broker_url")).send_task(
        "worker.reconcile", queue="judge"
    )  # as beat does in a minute
    second.until_compiled()

    def list_kinds() -> set[str]:
        status = subprocess.run(
            [*tilewatch, "status", "--json"], env=environment, cwd="/", capture_output=True, check=True
        )
        return {worker["kind"] for worker in json.loads(status.stdout)["workers"]}

    second.until(lambda: list_kinds() == {"compile", "judge", "tell"})
    second.until(lambda: "gemm" in _series(environment))

    _stop_and_see_it_restarted(second, "-Q judge")
    for own_port, words in (
        (environment["TILEWATCH_PORT"], f"Tilewatch runs on {home} already (process {second.process.pid})"),
        (str(find_free_port()), "another Tilewatch"),
    ):
        again = subprocess.run(
            [*tilewatch, "up"],
            env={**environment, "TILEWATCH_PORT": own_port},
            cwd="/",
            capture_output=True,
            text=True,
        )
        assert again.returncode == 1
        assert words in again.stdout
    assert second.process.poll() is None

    processes = _descendants(second.process.pid)
    assert _list_open_to_others(home) == []
    with psycopg.connect(second.written("database_url")) as connection:
        assert connection.execute("select rolsuper from pg_roles where rolname = current_user").fetchone() == (False,)
    assert {"postgres", "valkey", "streamlit", "celery"} <= {
        name
        for name in ("postgres", "valkey", "streamlit", "celery")
        if any(name in each for each in processes.values())
    }
    assert second.end(signal.SIGINT) == 0, second.printed()
    second.wait(lambda: not _left(processes))  # a kill returns before the process has ended
    assert not (home / "connection.json").exists()


def test_a_taken_port_is_one_sentence_and_starts_nothing(tilewatch: list[str], environment: dict[str, str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", int(environment["TILEWATCH_PORT"])))
        refused = subprocess.run([*tilewatch, "up"], env=environment, cwd="/", capture_output=True, text=True)
    assert refused.returncode == 1
    assert refused.stdout.count("\n") == 1
    assert "set TILEWATCH_PORT to another" in refused.stdout
    assert not Path(environment["TILEWATCH_HOME"]).exists()


def test_a_folder_without_git_history_still_gets_a_dashboard_and_a_main_thread_that_hangs_ends_it(
    start: Callable[..., Running], environment: dict[str, str], scratch: Path
) -> None:
    """Without recordings, the API and workers, which another start has: 12 s of CPU time, not 22 (2026-11-23)."""
    empty = scratch / "empty"
    empty.mkdir()
    environment |= {"TILEWATCH_REPOSITORY": str(empty), "TILEWATCH_API_PORT": "0"}
    running = start([sys.executable, "-c", START.format(recordings=str(empty), workers=False)])
    running.until(lambda: "no nightly was submitted" in running.printed())
    running.until(lambda: port.healthy(int(environment["TILEWATCH_PORT"])))
    below = _descendants(running.process.pid)
    (empty / "hang").touch()
    assert running.process.wait(DEADLINE_S) == 1
    reason = (Path(environment["TILEWATCH_HOME"]) / "log" / "up.ended").read_text()
    assert reason.startswith("up made no progress for 12 s and was ended (<lambda> at <string>:")
    assert f"tilewatch: {reason}" in running.printed()
    running.wait(lambda: not _left(below))  # nobody waits for servers, which end by themselves


@pytest.fixture
def small_disk(environment: dict[str, str]) -> Iterator[Path]:
    """A home on a disk of its own."""
    home = Path(environment["TILEWATCH_HOME"])
    home.mkdir()
    with disks.mount(home, "300m"):
        yield home


@contextlib.contextmanager
def full_disk(home: Path, _: str) -> Iterator[None]:
    with disks.fill(home):
        yield


@contextlib.contextmanager
def read_only(_: Path, owner_url: str) -> Iterator[None]:
    with psycopg.connect(owner_url, autocommit=True) as owner:
        owner.execute("alter system set default_transaction_read_only = on")
        owner.execute("select pg_reload_conf()")
        yield
        owner.execute("set default_transaction_read_only = off")
        owner.execute("alter system reset default_transaction_read_only")
        owner.execute("select pg_reload_conf()")


@contextlib.contextmanager
def out_of_connections(_: Path, owner_url: str) -> Iterator[None]:
    with psycopg.connect(owner_url, autocommit=True) as owner:
        owner.execute("alter role tilewatch_worker connection limit 0")
        owner.execute("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'tilewatch_worker'")
        yield
        owner.execute(f"alter role tilewatch_worker connection limit {MOST_OF_WORKERS}")


TROUBLES = {
    full_disk: "No space left on device",
    read_only: "takes no change: it is read-only",
    out_of_connections: "too many connections for role",
}
"""What is done to an instance, and what `up` prints then."""


def test_a_full_disk_a_read_only_postgres_and_used_up_connections_are_named_and_then_it_goes_on_by_itself(
    start: Callable[..., Running], environment: dict[str, str], small_disk: Path, scratch: Path
) -> None:
    empty, watched = scratch / "empty", Path(environment["TILEWATCH_REPOSITORY"])
    empty.mkdir()
    environment |= {"TILEWATCH_API_PORT": "0"}
    command = [sys.executable, "-c", IMPATIENT + START.format(recordings=str(empty), workers=True)]
    running = start(command)
    running.until_compiled()
    password = json.loads((small_disk / "secrets.json").read_text())["postgres"]
    port = make_url(running.written("database_url")).port
    owner_url = f"postgresql://tilewatch:{password}@127.0.0.1:{port}/tilewatch"
    for number, (trouble, words) in enumerate(TROUBLES.items(), start=2):
        tiny_repository.commit(watched, "Change", factor=1 + number)
        begun = len(running.printed())
        with trouble(small_disk, owner_url):
            running.wait(lambda begun=begun, words=words: words in running.printed()[begun:])  # type: ignore[misc]
            refused = submit(command, environment)
            assert "Traceback" not in refused.stdout + refused.stderr
        running.wait(lambda: submit(command, environment).returncode == 0)
        running.wait(running.forgot_the_dead)
        wanted = number * TRIALS
        running.wait(lambda wanted=wanted: running.forgot_waits() and running.settled_trials() >= wanted)  # type: ignore[misc]
    assert running.process.poll() is None
    with psycopg.connect(owner_url) as owner:
        states = owner.execute("select state, count(*) from jobs group by state").fetchall()
        assert [state for state, _ in states if state not in ("done", "queued", "waiting")] == []
    assert running.settled_trials() == 4 * TRIALS


def submit(command: Sequence[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    asked = [*command, "submit", "nightly"]
    return subprocess.run(asked, env=environment, cwd="/", capture_output=True, text=True, timeout=DEADLINE_S)


@pytest.mark.parametrize(
    ("cores", "memory_gb", "gpus", "compilers"),
    [(2, 24, 0, 2), (8, 4, 0, 4), (128, 1024, 0, 128), (1, 0, 0, 1), (64, 512, 4, 48), (2, 24, 1, 1)],
)
def test_as_many_compilers_as_the_machine_has_cores_and_memory_for(
    cores: int, memory_gb: int, gpus: int, compilers: int
) -> None:
    assert programs.count_compilers(cores, memory_gb << 30, gpus) == compilers


@pytest.mark.parametrize(("compilers", "processes", "threads"), [(2, 2, 1), (16, 16, 1), (56, 14, 4), (20, 10, 2)])
def test_compilers_share_few_processes_with_database_connections(
    tmp_path: Path, compilers: int, processes: int, threads: int
) -> None:
    settings = Settings(home=tmp_path)
    child = next(each for each in programs.workers(settings, {}, (), compilers) if each.name == "compile")
    assert child.command[-2:] == ("-c", str(processes))
    assert child.environment["TILEWATCH_COMPILE_THREADS"] == str(threads)
    assert processes <= programs.MOST_COMPILE_PROCESSES


def test_each_usable_gpu_gets_a_worker_that_sees_only_it_and_for_the_others_the_reason_is_printed(
    tmp_path: Path,
) -> None:
    h200 = next(model for model in GPU_MODELS if model.slug == "h200")
    found = (
        Gpu(0, "GPU-0", "NVIDIA H200", "580.159", h200),
        Gpu(1, "GPU-1", "NVIDIA H200", "570.12", h200),
        Gpu(2, "GPU-2", "NVIDIA T4", "580.159", None),
    )
    lines: list[str] = []
    usable = tuple(up.find_usable(found, lines.append))
    children = {child.name: child for child in programs.workers(Settings(home=tmp_path), {}, usable, 2)}
    assert set(children) == {"compile", "judge", "tell", "gpu0", "beat"}
    assert "gpu.h200" in children["gpu0"].command
    assert children["gpu0"].environment["CUDA_VISIBLE_DEVICES"] == "GPU-0"
    assert [line.partition(":")[2] for line in lines] == [
        " its driver 570.12 is older than 580",
        " cuTile compiles for sm_80 and later",
    ]


def test_recordings_wait_for_a_postgres_that_is_away(
    database_url: str, broker_url: str, admin: Admin, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that was killed during the import ended `up`."""
    name, answers = make_url(database_url).database, iter(["false", "true"])

    def let_in(answer: str) -> None:
        admin.execute(f'alter database "{name}" allow_connections {answer}'.encode())

    let_in("false")
    files = [(SMALL_RECORDING, None), (SMALL_RECORDING, None)]
    shipped_recordings.import_files(Servers(database_url, broker_url), files, lambda: let_in(next(answers)))
    assert next(answers, None) is None
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("imported 6 runs"), "and nothing is printed of what was imported before"


def test_the_dashboard_is_not_given_the_broker(tmp_path: Path) -> None:
    given = {"TILEWATCH_DATABASE_URL": "database", "TILEWATCH_BROKER_URL": "broker"}
    assert programs.dashboard(Settings(home=tmp_path), given).environment == {"TILEWATCH_DATABASE_URL": "database"}


def test_what_runs_a_library_is_not_given_the_secrets_of_people(tmp_path: Path) -> None:
    given = dict.fromkeys((*programs.SECRETS_OF_PEOPLE, "TILEWATCH_DATABASE_URL"), "secret")
    gpu = Gpu(0, "GPU-0", "NVIDIA H200", "580.159", next(model for model in GPU_MODELS if model.slug == "h200"))
    workers = {child.name: child for child in programs.workers(Settings(home=tmp_path), given, [gpu], 2)}
    has = {name: set(child.environment) & set(given) for name, child in workers.items()}
    assert has.pop("tell") == {"TILEWATCH_DATABASE_URL", "TILEWATCH_FORGE_TOKEN"}
    assert has == {name: {"TILEWATCH_DATABASE_URL"} for name in ("compile", "judge", "gpu0", "beat")}
    command = workers["tell"].command
    assert command[command.index("-Q") + 1] == "tell", "no job in it runs a library"


def test_progress_names_the_processes_that_ended(settings: Settings) -> None:
    assert screen.progress(settings.connection()) == "nothing was submitted yet; Ctrl-C stops Tilewatch"
    assert screen.progress(settings.connection(), ["compile"]) == "compile ended and will be started again"


def test_progress_reads_one_state_of_the_database(settings: Settings) -> None:
    """A submission between two of its queries was called done before it was called submitted (2026-11-29)."""
    url = settings.connection().database_url
    came: list[str] = []

    def submit_between(*of_statement: Any) -> None:
        if not came and of_statement[2].startswith("SELECT"):
            came.append(of_statement[2])
            with session(url) as opened:
                jobs.add(opened, key="new", kind="check", queue="gpu.h200", subject="new", payload={})
                opened.execute(update(Job).values(state="done"))

    event.listen(engine(url), "after_cursor_execute", submit_between)
    assert screen.progress(settings.connection()) == "nothing was submitted yet; Ctrl-C stops Tilewatch"
    event.remove(engine(url), "after_cursor_execute", submit_between)
    assert screen.progress(settings.connection()) == "everything that was submitted is done; Ctrl-C stops Tilewatch"


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("queued", "jobs that are not done yet: 2"),
        ("waiting", "jobs that are not done yet: 2"),
        ("failed", "nothing is left to do, and jobs that failed: 2 (see Jobs & workers); Ctrl-C stops Tilewatch"),
        ("done", "everything that was submitted is done; Ctrl-C stops Tilewatch"),
        ("cancelled", "everything that was submitted is done; Ctrl-C stops Tilewatch"),
    ],
)
def test_progress_says_that_all_is_done_only_where_it_is(settings: Settings, state: str, said: str) -> None:
    """A check or a comparison of toolchains is no submission."""
    with session(settings.connection().database_url) as opened:
        for each in ("one", "other"):
            jobs.add(opened, key=each, kind="check", queue="gpu.h200", subject=each, payload={})
        opened.execute(update(Job).values(state=state, failure="it broke" if state == "failed" else None))
    assert screen.progress(settings.connection()) == said


def test_progress_names_the_commit_the_gpu_and_how_far_it_is() -> None:
    row = SubmissionRow(
        id=1,
        reason="nightly",
        night=dt.date(2026, 11, 21),
        gpu_model="b200",
        gpu_name="NVIDIA B200",
        repository="watched",
        sha="0123456789abcdef",
        subject="Faster",
        measure=False,
        requested_at=dt.datetime(2026, 11, 21, tzinfo=dt.UTC),
        machine=None,
        recorded_at=None,
        sweeps=1,
        trials=500,
        settled_trials=120,
        not_compiled=0,
        runs=0,
        failed_jobs=0,
        cancelled_jobs=0,
        open_jobs=0,
        state="compiling",
    )
    assert screen.describe(row) == "nightly 0123456789 for NVIDIA B200: compiling 120 of 500 configs"


INTERRUPTED = """
import os, signal, time
from sqlalchemy.exc import OperationalError
from tilewatch.worker.local import screen
def interrupted(*_):
    try:
        os.kill(os.getpid(), signal.SIGINT)
    finally:
        raise OperationalError("rollback", {}, Exception("the connection is lost"), connection_invalidated=True)
screen._describe_work = interrupted
"""


def test_an_interrupt_that_becomes_an_error_of_the_database_ends_it_all_the_same(
    start: Callable[..., Running], environment: dict[str, str], scratch: Path
) -> None:
    """psycopg cleans up a query that Ctrl-C interrupts, and its error is one that `up` waits out."""
    recordings = scratch / "recordings"
    recordings.mkdir()
    shutil.copy(SMALL_RECORDING, recordings / "own.jsonl.gz")
    environment |= {"TILEWATCH_REPOSITORY": str(recordings), "TILEWATCH_API_PORT": "0"}
    running = start([sys.executable, "-c", INTERRUPTED + START.format(recordings=str(recordings), workers=False)])
    assert running.process.wait(DEADLINE_S) == 0, running.printed()
    assert "stopping; press Ctrl-C again to stop at once" in running.printed()


def test_each_signal_ends_a_tilewatch_that_a_script_started_in_the_background() -> None:
    """Shells let such processes ignore SIGINT."""
    asks = """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
from tilewatch.worker.local import up
up.end_on_signals()
for kind in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    try:
        os.kill(os.getpid(), kind)
    except KeyboardInterrupt:
        print("ended")
"""
    done = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ended"] * 3
