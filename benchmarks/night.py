"""Measures whole nights as a customer would run them, on a machine with GPUs: `tilewatch up` with an empty home.

    python -m benchmarks.night [--kernels gemm_fp8_scaled,rms_norm] [--gpus 1] [--export FOLDER] [--report-only]

It is the source of every figure on nights; tools/record_history.py measures histories. The first nightly is the one
that `up` submits. The second is of a commit that changes no kernel. With `--gpus`, `up` has only the first GPUs and
their share of the cores, so that one host gives a night on one GPU and the cost of busy neighbours.

Prints for each night when the last config was compiled, the last series measured, the last verdict given and the last
counters read. It also prints the seconds of each phase of a series, the share of the time in which the GPUs measure,
the database's connections, how far the two nights differ, what busy neighbours cost, and README's lines on cost."""

import argparse
import datetime as dt
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from sqlalchemy import func, select, text

from benchmarks import bounds, neighbours
from benchmarks.bounds import Figure
from tilewatch.db.models import TOTAL, Compilation, Config, Job, Measurement, Run, Sweep, Trial, Verdict
from tilewatch.db.session import session
from tilewatch.kernels import device
from tilewatch.worker.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
COMMAND = (sys.executable, "-m", "tilewatch.worker.cli.main")
COUNTED_AFTER_S = 60.0
"""Seconds to wait for a night beyond its bound. Counters are read last, when no series waits."""

PREPARED, MEASURED = ("prepare", "baselines"), ("sweep", "rounds")

NEWEST = select(func.max(Job.submission_id)).where(Job.kind == "measure")
"""Query for the newest submission with jobs that measure. Recordings, which `up` imports beside the night, have no
jobs."""


@dataclass(frozen=True)
class Night:
    """Times of a night in seconds from its start: of the last config, run, verdict and counters; and sums over its
    series. `changed` is the number of series with a verdict of a change, `ratios` are by series, and `cpu_s` is the CPU
    time of compiling."""

    series: int
    compiled_s: float | None
    measured_s: float
    judged_s: float
    counted_s: float | None
    phases_s: Mapping[str, float]
    launches_s: float
    measuring_span_s: float
    gpus: int
    failures: tuple[str, ...]
    swept: int
    changed: int
    ratios: Mapping[str, float]
    cpu_s: float

    @property
    def share_measuring(self) -> float:
        """Returns the share of time in which a GPU is in a sweep, in rounds, or in the pauses between rounds. The time
        is from the start of the first series to the end of the last one."""
        return sum(self.phases_s.get(name, 0.0) for name in MEASURED) / (self.measuring_span_s * self.gpus)

    @property
    def share_holding(self) -> float:
        held = sum(self.phases_s.get(name, 0.0) for name in (*PREPARED, *MEASURED))
        return held / (self.measuring_span_s * self.gpus)

    @property
    def share_launching(self) -> float:
        return self.launches_s / (self.measuring_span_s * self.gpus)


