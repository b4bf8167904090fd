"""Measures the cost of writing results: trials per second, and whether a full database is slower than an empty one.

    python -m benchmarks.storage rate  [--sweeps 200] [--report-only]
    python -m benchmarks.storage month [--gpus 8] [--nights 30] [--sweeps 60] [--report-only]

A real Postgres with fsync runs in a folder of its own. Rows are written by the functions that the workers call, and are
as large as real ones: 500 trials per sweep, three samples each, one transaction per sweep. `month` loads a month (7.2
million trials for 8 GPUs). It then writes three more nights into it, in turns with the same nights into a new database,
and times the reconciler's queries."""

import argparse
import contextlib
import datetime as dt
import hashlib
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from benchmarks import bounds
from benchmarks.bounds import Figure
from tilewatch.db import fact_writes, migrate
from tilewatch.db.lifecycle import jobs
from tilewatch.db.server.embedded import Embedded
from tilewatch.db.session import engine, session
from tilewatch.db.worker_reads import steps

TRIALS = 500
SAMPLES = 3
ROUNDS = 40
CONFIGS = [
    {"tile_m": m, "tile_n": n, "num_ctas": c} for m in range(10) for n in range(10) for c in range(TRIALS // 100)
]
DAY = dt.datetime(2026, 11, 1, 3, tzinfo=dt.UTC)
REPEATS = 3
"""Number of nights to time: on a quiet machine one night took 0.9 to 1.25 times the seconds of another."""

ASKED = 20
"""Number of times that the reconciler's queries run."""

OWNER = "gpu0@bench#1"

LOAD_TRIALS = text("""
    insert into trials (sweep_id, config_id, code_key, compilation_id, status, samples_us, median_us, error)
    select sweeps.id, configs.id, null, compilations.id, 'timed',
           array[100 + 200 * random(), 100 + 200 * random(), 100 + 200 * random()], 200 * random(), 0.001 * random()
    from sweeps cross join configs
    join compilations on compilations.code_key = encode(sha256((sweeps.source_sha256 || configs.id)::bytea), 'hex')
    where sweeps.submission_id = any(:submissions)
""")
LOAD_COMPILATIONS = text("""
    insert into compilations (code_key, compiler, arch, status, content_key, code_sha256, symbol, registers, compile_s,
                              cpu_s, host)
    select distinct encode(sha256((sweeps.source_sha256 || configs.id)::bytea), 'hex'),
           'cuda-tile 1.7.0', 'sm_90', 'ok',
           md5(sweeps.source_sha256 || configs.id), md5(configs.id || sweeps.source_sha256), 'gemm', 168, 1.2, 1.1, 'n1'
    from sweeps cross join configs
    where sweeps.submission_id = any(:submissions)
    on conflict do nothing
""")


@dataclass(frozen=True)
class Night:
    """One night as the steps of jobs write it, on some GPUs, each of a model of its own."""

    number: int
    gpus: int
    sweeps: int


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("what", choices=("rate", "month"))
    asked.add_argument("--gpus", type=int, default=8)
    asked.add_argument("--nights", type=int, default=30)
    asked.add_argument("--sweeps", type=int)
    bounds.add_options(asked)
    options = asked.parse_args()
    if options.what == "rate":
        figures = rate(options.sweeps or 200)
    else:
        figures = month(options.gpus, options.nights, options.sweeps or 60)
    sys.exit(bounds.report(figures, report_only=options.report_only, write=options.write))


def rate(sweeps: int) -> Iterator[Figure]:
    with database() as url:
        with session(url) as opened:
            configs = prepare(opened, 1)
            (sweep_ids,) = plan_sweeps(opened, Night(0, 1, sweeps)).values()
        planned_s = timed(lambda sweep_id: plan_trials(url, sweep_id, configs), sweep_ids)
        values = results(configs, random.Random(1))  # noqa: S311 - made-up times
        ended_s = timed(lambda sweep_id: end_trials(url, sweep_id, values), sweep_ids)
    trials = sweeps * TRIALS
    what = f"trials a second, in transactions of {TRIALS}"
    yield bounds.measure(f"{what}: planned", trials / planned_s, cases=trials)
    yield bounds.measure(f"{what}: results put on record", trials / ended_s, cases=trials)
    yield bounds.measure(f"{what}: both, in one clock", trials / (planned_s + ended_s), cases=trials)


def month(gpus: int, nights: int, sweeps: int) -> Iterator[Figure]:
    with database() as url:
        with session(url) as opened:
            configs = prepare(opened, gpus)
        yield from load_month(url, gpus, nights, sweeps)
        ratios = []
        for night in (Night(nights + number, gpus, sweeps) for number in range(1, REPEATS + 1)):
            with database() as empty_url:
                with session(empty_url) as opened:
                    same = prepare(opened, gpus)
                write_night(empty_url, Night(0, 1, 4), same)  # warms connections and caches; not counted
                empty_s = write_night(empty_url, night, same)
                if not ratios:
                    yield from reconciled(empty_url, Night(1000, gpus, sweeps), "an almost empty database")
            full_s = write_night(url, night, configs)
            ratios.append(full_s / empty_s)
            what = f"night {len(ratios)} of {gpus * sweeps * TRIALS:,} trials, into it and into a new database"
            yield Figure(what, f"{full_s:.1f} and {empty_s:.1f} s")
        yield bounds.measure("the first night, into it / into a new one", ratios[0], cases=gpus * nights)
        yield bounds.measure("the median night", statistics.median(ratios), cases=len(ratios))
        yield from reconciled(url, Night(1001, gpus, sweeps), "the full database")


def load_month(url: str, gpus: int, nights: int, sweeps: int) -> Iterator[Figure]:
    """Writes the nights of a month, and then makes the server write all of them to its disk. Yields figures."""
    began = time.monotonic()
    for number in range(1, nights + 1):
        load_night(url, Night(number, gpus, sweeps))
    with engine(url).connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("vacuum (analyze)"))
        connection.execute(text("checkpoint"))
        trials = connection.execute(text("select count(*) from trials")).scalar_one()
        size = connection.execute(text("select pg_database_size(current_database())")).scalar_one()
    yield Figure(f"{trials:,} trials loaded in {time.monotonic() - began:.0f} s: the database", f"{size / 1e9:.1f} GB")


