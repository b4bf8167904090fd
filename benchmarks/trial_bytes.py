"""Counts the bytes of a trial on disk at several sizes, and times what is asked about trials there, and one more night.

    python -m benchmarks.trial_bytes [--sizes 200000 1000000] [--keep FOLDER] [--report-only]

A real Postgres and the states that a trial goes through: planned; compiled, every second night in batches and otherwise
as a nightly whose code is known; timed, first in parts as a sweep goes on and once more with its run. The first two
nights, 200,000 trials, are written by the functions that the workers call. All further nights are copies of these two,
made by Postgres itself with as many versions of each row (benchmarks/copied_nights.py). Vacuum runs when autovacuum
would: after a fifth more trials. The table is counted with its indexes and with the room that old versions of its rows
left.

At each size, with fsync, parts of one more night are written by the workers' functions in turns with the same parts
into an empty database of the same server.

With --keep the database stays in FOLDER, and another call measures again what is there, or goes on from it.
"""

import argparse
import math
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import make_url, text

from benchmarks import bounds, storage, trial_questions
from benchmarks.bounds import Figure
from benchmarks.copied_nights import copies
from benchmarks.storage import TRIALS, Night
from tilewatch.db import fact_writes, migrate
from tilewatch.db.session import engine, session
from tilewatch.db.worker_reads import steps
from tilewatch.worker.steps.compile import attach_in_parts

GPUS, SWEEPS = 4, 50
"""Of a night: 100,000 trials."""

WRITTEN = (2, 3)
"""Nights that the workers' functions write; all others are copies of these. An even one compiles."""

COMPILER = "cuda-tile 1.7.0"
CHUNK = 250
"""Configs that a compile worker attaches at once, less than one of each page. It takes 3, which needs more time."""

PARTS = 5
"""How often a sweep writes the trials that ended, before its run writes all of them again: it does so every 2 s."""

MOST_BYTES = 200.0
MOST_QUERY_MS = 120.0
MOST_TIMES_AN_EMPTY_ONE = 1.2
GROWTH = 1.2
"""Autovacuum's defaults: it comes when a fifth of the rows changed or came."""

TURNS, TURN_SWEEPS = 14, 3
"""Parts of one more night, of 1,500 trials each."""

LATER = (10**8, 10**9)

COMPILE = text("""
    insert into compilations (code_key, compiler, arch, status, content_key, code_sha256, symbol, registers, compile_s,
                              cpu_s, host)
    select distinct code_key, :compiler, 'sm_90', 'ok', md5(code_key), md5(code_key || 'code'), 'gemm', 168, 1.2, 1.1,
                    'n1'
    from trials join sweeps on sweeps.id = sweep_id
    where submission_id = :submission_id
    on conflict do nothing
""")
BYTES = text("""
    select pg_total_relation_size('trials'), pg_indexes_size('trials'), pg_database_size(current_database())
""")


@dataclass(frozen=True)
class Size:
    """A database with some trials: bytes of the table with its index, of that alone, of all tables, the p95 of each
    question, and how many times as long one more night takes as in an empty database."""

    trials: int
    table_bytes: int
    index_bytes: int
    database_bytes: int
    questions_ms: dict[str, float]
    nights: list[tuple[float, float]]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--sizes", type=int, nargs="+", default=[2 * 10**5, 10**6])
    asked.add_argument("--keep", type=Path, metavar="FOLDER")
    bounds.add_options(asked)
    options = asked.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp(prefix="tilewatch-trials-"))
    try:
        sys.exit(
            bounds.report(measure(sorted(options.sizes), folder), report_only=options.report_only, write=options.write)
        )
    finally:
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def measure(sizes: Sequence[int], folder: Path) -> Iterator[Figure]:
    measured = []
    for size in sizes:
        began = time.monotonic()
        with storage.database(folder, fsync=False) as url:
            grow(url, size)
        with storage.database(folder) as url:
            yield Figure(f"{size:,} trials: written in", f"{time.monotonic() - began:.0f} s")
            measured.append(read_size(url))
        yield from describe(measured[-1])
    yield from extrapolate(measured)


def grow(url: str, size: int) -> None:
    with session(url) as opened:
        configs = storage.prepare(opened, GPUS)
        number = 1 + (opened.scalar(text("select max(position) from commits")) or WRITTEN[0] - 1)
        trials = opened.scalar(text("select count(*) from trials"))
    if not trials:
        for number in WRITTEN:
            write_night(url, Night(number, GPUS, SWEEPS), configs)
            vacuum(url)
        number, trials = WRITTEN[-1] + 1, len(WRITTEN) * GPUS * SWEEPS * TRIALS
    number += number % 2
    vacuumed = trials
    with copies(url, WRITTEN) as copied:
        while trials < size:
            copied.write(number)
            number, trials = number + 2, trials + 2 * GPUS * SWEEPS * TRIALS
            if trials >= GROWTH * vacuumed:
                vacuum(url)
                vacuumed = trials


