"""Measures the cost of a nightly on this machine without a GPU, with real servers, Celery workers and the real
compiler.

    python -m benchmarks.nightly [--model b200] [--processes 2] [--report-only]

Prints these figures for the FP8 GEMM's 500 configs, each with its bound: the wall time of the first nightly against the
CPU seconds of its compiles; the time of a second nightly of the same commit; how much is compiled again for a commit
that changes one kernel of two; and the peak memory of all processes."""

import argparse
import contextlib
import datetime as dt
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from sqlalchemy import func, select

from benchmarks import bounds
from benchmarks.bounds import Figure
from tilewatch import processes
from tilewatch.db import migrate
from tilewatch.db.models import Compilation, Job, Trial
from tilewatch.db.server.embedded import Embedded, Servers
from tilewatch.db.session import session
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting.submit import submit_nightly

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 3600.0
SECOND_SPACE = 8
"""Number of configs in the second kernel's space (`_repository`)."""


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--model", default="b200", help="GPU model to compile for")
    asked.add_argument("--processes", type=int, default=processes.count_cores())
    bounds.add_options(asked)
    options = asked.parse_args()
    sys.exit(
        bounds.report(_measure(options.model, options.processes), report_only=options.report_only, write=options.write)
    )


def _measure(model: str, processes: int) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="tilewatch-bench-", dir="/var/tmp") as folder, _peak_memory() as peak:
        home = Path(folder)
        home.chmod(0o755)  # the embedded Postgres runs as nobody when this is run by root
        repository = _repository(home / "watched")
        with Embedded(home / "home") as servers:
            migrate.upgrade(servers.database_url)
            settings = _settings(home / "home", repository, servers, model)
            with _worker(settings, processes):
                yield from _measure_nights(settings, servers, repository, processes)
    yield bounds.measure("peak memory (PSS) of everything", peak[0] / 2**30, cases=1)


def _measure_nights(settings: Settings, servers: Servers, repository: Path, processes: int) -> Iterator[Figure]:
    wall_s = _nightly(settings, servers, dt.date(2026, 1, 1))
    with session(servers.database_url) as opened:
        cpu_s = opened.scalar(select(func.sum(Compilation.cpu_s))) or 0.0
        found = opened.execute(select(Compilation.status, func.count()).group_by(Compilation.status))
        counts = dict(found.all())
    yield Figure("first nightly: outcomes", ", ".join(f"{number} {status}" for status, number in counts.items()))
    yield Figure(f"first nightly: CPU time; wall time on {processes} processes", f"{cpu_s:.0f} s; {wall_s:.0f} s")
    yield bounds.measure("first nightly: wall time / (CPU time / processes)", wall_s / (cpu_s / processes), cases=1)
    before = _compilations(servers)
    wall_s = _nightly(settings, servers, dt.date(2026, 1, 2))
    again = _compilations(servers) - before
    yield bounds.measure("second nightly of the commit: compiled", again, cases=1)
    yield bounds.measure("second nightly of the commit: wall time", wall_s, cases=1)
    small = repository / "kernels" / "library" / "second.py"
    small.write_text(small.read_text().replace("0.0, dtype", "0.5, dtype"))
    _commit(repository, "Change the second kernel")
    before = _compilations(servers)
    wall_s = _nightly(settings, servers, dt.date(2026, 1, 3))
    changed = _compilations(servers) - before
    yield bounds.measure("a commit that changes one kernel of two: compiled", changed, wanted=SECOND_SPACE, cases=1)
    yield Figure("a commit that changes one kernel of two: wall time", f"{wall_s:.1f} s")


def _nightly(settings: Settings, servers: Servers, night: dt.date) -> float:
    started = time.monotonic()
    submit_nightly(settings, night=night)
    while time.monotonic() - started < LIMIT_S:
        time.sleep(0.2)
        with session(servers.database_url) as opened:
            waiting = opened.scalar(select(func.count()).select_from(Trial).where(Trial.status == "waiting"))
            busy = opened.scalar(
                select(func.count()).select_from(Job).where(Job.state.in_(("waiting", "queued", "running")))
            )
            failed = opened.scalars(select(Job.failure).where(Job.state == "failed")).all()
        if failed:
            raise SystemExit(f"a job failed: {failed[0]}")
        if not waiting and not busy:
            return time.monotonic() - started
    raise SystemExit(f"not done after {LIMIT_S:.0f} s")


def _compilations(servers: Servers) -> int:
    with session(servers.database_url) as opened:
        return opened.scalar(select(func.count()).select_from(Compilation)) or 0


def _repository(folder: Path) -> Path:
    """Makes a Git repository with the FP8 GEMM and a second kernel with a small space."""
    library = folder / "kernels" / "library"
    library.mkdir(parents=True)
    source = (ROOT / "kernels" / "library" / "gemm.py").read_text()
    (library / "gemm.py").write_text(source)
    second = source.replace('name="gemm_fp8', 'name="gemm_second')
    second = second.replace("TILES = (32, 64, 128, 256, 512)", "TILES = (64, 128)")
    second = second.replace('("num_ctas", (1, 2, 4, 8))', '("num_ctas", (1,))')
    (library / "second.py").write_text(second)
    subprocess.run(["git", "init", "-q", "-b", "main", folder], check=True)
    _commit(folder, "Watch two kernels")
    return folder


def _commit(folder: Path, message: str) -> None:
    who = ["-c", "user.name=benchmark", "-c", "user.email=benchmark@localhost"]
    subprocess.run(["git", "-C", folder, "add", "-A"], check=True)
    subprocess.run(["git", "-C", folder, *who, "commit", "-q", "-m", message], check=True)


def _settings(home: Path, repository: Path, servers: Servers, model: str) -> Settings:
    os.environ.update(
        TILEWATCH_HOME=str(home),
        TILEWATCH_REPOSITORY=str(repository),
        TILEWATCH_DATABASE_URL=servers.database_url,
        TILEWATCH_BROKER_URL=servers.broker_url,
        TILEWATCH_WATCH=model,
    )
    return Settings.load()


@contextlib.contextmanager
def _worker(settings: Settings, processes: int) -> Iterator[None]:
    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "tilewatch.worker.app",
        "worker",
        "-Q",
        "compile",
        "-n",
        "bench@%h",
    ]
    log = (settings.home / "worker.log").open("wb")
    worker = subprocess.Popen([*command, "-c", str(processes)], cwd=ROOT, stdout=log, stderr=log)
    try:
        yield
    finally:
        worker.terminate()
        worker.wait(timeout=60)
        log.close()


@contextlib.contextmanager
def _peak_memory() -> Iterator[list[int]]:
    """Yields a list whose value is the peak memory in bytes of this process and all processes that it started, sampled
    every second. Memory is the proportional set size (PSS)."""
    peak, over = [0], threading.Event()

    def look() -> None:
        while not over.wait(1.0):
            peak[0] = max(peak[0], sum(_pss(process) for process in _family()))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        over.set()
        watcher.join()


def _family() -> list[psutil.Process]:
    me = psutil.Process()
    return [me, *me.children(recursive=True)]


def _pss(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0


if __name__ == "__main__":
    main()