def write_night(url: str, night: Night, configs: Sequence[int]) -> float:
    """Writes everything that workers write in a night, sweep after sweep. Returns the seconds that it took."""
    chance = random.Random(night.number)  # noqa: S311 - made-up times
    began = time.monotonic()
    with session(url) as opened:
        planned = plan_sweeps(opened, night)
    for submission_id, sweep_ids in planned.items():
        for sweep_id in sweep_ids:
            plan_trials(url, sweep_id, configs)
            with session(url) as opened:
                job_id, _ = jobs.add(
                    opened,
                    key=f"measure {sweep_id}",
                    kind="measure",
                    queue="gpu.bench",
                    subject="gemm",
                    payload={"library": "library", "baselines": ["deepgemm"]},
                    submission_id=submission_id,
                    sweep_id=sweep_id,
                )
            with session(url) as opened:
                jobs.claim(opened, job_id, OWNER, 60)
            end_trials(url, sweep_id, results(configs, chance))
            with session(url) as opened:
                put_run_on_record(opened, sweep_id, configs[0], chance)
                jobs.finish(opened, job_id, OWNER)
    return time.monotonic() - began


def load_night(url: str, night: Night) -> None:
    """Writes a finished night by SQL statements that make the rows in the server."""
    with session(url) as opened:
        planned = plan_sweeps(opened, night)
        of_night = {"submissions": list(planned)}
        opened.execute(LOAD_COMPILATIONS, of_night)
        opened.execute(LOAD_TRIALS, of_night)
        chance = random.Random(night.number)  # noqa: S311 - made-up times
        config_id = opened.execute(text("select min(id) from configs")).scalar_one()
        for submission_id, sweep_ids in planned.items():
            for sweep_id in sweep_ids:
                put_run_on_record(opened, sweep_id, config_id, chance)
                for kind in ("measure", "judge"):
                    jobs.add(
                        opened,
                        key=f"{kind} {sweep_id}",
                        kind=kind,
                        queue="loaded",
                        subject="gemm",
                        payload={},
                        submission_id=submission_id,
                        sweep_id=sweep_id,
                    )
        opened.execute(text("update jobs set state = 'done', finished_at = now() where queue = 'loaded'"))


def reconciled(url: str, night: Night, what: str) -> Iterator[Figure]:
    """Yields figures of the queries of one tick of the clock, while the work of a night waits for its cubins."""
    with session(url) as opened:
        for submission_id, sweep_ids in plan_sweeps(opened, night).items():
            shared = {"subject": "gemm", "submission_id": submission_id}
            values = {"kind": "compile", "queue": "compile", "payload": {"kernel": "gemm_fp8"}}
            jobs.add(opened, key=f"compile {submission_id}", **values, **shared)
            for sweep_id in sweep_ids:
                waits = {"kind": "measure", "queue": "gpu.bench", "payload": {}, "state": "waiting"}
                jobs.add(opened, key=f"waiting {sweep_id}", sweep_id=sweep_id, **waits, **shared)
    taken_s = []
    for _ in range(ASKED):
        with session(url) as opened:
            began = time.perf_counter()
            jobs.requeue_expired(opened)
            jobs.release(opened, steps.list_ready_to_measure(opened))
            jobs.list_unsent(opened, 60)
            taken_s.append(time.perf_counter() - began)
    asked = f"the reconciler's queries on {what}"
    yield Figure(f"{asked}: median of {ASKED}", f"{1e3 * statistics.median(taken_s):.1f} ms")
    yield bounds.measure(f"{asked}: the slowest", 1e3 * max(taken_s), cases=ASKED)


def prepare(opened: Session, gpus: int) -> list[int]:
    """Writes the rows that all nights share, and returns the ids of the configs."""
    for gpu in range(gpus):
        fact_writes.add_gpu_model(
            opened, slug=f"bench{gpu}", name=f"Bench {gpu}", arch="sm_90", fp8_tflops=None, bandwidth_gbps=None
        )
    return list(fact_writes.add_configs(opened, CONFIGS).values())


