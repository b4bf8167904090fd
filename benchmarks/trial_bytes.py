"""Counts the bytes of a trial on disk at several sizes, and times what the pages ask about trials there.

    python -m benchmarks.trial_bytes [--sizes 100000 1000000] [--report-only]

A real Postgres with fsync, the functions that the workers call, and the states that a trial goes through: planned;
compiled, every second night in batches and otherwise as a nightly whose code is known; timed, first in parts as a sweep
goes on and once more with its run. The table is counted with its indexes and with the room that old versions of its
rows left.
"""

import argparse
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.orm import Session

from benchmarks import bounds, storage
from benchmarks.bounds import Figure
from benchmarks.storage import TRIALS, Night
from tilewatch.db import record
from tilewatch.db.queries import static_facts, submissions, sweeps
from tilewatch.db.session import engine, session
from tilewatch.db.step_queries import steps
from tilewatch.worker.steps.compile import attach_in_parts

GPUS, SWEEPS = 4, 50
"""Of a night: 100,000 trials."""

COMPILER = "cuda-tile 1.7.0"
CHUNK = 250
"""Configs that a compile worker attaches at once, less than one of each page. It takes 3, which needs more time."""

PARTS = 5
"""How often a sweep writes the trials that ended, before its run writes all of them again: it does so every 2 s."""

MOST_BYTES = 200.0
MOST_QUERY_MS = 120.0
REPEATS = 40
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
    """A database with some trials: bytes of the table with its index, of that alone, of all tables, and the p95 of each
    question."""

    trials: int
    table_bytes: int
    index_bytes: int
    database_bytes: int
    questions_ms: dict[str, float]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--sizes", type=int, nargs="+", default=[10**5, 10**6])
    bounds.add_report_only(asked)
    options = asked.parse_args()
    sys.exit(bounds.report(measure(sorted(options.sizes)), report_only=options.report_only))


def measure(sizes: Sequence[int]) -> Iterator[Figure]:
    measured = []
    with storage.database() as url:
        with session(url) as opened:
            configs = storage.prepare(opened, GPUS)
        nights = 0
        for size in sizes:
            began = time.monotonic()
            while nights * GPUS * SWEEPS * TRIALS < size:
                nights += 1
                write_night(url, Night(nights, GPUS, SWEEPS), configs)
                vacuum(url)
            measured.append(read_size(url, nights * GPUS * SWEEPS * TRIALS))
            yield from describe(measured[-1], time.monotonic() - began)
    yield from extrapolate(measured)


def write_night(url: str, night: Night, configs: Sequence[int]) -> None:
    """Each step in transactions of its own, as workers have them."""
    chance = random.Random(night.number)  # noqa: S311 - made-up times
    with session(url) as opened:
        planned = storage.plan_sweeps(opened, night)
    for submission_id, sweep_ids in planned.items():
        for number, sweep_id in enumerate(sweep_ids):
            code = (night.number // 2) * SWEEPS + number
            with session(url) as opened:
                record.add_trials(opened, sweep_id, [(each, storage.code_key(code, each)) for each in configs])
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
            record.attach_compilations(
                opened, compiler=COMPILER, submission_id=submission_id, code_keys=keys[start : start + CHUNK]
            )


def time_trials(url: str, sweep_id: int, configs: Sequence[int], chance: random.Random) -> None:
    rows = storage.results(configs, chance)
    for start in range(0, TRIALS, TRIALS // PARTS):
        for part in record.in_parts(rows[start : start + TRIALS // PARTS]):
            with session(url) as opened:
                record.write_trial_results(opened, sweep_id, part)
    with session(url) as opened:
        record.write_trial_results(opened, sweep_id, rows)
        storage.put_run_on_record(opened, sweep_id, configs[0], chance)


def vacuum(url: str) -> None:
    """Does what autovacuum does between two nights."""
    with engine(url).connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("vacuum (analyze)"))


def read_size(url: str, trials: int) -> Size:
    with engine(url).connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("vacuum (analyze)"))
        connection.execute(text("checkpoint"))
        found = connection.execute(text("select count(*) from trials")).scalar_one()
        table_bytes, index_bytes, database_bytes = connection.execute(BYTES).one()
    if found != trials:
        raise RuntimeError(f"{found:,} trials are on record and {trials:,} were written")
    questions_ms = {what: ask(url, question) for what, question in QUESTIONS.items()}
    return Size(trials, table_bytes, index_bytes, database_bytes, questions_ms)


def ask(url: str, question: Callable[[Session, int], object]) -> float:
    """The p95 in ms over sweeps of all nights, each asked once."""
    chance = random.Random(1)  # noqa: S311 - any sweeps
    with session(url) as opened:
        sweep_ids = chance.sample(list(opened.scalars(text("select id from sweeps"))), REPEATS)
        question(opened, sweep_ids[0])  # connects and plans
        taken_ms = []
        for sweep_id in sweep_ids[1:]:
            began = time.perf_counter()
            question(opened, sweep_id)
            taken_ms.append(1e3 * (time.perf_counter() - began))
    return statistics.quantiles(taken_ms, n=20)[-1]


QUESTIONS: dict[str, Callable[[Session, int], object]] = {
    "the trials of a sweep": sweeps.list_trials,
    "the newest submission, 25,000 trials": lambda opened, _: submissions.list_submissions(opened, 1),
    "spills of a GPU model": lambda opened, _: static_facts.list_spills(opened, "bench", "bench0"),
}


def describe(size: Size, written_s: float) -> Iterator[Figure]:
    what = f"{size.trials:,} trials"
    yield Figure(f"{what}: written in", f"{written_s:.0f} s")
    yield bounds.at_most(f"{what}: bytes of a trial", size.table_bytes / size.trials, MOST_BYTES)
    yield Figure(f"{what}: of these the index", f"{size.index_bytes / size.trials:.0f}")
    yield Figure(f"{what}: bytes of all tables for each", f"{size.database_bytes / size.trials:.0f}")
    for question, taken_ms in size.questions_ms.items():
        yield bounds.at_most(f"{what}: {question}, p95", taken_ms, MOST_QUERY_MS, " ms", 1)


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
