"""Measures, replays and judges five real changes of a library kernel, and checks whether the judge says what was done.

    python -m benchmarks.story --gpu h200 --record recordings/story/h200.jsonl.gz
    python -m benchmarks.story --gpu sim --report-only

DeepGEMM compiles its kernel when it is first used, which may take a minute (`--baselines ""` leaves it out). A scratch
repository gets this library's FP8 GEMM with a small search space, and then one commit per change: the swizzle off, the
big tiles gone, an extra cast in the main loop, a comment, and a new name for a variable. Each commit is a night with
real servers and real workers. The first three must be confirmed with a size and a cause. The last two must raise
nothing."""

import argparse
import contextlib
import datetime as dt
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import func, select

from benchmarks import bounds
from benchmarks.bounds import Figure
from tilewatch import processes
from tilewatch.db import migrate
from tilewatch.db.models import Commit, Job, Regression, RegressionSeries, Replay, Run, Sweep, Verdict
from tilewatch.db.server.embedded import Embedded, Servers
from tilewatch.db.session import session
from tilewatch.db.worker_reads.export import ExportFilter
from tilewatch.worker.local.programs import cuda_home
from tilewatch.worker.queue.dispatch import gpu_queue
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting.submit import submit_nightly
from tilewatch.worker.transfer.exporting import export_file

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 420.0
"""Most seconds of one night. It is longer than DeepGEMM takes to compile its first kernel on a cold machine."""

PROBLEM = "320x32576x7168"

SMALL = (
    (r'\("tile_m", TILES\)', '("tile_m", (64, 128))'),
    (r'\("tile_n", TILES\)', '("tile_n", (128, 256))'),
    (r'\("tile_k", TILES\)', '("tile_k", (128,))'),
    (r'\("num_ctas", \(1, 2, 4, 8\)\)', '("num_ctas", (1, 2))'),
    (r"problems=\(.*\),", f'problems=(parse("{PROBLEM}"),),'),
    (r"baselines=\(.*\),", "baselines=BASELINES,"),
)
"""Edits that make the library small enough for this benchmark: eight configs on one problem. Each edits its first
match."""


@dataclass(frozen=True)
class Change:
    """One commit. `edits` are applied to the first kernel of the file. `raises` is True if the commit changes the
    kernel's speed."""

    subject: str
    edits: tuple[tuple[str, str], ...]
    raises: bool


STORY = (
    Change("Watch the FP8 GEMM", (), False),
    Change(
        "Walk the tiles row by row, without the swizzle",
        (
            ("        i = first_m + (tile % tiles_per_group) % rows\n", "        i = tile // tiles_n\n"),
            ("        j = (tile % tiles_per_group) // rows\n", "        j = tile % tiles_n\n"),
            ("        group = tile // tiles_per_group\n", ""),
            ("        first_m = group * group_size_m\n", ""),
            ("        rows = min(tiles_m - first_m, group_size_m)\n", ""),
            ("    tiles_per_group = group_size_m * tiles_n\n", ""),
        ),
        True,
    ),
    Change("Try smaller tiles only", (('("tile_n", (128, 256))', '("tile_n", (64,))'),), True),
    Change(
        "Cast on the way to the product",
        (
            (
                "            acc = ct.mma(x, ct.transpose(y), acc)\n",
                "            x = ct.astype(ct.astype(x, ct.float16), a.dtype)\n"
                "            acc = ct.mma(x, ct.transpose(y), acc)\n",
            ),
        ),
        True,
    ),
    Change(
        "Say what the main loop does",
        (("        for k in range(tiles_k):\n", "        # One step along K.\n        for k in range(tiles_k):\n"),),
        False,
    ),
    Change(
        "Call the sum by its name",
        (
            ("        acc = ct.full(", "        total = ct.full("),
            (
                "            acc = ct.mma(x, ct.transpose(y), acc)\n",
                "            total = ct.mma(x, ct.transpose(y), total)\n",
            ),
            ("tile=ct.astype(acc, d.dtype)", "tile=ct.astype(total, d.dtype)"),
        ),
        False,
    ),
)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--gpu", default="h200", help="a GPU model of this machine, or sim")
    asked.add_argument("--record", type=Path, help="also write what was measured to this file")
    asked.add_argument("--processes", type=int, default=max(1, processes.count_cores() - 2))
    asked.add_argument("--baselines", default="deepgemm", help="baselines by name, separated by commas; none if empty")
    bounds.add_options(asked)
    options = asked.parse_args()
    sys.exit(bounds.report(_measure(options), report_only=options.report_only, write=options.write))