def write_night(url: str, night: Night, configs: Sequence[int]) -> None:
    """Each step in transactions of its own, as workers have them."""
    chance = random.Random(night.number)  # noqa: S311 - made-up times
    with session(url) as opened:
        planned = storage.plan_sweeps(opened, night)
    for submission_id, sweep_ids in planned.items():
        for number, sweep_id in enumerate(sweep_ids):
            code = (night.number // 2) * SWEEPS + number
            with session(url) as opened:
                fact_writes.add_trials(opened, sweep_id, [(each, storage.code_key(code, each)) for each in configs])
        with session(url) as opened:
            opened.execute(COMPILE, {"submission_id": submission_id, "compiler": COMPILER})
        attach(url, submission_id, night)
        for sweep_id in sweep_ids:
            time_trials(url, sweep_id, configs, chance)


def attach(url: str, submission_id: int, night: Night) -> None:
    """Every second night finds its code compiled."""
    with session(url) as opened:
        keys = [each.code_key for each in steps.list_unmeasured(opened, submission_id, "gemm_fp8")]
    if night.number % 2:
        attach_in_parts(url, COMPILER, submission_id, keys)
        return
    random.Random(night.number).shuffle(keys)  # noqa: S311 - batches are spread over a search space
    for start in range(0, len(keys), CHUNK):
        with session(url) as opened:
            fact_writes.attach_compilations(
                opened, compiler=COMPILER, submission_id=submission_id, code_keys=keys[start : start + CHUNK]
            )


def time_trials(url: str, sweep_id: int, configs: Sequence[int], chance: random.Random) -> None:
    rows = storage.results(configs, chance)
    for start in range(0, TRIALS, TRIALS // PARTS):
        for part in fact_writes.in_parts(rows[start : start + TRIALS // PARTS]):
            with session(url) as opened:
                fact_writes.write_trial_results(opened, sweep_id, part)
    with session(url) as opened:
        fact_writes.write_trial_results(opened, sweep_id, rows)
        storage.put_run_on_record(opened, sweep_id, configs[0], chance)


def vacuum(url: str) -> None:
    """Does what autovacuum does between two nights."""
    with engine(url).connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("vacuum (analyze)"))


def read_size(url: str) -> Size:
    vacuum(url)
    with engine(url).connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("checkpoint"))
        trials = connection.execute(text("select count(*) from trials")).scalar_one()
        table_bytes, index_bytes, database_bytes = connection.execute(BYTES).one()
    questions_ms = trial_questions.ask_all(url)
    return Size(trials, table_bytes, index_bytes, database_bytes, questions_ms, write_one_more(url))


def write_one_more(url: str) -> list[tuple[float, float]]:
    """Seconds of each part of a night, in this database and in an empty one. The first two are not counted."""
    empty_url = make_url(url).set(database="empty").render_as_string(hide_password=False)
    with engine(url).connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("drop database if exists empty"))  # of a call that was killed
        connection.execute(text("create database empty"))
        try:
            return list(_write_in_turns(url, empty_url))[2:]
        finally:
            engine(empty_url).dispose()
            connection.execute(text("drop database empty"))


def _write_in_turns(url: str, empty_url: str) -> Iterator[tuple[float, float]]:
    migrate.upgrade(empty_url)
    configs = {}
    for each in (url, empty_url):
        with session(each) as opened:
            configs[each] = storage.prepare(opened, GPUS)
    with session(url) as opened:
        first = opened.scalar(text("select max(position) from commits")) or 0
    for turn in range(TURNS):  # an even number, after which the next copy is again one that compiles
        taken_s = {}
        for each in (url, empty_url) if turn % 2 else (empty_url, url):
            began = time.monotonic()
            write_night(each, Night(first + 1 + turn, 1, TURN_SWEEPS), configs[each])
            taken_s[each] = time.monotonic() - began
        yield taken_s[url], taken_s[empty_url]


def describe(size: Size) -> Iterator[Figure]:
    what = f"{size.trials:,} trials"
    yield bounds.at_most(f"{what}: bytes of a trial", size.table_bytes / size.trials, MOST_BYTES)
    yield Figure(f"{what}: of these the index", f"{size.index_bytes / size.trials:.0f}")
    yield Figure(f"{what}: bytes of all tables for each", f"{size.database_bytes / size.trials:.0f}")
    for question, taken_ms in size.questions_ms.items():
        yield bounds.at_most(f"{what}: {question}, p95", taken_ms, MOST_QUERY_MS, " ms", 1)
    times = statistics.median(full_s / empty_s for full_s, empty_s in size.nights)
    totals = (sum(each) for each in zip(*size.nights, strict=True))
    what = f"{what}: {len(size.nights)} parts of one more night"
    yield Figure(f"{what}, here and in an empty database", " and ".join(f"{each:.1f} s" for each in totals))
    yield bounds.at_most(f"{what}, the median of the ratios", times, MOST_TIMES_AN_EMPTY_ONE, digits=2)


def extrapolate(sizes: Sequence[Size]) -> Iterator[Figure]:
    """As if each further ten times added what the last ten times did, and never took away."""
    if len(sizes) < 2:
        return
    before, last = sizes[-2:]
    decade = math.log10(last.trials / before.trials)
    for later in LATER:
        decades = math.log10(later / last.trials) / decade
        grown = max(0.0, last.table_bytes / last.trials - before.table_bytes / before.trials)
        each = last.table_bytes / last.trials + decades * grown
        yield Figure(
            f"{later:,} trials by extrapolation: bytes of a trial, the table",
            f"{each:.0f}, {each * later / 1e9:.0f} GB",
        )
        for question, taken_ms in last.questions_ms.items():
            more_ms = max(0.0, taken_ms - before.questions_ms[question])
            yield Figure(
                f"{later:,} trials by extrapolation: {question}, p95", f"{taken_ms + decades * more_ms:.0f} ms"
            )


if __name__ == "__main__":
    main()
