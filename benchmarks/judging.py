"""Measures how long the judge step takes for a night of many series with their history in Postgres.

    python -m benchmarks.judging [--series 10000] [--nights 12] [--report-only]

Prints the seconds of the last night, for a judge that has judged the nights before it and for one just started.
`make bench-judge` scores the verdicts; this measures their cost.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import func, select, text

from benchmarks import bounds
from benchmarks.bounds import Figure
from tilewatch.db import migrate
from tilewatch.db.lifecycle import jobs
from tilewatch.db.models import Job, Run, Sweep
from tilewatch.db.server.embedded import Embedded
from tilewatch.db.session import session
from tilewatch.worker import run_job
from tilewatch.worker.context import Context
from tilewatch.worker.judging import judge
from tilewatch.worker.settings import Settings

A_KERNEL = 20
"""Series of one kernel: its problems."""

MOST_S = 60.0
"""For a night of 10,000 series: it is judged before people come to work, and the next one may follow at once."""

HISTORY = """
insert into gpu_models (slug, name, arch) values ('h200', 'NVIDIA H200', 'sm_90');
insert into commits (repository, sha, position, committed_at, subject)
    select 'fleet', lpad(to_hex(night), 40, '0'), night, now(), 'Change ' || night
    from generate_series(1, :nights) night;
insert into submissions (key, reason, night, commit_id, gpu_model, measure)
    select 'night ' || position, 'nightly', date '2026-01-01' + position, id, 'h200', true
    from commits order by position;
insert into sweeps (submission_id, commit_id, kernel, problem, gpu_model, arch, source_sha256, space, space_size, flops,
                    bytes)
    select submissions.id, commit_id, 'kernel ' || series / :a_kernel, 'problem ' || series, 'h200', 'sm_90', 'same',
           '{"axes": [["tile", [1]]]}', 1, 1, 1
    from submissions, generate_series(0, :series - 1) series;
insert into configs (sha256, params) values ('c', '{"tile": 1}');
insert into compilations (code_key, compiler, arch, status, content_key, code_sha256, symbol, compile_s, cpu_s, host)
    values ('k', 'c', 'sm_90', 'ok', 'k', 'k', 'k', 1, 1, 'n');
insert into trials (sweep_id, config_id, code_key, compilation_id, status, median_us)
    select sweeps.id, 1, 'k', 1, 'timed', 100 from sweeps;
insert into runs (key, sweep_id, origin, host, gpu_uuid, gpu_name, timer, toolchain, toolchain_sha256, sweep_gpu_s,
                  started_at, finished_at)
    select 'run ' || id, id, 'measured', 'node', 'GPU-1', 'NVIDIA H200', 'cupti', '{}', 't', 1, now(), now()
    from sweeps;
with timed as (select id, 100 * (1 + 0.004 * random()) as us from runs)
insert into measurements (run_id, implementation, role, config_id, samples_us, median_us, low_us, high_us, ratio,
                          detail)
    select id, 'kernel', 'kernel', 1, array[us], us, us * 0.999, us * 1.001, 0.9, '{}' from timed;
analyze;
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=10_000)
    parser.add_argument("--nights", type=int, default=12)
    bounds.add_options(parser)
    options = parser.parse_args()
    sys.exit(
        bounds.report(_measure(options.series, options.nights), report_only=options.report_only, write=options.write)
    )


def _measure(series: int, nights: int) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="tilewatch-judging-", dir="/var/tmp") as folder:
        home = Path(folder)
        home.chmod(0o755)  # the embedded Postgres runs as nobody when this is run by root
        with Embedded(home / "home") as servers:
            migrate.upgrade(servers.database_url)
            settings = Settings(
                home=home / "home",
                repository=home,
                database_url=servers.database_url,
                broker_url=servers.broker_url,
            )
            context = Context.of(settings)
            _load(context, series, nights)
            _judge(context, nights - 1)
            warm_s = _judge(context, nights)
            _forget(context)
            cold_s = _judge(context, nights)
    night = f"{series:,} series after {nights - 1} nights"
    yield bounds.at_most(f"{night}, by a judge that judged those", warm_s, MOST_S, " s", 1)
    yield bounds.at_most(f"{night}, by a judge just started", cold_s, MOST_S, " s", 1)


def _load(context: Context, series: int, nights: int) -> None:
    numbers = {"series": series, "nights": nights, "a_kernel": A_KERNEL}
    with session(context.database_url) as opened:
        for statement in HISTORY.split(";\n"):
            wanted = {name: value for name, value in numbers.items() if f":{name}" in statement}
            if statement.strip():
                opened.execute(text(statement), wanted)


def _judge(context: Context, night: int) -> float:
    """The seconds of the judge job of a night."""
    with session(context.database_url) as opened:
        run_id = opened.scalar(
            select(func.min(Run.id)).join(Sweep, Sweep.id == Run.sweep_id).where(Sweep.submission_id == night)
        )
        job_id, _ = jobs.add(
            opened, key=f"judge:{time.time_ns()}", kind="judge", queue="judge", subject="s", payload={}, run_id=run_id
        )
    started = time.monotonic()
    run_job.run(job_id, "benchmark#1", context)
    took_s = time.monotonic() - started
    with session(context.database_url) as opened:
        failure = opened.get_one(Job, job_id).failure
    if failure is not None:
        raise SystemExit(f"the judge failed: {failure}")
    return took_s


def _forget(context: Context) -> None:
    """The state of a process just started: nothing in memory, and the last night without verdicts."""
    judge.forget()
    with session(context.database_url) as opened:
        opened.execute(text("truncate verdicts"))


if __name__ == "__main__":
    main()