def _measure(options: argparse.Namespace) -> Iterator[Figure]:
    baselines = tuple(name for name in options.baselines.split(",") if name)
    with tempfile.TemporaryDirectory(prefix="tilewatch-story-", dir="/var/tmp") as folder:
        home = Path(folder)
        home.chmod(0o755)  # the embedded Postgres runs as nobody when this is run by root
        shas = _repository(home / "watched", baselines)
        with Embedded(home / "home") as servers:
            migrate.upgrade(servers.database_url)
            settings = _settings(home / "home", home / "watched", servers)
            with _workers(settings, options.gpu, options.processes):
                for number, (change, sha) in enumerate(zip(STORY, shas, strict=True)):
                    seconds = _night(settings, servers, sha, options.gpu, number)
                    yield Figure(f"{change.subject}: measured and judged", f"{seconds:.0f} s")
            if options.record is not None:
                rows = export_file(servers.database_url, options.record, ExportFilter())
                print(f"{rows} rows written to {options.record}")
            yield from _compare_verdicts(servers)


def _compare_verdicts(servers: Servers) -> Iterator[Figure]:
    """Yields figures that compare the verdicts with what was changed. Prints the reason of each verdict."""
    with session(servers.database_url) as opened:
        rows = opened.execute(
            select(Commit.subject, Verdict.verdict, Verdict.reason)
            .join(Sweep, Sweep.commit_id == Commit.id)
            .join(Run, Run.sweep_id == Sweep.id)
            .join(Verdict, Verdict.run_id == Run.id)
            .order_by(Commit.position)
        ).all()
        raised = opened.execute(
            select(Regression, RegressionSeries, Commit.subject)
            .join(RegressionSeries, RegressionSeries.regression_id == Regression.id)
            .join(Commit, Commit.id == Regression.bad_commit_id)
            .order_by(Commit.position)
        ).all()
        launches = opened.scalar(select(func.coalesce(func.sum(func.cardinality(Replay.good_us)), 0)))
        gpu_s = opened.scalar(select(func.coalesce(func.sum(Replay.gpu_s), 0.0)))
    for subject, verdict, reason in rows:
        print(f"\n{subject}\n    {verdict}: {reason}")
        for regression, series, of in raised:
            if of == subject:
                print(f"    {series.size:+.2%} ({series.low:+.2%} to {series.high:+.2%}), {regression.category}")
                print("".join(f"      {line}\n" for line in regression.explanation), end="")
    yield Figure("replay launches; seconds of GPU for them", f"{launches}; {gpu_s:.0f}")
    found = {subject: verdict in ("regression", "improvement") for subject, verdict, _ in rows}
    for change in STORY:
        yield bounds.measure(
            f"{change.subject}: a change is confirmed", found.get(change.subject), wanted=change.raises, cases=1
        )


def _night(settings: Settings, servers: Servers, sha: str, gpu: str, number: int) -> float:
    started = time.monotonic()
    night = dt.date(2026, 1, 1) + dt.timedelta(days=number)
    submit_nightly(settings, commit=sha, gpus=(gpu,), night=night)
    while time.monotonic() - started < LIMIT_S:
        time.sleep(0.2)
        with session(servers.database_url) as opened:
            states = {row[0] for row in opened.execute(select(Job.state).distinct())}
            failed = opened.scalars(select(Job.failure).where(Job.state == "failed")).all()
            troubles = opened.scalars(select(Job.trouble).where(Job.trouble.is_not(None))).all()
        if failed or troubles:
            raise SystemExit(f"a job did not go on: {[*failed, *troubles][0]}\n{_last_words(settings)}")
        if states <= {"done"}:
            return time.monotonic() - started
    raise SystemExit(f"night {number} was not done after {LIMIT_S:.0f} s: {states}\n{_last_words(settings)}")