@dataclass
class Connections:
    """The largest number of connections to the database at one time, sampled every second."""

    database_url: str
    most: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        while not self.over.wait(1.0):
            with session(self.database_url) as opened:
                count = opened.scalar(text("select count(*) from pg_stat_activity where datname = current_database()"))
            self.most = max(self.most, int(count or 0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", default="all", help="only these, separated by commas")
    parser.add_argument("--export", type=Path, help="a folder for the recordings of the nights")
    parser.add_argument("--details", type=Path, help="a file for a line a series")
    parser.add_argument("--seconds", type=float, default=3600.0, help="give up after so many seconds a night")
    parser.add_argument("--nights", type=int, default=2)
    parser.add_argument("--gpus", type=int, help="number of GPUs that measure the nights, instead of all")
    bounds.add_options(parser)
    options = parser.parse_args()
    sys.exit(bounds.report(measure(options), report_only=options.report_only, write=options.write))


def measure(options: argparse.Namespace) -> Iterator[Figure]:
    gpus = [gpu for gpu in device.gpus() if gpu.model is not None]
    used = gpus[: options.gpus]
    cores = select_cores(sorted(os.sched_getaffinity(0)), len(used), len(gpus))
    yield Figure("GPUs", f"{len(used)} {used[0].name}, {len(cores)} cores" if used else "none")
    with tempfile.TemporaryDirectory(prefix="tilewatch-night-", dir="/var/tmp") as folder:
        place = Path(folder)
        place.chmod(0o755)  # the embedded Postgres runs as nobody when this is run by root
        repository = make_repository(place / "watched")
        environment = {
            **os.environ,
            "TILEWATCH_HOME": str(place / "home"),
            "TILEWATCH_REPOSITORY": str(repository),
            "TILEWATCH_KERNELS": options.kernels,
            "TILEWATCH_WATCH": used[0].model.slug if used and used[0].model else "",
        }
        os.environ.update(environment)
        visible = {"CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in used)} if len(used) < len(gpus) else {}
        log = (place / "up.log").open("wb")
        started = time.time()
        up = subprocess.Popen(
            [*COMMAND, "up"],
            env={**environment, **visible},
            cwd=place,
            stdout=log,
            stderr=log,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
        try:
            database_url = wait_for_database(up, started + 120)
            connections = Connections(database_url)
            threading.Thread(target=connections.watch, daemon=True).start()
            is_whole = options.kernels == "all"
            nights = [wait_for_night(database_url, up, started, len(used), options.seconds)]
            yield from describe(nights[0], 0, is_whole=is_whole)
            if options.nights > 1:
                commit(repository, "Change no kernel")
                started = time.time()
                subprocess.run([*COMMAND, "submit", "nightly"], env=environment, check=True, stdout=log)
                nights.append(wait_for_night(database_url, up, started, len(used), options.seconds))
                yield from describe(nights[1], 1, is_whole=is_whole)
                yield from compare(*nights)
            connections.over.set()
            write_details(options.details, database_url)
            yield Figure("connections to the database, at most", str(connections.most))
            yield from describe_cost(nights, bounds.describe_machine())
            won = neighbours.list_won(database_url)
            export(options.export, environment)
        finally:
            up.send_signal(signal.SIGINT)
            up.wait(timeout=120)
            log.close()
            if options.details is not None:
                shutil.copy(place / "up.log", options.details.with_suffix(".up.log"))
        yield from neighbours.measure(won, gpus, ROOT / "kernels" / "library", (place / "home" / "cubins").as_uri())


def select_cores(cores: Sequence[int], used: int, gpus: int) -> Sequence[int]:
    """Returns the first cores: the share that belongs to `used` of the `gpus` of this host."""
    return cores[: max(1, len(cores) * used // gpus)] if gpus else cores


def make_repository(folder: Path) -> Path:
    """Clones this checkout's newest commit, so that the recording of its first night belongs to a commit that exists.
    Without a remote the recording names no folder of this machine."""
    subprocess.run(["git", "clone", "-q", "--depth", "1", ROOT.as_uri(), folder], check=True)
    subprocess.run(["git", "-C", folder, "remote", "remove", "origin"], check=True)
    return folder


def commit(folder: Path, message: str) -> None:
    who = ["-c", "user.name=benchmark", "-c", "user.email=benchmark@localhost"]
    subprocess.run(["git", "-C", folder, *who, "commit", "-q", "--allow-empty", "-m", message], check=True)


def wait_for_database(up: subprocess.Popen[bytes], until: float) -> str:
    while time.time() < until and up.poll() is None:
        try:
            url = Settings.load().connection().database_url
            with session(url) as opened:
                opened.execute(select(func.count()).select_from(Job))
            return url
        except Exception:  # noqa: BLE001 - starting servers raise errors of many types
            time.sleep(0.5)
    raise SystemExit("`tilewatch up` did not start: see its log")


def wait_for_night(database_url: str, up: subprocess.Popen[bytes], started: float, gpus: int, limit_s: float) -> Night:
    """Returns the night once all its runs have verdicts and counters, or after `limit_s`, or when `up` has ended."""
    complete_at: float | None = None
    while time.time() - started < limit_s and up.poll() is None:
        time.sleep(1.0)
        with session(database_url) as opened:
            of_night = select(Run.id).join(Sweep).where(Sweep.submission_id == NEWEST.scalar_subquery())
            runs = opened.scalar(select(func.count()).select_from(of_night.subquery())) or 0
            verdicts = opened.scalar(select(func.count()).select_from(Verdict).where(Verdict.run_id.in_(of_night))) or 0
            states = ("waiting", "queued", "running")
            busy = opened.scalar(select(func.count()).select_from(Job).where(Job.state.in_(states))) or 0
            uncounted = count_uncounted(opened)
        if runs and verdicts >= runs and not busy:
            complete_at = complete_at or time.time()
            if not uncounted or time.time() - complete_at > COUNTED_AFTER_S:
                break
    return read_night(database_url, started, gpus)


def count_uncounted(opened: Any) -> int:
    later = Measurement.detail["no_counters"].astext.like("they are read when%")
    return opened.scalar(select(func.count()).select_from(Measurement).where(later)) or 0


def read_night(database_url: str, started: float, gpus: int) -> Night:
    now = time.time()
    with session(database_url) as opened:
        newest = opened.scalar(NEWEST)
        of_night = select(Sweep.id).where(Sweep.submission_id == newest).scalar_subquery()
        runs = opened.execute(
            select(Run.id, Run.started_at, Run.finished_at)
            .join(Sweep)
            .where(Sweep.submission_id == newest, Sweep.kernel != TOTAL)
        ).all()
        ids = [run.id for run in runs]
        details = opened.scalars(
            select(Measurement.detail).where(Measurement.run_id.in_(ids), Measurement.role == "kernel")
        ).all()
        judged = opened.scalar(select(func.max(Verdict.judged_at)).where(Verdict.run_id.in_(ids)))
        # Recordings bring compilations too, with times of other machines.
        of_trials = select(Trial.compilation_id).join(Sweep).where(Sweep.submission_id == newest)
        since = dt.datetime.fromtimestamp(started, dt.UTC)
        compiled, cpu_s = opened.execute(
            select(func.max(Compilation.created_at), func.sum(Compilation.cpu_s)).where(
                Compilation.id.in_(of_trials), Compilation.created_at >= since
            )
        ).one()
        samples_us = opened.scalar(
            text(
                "select coalesce(sum(each), 0) from (select unnest(samples_us) each from measurements where run_id = "
                "any(:ids) union all select unnest(samples_us) from trials join sweeps on sweeps.id = sweep_id "
                "where submission_id = :newest) as all_samples"
            ),
            {"ids": ids, "newest": newest},
        )
        queued = opened.execute(
            select(Job.started_at, Job.finished_at).where(Job.submission_id == newest, Job.kind == "measure")
        ).all()
        failed = opened.execute(select(Job.subject, Job.failure).where(Job.state.in_(("failed", "poison")))).all()
        swept = opened.scalar(
            select(func.count()).select_from(Trial).where(Trial.sweep_id.in_(of_night), Trial.status == "timed")
        )
        uncounted = count_uncounted(opened)
        called = select(func.count()).select_from(Verdict).where(Verdict.run_id.in_(ids))
        changed = opened.scalar(called.where(Verdict.verdict.in_(("regression", "improvement"))))
        ratios = opened.execute(
            select(Sweep.kernel, Sweep.problem, Measurement.ratio)
            .join(Run, Run.sweep_id == Sweep.id)
            .join(Measurement, Measurement.run_id == Run.id)
            .where(Run.id.in_(ids), Measurement.role == "kernel", Measurement.ratio.is_not(None))
        ).all()
    if not runs:
        raise SystemExit("no series was measured: see the log of --details")
    phases: dict[str, float] = {}
    for detail in details:
        for name, seconds in detail.get("seconds", {}).items():
            phases[name] = phases.get(name, 0.0) + seconds
    in_runs = sum((run.finished_at - run.started_at).total_seconds() for run in runs)
    in_jobs = sum((job.finished_at - job.started_at).total_seconds() for job in queued if job.finished_at)
    phases["processes"] = in_runs - sum(phases.values())
    phases["writing"] = in_jobs - in_runs
    first, last = min(run.started_at for run in runs), max(run.finished_at for run in runs)
    return Night(
        series=len(runs),
        compiled_s=compiled and compiled.timestamp() - started,
        measured_s=last.timestamp() - started,
        judged_s=(judged.timestamp() if judged else now) - started,
        counted_s=None if uncounted else now - started,
        phases_s=phases,
        launches_s=float(samples_us or 0.0) / 1e6,
        measuring_span_s=(last - first).total_seconds(),
        gpus=gpus,
        failures=tuple(f"{subject}: {failure}" for subject, failure in failed),
        swept=swept or 0,
        changed=changed or 0,
        ratios={f"{kernel} {problem}": ratio for kernel, problem, ratio in ratios},
        cpu_s=float(cpu_s or 0.0),
    )


def describe(night: Night, number: int, *, is_whole: bool) -> Iterator[Figure]:
    """Yields the figures of a night; `number` says whether it is the first or the second. A night of the whole library
    has the bounds for its number of GPUs: one H100 with 16 cores, or four with 64."""
    gpus = f"{night.gpus} GPU{'' if night.gpus == 1 else 's'}"
    name = f"{('first', 'second')[number]} night on {gpus}"

    def measure(what: str, value: float, unit: str = "", digits: int = 0) -> Figure:
        named = f"{name}: {what}"
        if is_whole and bounds.find_bound(named) is not None:
            return bounds.measure(named, value, cases=night.series)
        return Figure(named, f"{value:,.{digits}f}{unit}")

    yield measure("series measured", night.series)
    yield Figure(f"{name}: configs timed", f"{night.swept:,}")
    compiled = "nothing was compiled" if night.compiled_s is None else f"{night.compiled_s:.0f} s"
    yield Figure(f"{name}: last config compiled after", compiled)
    yield Figure(f"{name}: last series measured after", f"{night.measured_s:.0f} s")
    yield measure("last verdict after", night.judged_s, " s")
    counted = "not all" if night.counted_s is None else f"{night.counted_s:.0f} s"
    yield Figure(f"{name}: last counters after", counted)
    for phase, seconds in sorted(night.phases_s.items(), key=lambda each: -each[1]):
        yield Figure(f"{name}: {phase}", f"{seconds:.0f} s, {seconds / night.series:.2f} s a series")
    yield Figure(f"{name}: GPU seconds a series", f"{night.measuring_span_s * night.gpus / night.series:.2f} s")
    yield measure("share in sweeps and rounds", night.share_measuring, digits=2)
    yield Figure(f"{name}: share in which a series has the GPU", f"{night.share_holding:.2f}")
    yield Figure(f"{name}: share in which launches run", f"{night.share_launching:.2f}")
    yield bounds.measure(f"{name}: jobs that failed", len(night.failures), cases=1)
    for failure in night.failures:
        yield Figure(failure, "")


def compare(first: Night, second: Night) -> Iterator[Figure]:
    """Yields figures of how far two nights of equal kernels differ. Their bounds hold on every machine."""
    yield bounds.measure("second night: series called changed", second.changed, cases=second.series)
    both = len(first.ratios.keys() & second.ratios.keys())
    named = "second night: series with a ratio in both"
    yield bounds.measure(named, both, cases=len(first.ratios), wanted=len(first.ratios))
    spread = find_spread(first.ratios, second.ratios)
    yield bounds.measure("ratio of two nights, 90th percentile apart", 100 * spread, cases=both)


def find_spread(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """Returns the 90th percentile, over series, of how far the two nights' ratios differ. Returns infinity if no series
    has two ratios."""
    apart = sorted(abs(second[each] / first[each] - 1.0) for each in first.keys() & second.keys())
    return apart[min(len(apart) - 1, int(0.9 * len(apart)))] if apart else math.inf


def describe_cost(nights: Sequence[Night], machine: str) -> Iterator[Figure]:
    """Yields the lines of README's section on cost."""
    for name, night in zip(("a first nightly", "a nightly of a commit that changes no kernel"), nights, strict=False):
        compiling = f"{night.cpu_s / 60:.0f} minutes of CPU time, " if night.cpu_s else ""
        gpu_minutes = f"{night.measuring_span_s * night.gpus / 60:.1f} GPU minutes"
        yield Figure(f"README: {name}, {night.series} problems", f"{compiling}{gpu_minutes} ({machine})")


def write_details(file: Path | None, database_url: str) -> None:
    """Writes a line per series with its time, its ratio and its phases, and a line per config that failed."""
    if file is None:
        return
    with session(database_url) as opened:
        rows = opened.execute(
            select(Sweep.kernel, Sweep.problem, Run.gpu_uuid, Run.started_at, Run.finished_at, Measurement.median_us)
            .add_columns(Measurement.ratio, Measurement.baseline, Measurement.detail)
            .join(Run, Run.sweep_id == Sweep.id)
            .join(Measurement, Measurement.run_id == Run.id)
            .where(Measurement.role == "kernel")
            .order_by(Run.finished_at)
        ).all()
        wrong = opened.execute(
            select(Sweep.submission_id, Sweep.kernel, Sweep.problem, Trial.status, Trial.failure, Config.params)
            .join(Sweep, Sweep.id == Trial.sweep_id)
            .join(Config, Config.id == Trial.config_id)
            .where(Trial.status.in_(("wrong", "launch_error", "crashed", "hung")))
            .where(Sweep.submission_id.in_(select(Job.submission_id).where(Job.kind == "measure")))
        ).all()
    with file.open("w") as out:
        for row in rows:
            took_s = (row.finished_at - row.started_at).total_seconds()
            out.write(
                f"{row.kernel}\t{row.problem}\t{row.gpu_uuid}\t{row.finished_at:%H:%M:%S}\t{took_s:.2f}\t"
                f"{row.median_us:.3f}\t{row.ratio}\t{row.baseline}\t{row.detail.get('seconds')}\n"
            )
        took = [(row.finished_at - row.started_at).total_seconds() for row in rows]
        out.write(f"mean seconds of a run\t{mean(took) if took else 0:.2f}\n")
        for each in wrong:
            out.write("\t".join(map(str, each)) + "\n")


def export(folder: Path | None, environment: Mapping[str, str]) -> None:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([*COMMAND, "export", str(folder / "night.jsonl.gz")], env=dict(environment), check=True)


if __name__ == "__main__":
    main()