def plan_sweeps(opened: Session, night: Night) -> dict[int, list[int]]:
    """Writes the sweeps of a night. Returns the ids of the sweeps of each of its submissions."""
    at = DAY + dt.timedelta(days=night.number)
    commit_id = fact_writes.add_commit(
        opened,
        repository="bench",
        sha=f"{night.number:040x}",
        position=night.number,
        committed_at=at,
        subject="Tile it",
    )
    planned = {}
    for gpu in range(night.gpus):
        submission_id, _ = fact_writes.add_submission(
            opened,
            key=f"nightly:{at.date()}:bench{gpu}",
            reason="nightly",
            night=at.date(),
            commit_id=commit_id,
            gpu_model=f"bench{gpu}",
            measure=True,
        )
        planned[submission_id] = [
            fact_writes.add_sweep(
                opened,
                submission_id=submission_id,
                commit_id=commit_id,
                kernel="gemm_fp8",
                problem=f"{number}x32576x7168",
                gpu_model=f"bench{gpu}",
                arch="sm_90",
                source_sha256=f"{night.number % 10:032x}{number:032x}",
                space={"axes": [["tile_m", list(range(10))]]},
                space_size=TRIALS,
                flops=10**12,
                bytes=10**9,
            )
            for number in range(night.sweeps)
        ]
    return planned


def plan_trials(url: str, sweep_id: int, configs: Sequence[int]) -> None:
    with session(url) as opened:
        fact_writes.add_trials(
            opened, {sweep_id: [(config_id, code_key(sweep_id, config_id)) for config_id in configs]}
        )


def code_key(sweep_id: int, config_id: int) -> str:
    """Returns a key as long as a real one. Keys are in random order, because an ordered key would make the index
    faster."""
    return hashlib.sha256(f"{sweep_id} {config_id}".encode()).hexdigest()


def end_trials(url: str, sweep_id: int, rows: Sequence[dict[str, Any]]) -> None:
    with session(url) as opened:
        fact_writes.write_trial_results(opened, {sweep_id: rows})


def results(configs: Sequence[int], chance: random.Random) -> list[dict[str, Any]]:
    rows = []
    for config_id in configs:
        samples_us = [chance.uniform(100.0, 300.0) for _ in range(SAMPLES)]
        values = {"status": "timed", "samples_us": samples_us, "median_us": sorted(samples_us)[1], "error": 1e-3}
        rows.append({"config_id": config_id, "failure": None, **values})
    return rows


def put_run_on_record(opened: Session, sweep_id: int, winner: int, chance: random.Random) -> None:
    run_id = fact_writes.add_run(
        opened,
        key=f"run {sweep_id}",
        sweep_id=sweep_id,
        origin="simulated",
        host="n1",
        gpu_uuid="SIM-n1",
        gpu_name="Simulated GPU",
        timer="simulated",
        toolchain={"harness": "1"},
        telemetry=[{"when": "canary before", "canary_compute_us": 222.0}] * 8,
        sweep_gpu_s=8.0,
        tie=[winner],
        started_at=DAY,
        finished_at=DAY + dt.timedelta(seconds=20),
    )
    samples_us = [chance.uniform(99.0, 101.0) for _ in range(ROUNDS)]
    derived = {
        "median_us": 100.0,
        "low_us": 99.9,
        "high_us": 100.1,
        "ratio": 1.0,
        "ratio_low": 0.99,
        "ratio_high": 1.01,
        "baseline": "deepgemm",
    }
    shared = {"samples_us": samples_us, **derived, "detail": {"rounds": ROUNDS}}
    kernel = {"implementation": "gemm_fp8", "role": "kernel", "config_id": winner, **shared}
    baselines = [
        {"implementation": name, "role": "baseline", "config_id": None, **shared} for name in ("deepgemm", "cublaslt")
    ]
    fact_writes.add_measurements(opened, {run_id: [kernel, *baselines]})
    verdict = fact_writes.NewVerdict(
        run_id=run_id,
        verdict="unchanged",
        change=0.0,
        noise=0.002,
        history_points=30,
        policy="bench",
        reason="made up",
    )
    fact_writes.write_verdicts(opened, [verdict])


def timed(act: Callable[[int], None], each: Sequence[int]) -> float:
    began = time.monotonic()
    for one in each:
        act(one)
    return time.monotonic() - began


@contextlib.contextmanager
def database(home: Path | None = None, *, fsync: bool = True) -> Iterator[str]:
    """Runs a server and yields the URL of its database. Its folder is `home`, which is kept, or a temporary one if that
    is None."""
    folder = home or Path(tempfile.mkdtemp(prefix="tilewatch-storage-"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # started by root, the servers run as nobody
    try:
        with Embedded(folder, fsync=fsync) as servers:
            migrate.upgrade(servers.database_url)
            yield servers.database_url
            engine(servers.database_url).dispose()
    finally:
        if home is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