def _last_words(settings: Settings) -> str:
    """Returns the end of each worker's log, to print it before its folder is deleted."""
    return "\n".join(f"{log.name}: {log.read_text(errors='replace')[-1500:]}" for log in settings.home.glob("*.log"))


def _repository(folder: Path, baselines: Sequence[str]) -> list[str]:
    """Makes the story's commits, and returns them oldest first."""
    library = folder / "kernels" / "library"
    library.mkdir(parents=True)
    _git(folder, "init", "--quiet", "--initial-branch", "main")
    _git(folder, "remote", "add", "origin", "tilewatch-story")
    source = (ROOT / "kernels" / "library" / "gemm.py").read_text()
    for pattern, after in SMALL:
        source, found = re.subn(pattern, after, source, count=1)
        if not found:
            raise SystemExit(f"the library has nothing like {pattern} any more, which this story makes small")
    source = source.replace("\nKERNELS = (\n", f"\nBASELINES = {tuple(baselines)!r}\n\nKERNELS = (\n")
    shas = []
    for change in STORY:
        for before, after in change.edits:
            source = _edited(source, before, after)
        (library / "gemm.py").write_text(source)
        _git(folder, "add", "--all")
        _git(folder, "commit", "--quiet", "--message", change.subject)
        shas.append(_git(folder, "rev-parse", "HEAD").strip())
    return shas


def _edited(source: str, before: str, after: str) -> str:
    """Returns the source with the first match edited. That match is in the first kernel, which the nightly sweeps."""
    if before not in source:
        raise SystemExit(f"the library has no {before!r} any more, which this story changes")
    return source.replace(before, after, 1)


def _git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=story", "-c", "user.email=story@localhost", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def _settings(home: Path, repository: Path, servers: Servers) -> Settings:
    os.environ.update(
        TILEWATCH_HOME=str(home),
        TILEWATCH_REPOSITORY=str(repository),
        TILEWATCH_LIBRARY="kernels/library",
        TILEWATCH_DATABASE_URL=servers.database_url,
        TILEWATCH_BROKER_URL=servers.broker_url,
        TILEWATCH_SIM_TRIAL_S="0",
        TILEWATCH_COMPILE_HEALTH_PORT="0",
        TILEWATCH_JUDGE_HEALTH_PORT="0",
        TILEWATCH_GPU_HEALTH_PORT="0",
    )
    return Settings.load()


@contextlib.contextmanager
def _workers(settings: Settings, gpu: str, processes: int) -> Iterator[None]:
    kinds = (("compile", "compile", processes), ("judge", "judge", 1), ("gpu0", gpu_queue(gpu), 1))
    with contextlib.ExitStack() as stack:
        for name, queue, count in kinds:
            stack.enter_context(_worker(settings, name, queue, count))
        yield


@contextlib.contextmanager
def _worker(settings: Settings, name: str, queue: str, processes: int) -> Iterator[None]:
    settings.home.mkdir(parents=True, exist_ok=True)
    with (settings.home / f"{name}.log").open("wb") as log:
        command = [
            "-m",
            "celery",
            "-A",
            "tilewatch.worker.app",
            "worker",
            "-Q",
            queue,
            "-n",
            f"{name}@%h",
            "-c",
            str(processes),
            "-l",
            "INFO",
        ]
        worker = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env={**cuda_home(), **os.environ},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGTERM)
            try:
                worker.wait(timeout=30)
            except subprocess.TimeoutExpired:
                os.killpg(worker.pid, signal.SIGKILL)
                worker.wait()


if __name__ == "__main__":
    main()
