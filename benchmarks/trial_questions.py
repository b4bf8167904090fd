"""Lists what pages, the API and reports ask of the trials, and times each question on a database.

Every query of tilewatch.db.page_reads that reads the table `trials` is among them.
"""

import datetime as dt
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from tilewatch.db.models import Commit, Measurement, Run, Sweep
from tilewatch.db.page_reads import evidence, series, snapshots, static_facts, submissions, sweeps
from tilewatch.db.query_parts import SERIES, is_of_series
from tilewatch.db.session import session
from tilewatch.gc_tuning import tune_memory

REPEATS = 40


@dataclass(frozen=True)
class Asked:
    """A sweep and what it names: its series, its winner, and the sweep of its series that was made before it."""

    sweep_id: int
    before_id: int
    config_id: int
    series: tuple[str, str, str, str]
    sha: str
    at: dt.datetime


QUESTIONS: dict[str, Callable[[Session, Asked], object]] = {
    "the trials of a sweep": lambda opened, asked: sweeps.list_trials(opened, asked.sweep_id),
    "the remarks of a config": lambda opened, asked: sweeps.read_remarks(opened, asked.sweep_id, asked.config_id),
    "the cubin of a winner": lambda opened, asked: evidence.find_cubin(opened, asked.sweep_id, asked.config_id),
    "the next best config": lambda opened, asked: evidence.find_next_best(opened, asked.sweep_id, asked.config_id),
    "the newest submission": lambda opened, _: submissions.list_submissions(opened, 1),
    "20 submissions, of Jobs": lambda opened, _: submissions.list_submissions(opened, 20),
    "the last nights, of Overview": lambda opened, _: submissions.list_last_nights(opened),
    "spills of a GPU model": lambda opened, asked: static_facts.list_spills(opened, asked.series[0], asked.series[3]),
    "static facts over 90 commits": lambda opened, asked: static_facts.list_static_facts(opened, *asked.series),
    "cubins that moved": lambda opened, asked: static_facts.list_cubin_changes(opened, asked.before_id, asked.sweep_id),
    "points of a series": lambda opened, asked: series.list_points(opened, *asked.series, static_facts=False),
    "points of a series with static facts": lambda opened, asked: series.list_points(opened, *asked.series),
    "all series at a time": lambda opened, asked: snapshots.list_points_as_of(opened, asked.series[0], asked.at),
    "all series at a commit": lambda opened, asked: snapshots.list_points_at_commit(opened, asked.series[0], asked.sha),
}


def ask_all(url: str) -> dict[str, float]:
    """Returns the p95 of each question in ms, over sweeps of all nights, each asked once, in a process that is tuned as
    the dashboard's and the API's are."""
    tune_memory()
    with session(url) as opened:
        chosen = [_describe(opened, sweep_id) for sweep_id in _choose(opened)]
    return {what: _ask(url, question, chosen) for what, question in QUESTIONS.items()}


def _choose(opened: Session) -> list[int]:
    """Any sweeps with a run, with one more, which is asked first and not timed."""
    chance = random.Random(1)  # noqa: S311 - any sweeps
    newest = opened.scalar(select(func.max(Sweep.id))) or 0
    found: list[int] = []
    while len(found) < REPEATS + 1:
        from_id = chance.randint(1, newest)
        found += opened.scalars(select(Run.sweep_id).where(Run.sweep_id >= from_id).order_by(Run.sweep_id).limit(1))
    return found


def _describe(opened: Session, sweep_id: int) -> Asked:
    query = (
        select(Sweep, Commit.sha, Commit.committed_at, Measurement.config_id)
        .join(Commit, Commit.id == Sweep.commit_id)
        .join(Run, Run.sweep_id == Sweep.id)
        .join(Measurement, (Measurement.run_id == Run.id) & (Measurement.role == "kernel"))
        .where(Sweep.id == sweep_id)
    )
    sweep, sha, at, config_id = opened.execute(query).one()
    series_of = (sweep.repository, sweep.kernel, sweep.problem, sweep.gpu_model)
    keys = dict(zip(SERIES, series_of, strict=True))
    before = select(func.max(Sweep.id)).where(*is_of_series(keys), Sweep.id < sweep_id)
    return Asked(sweep_id, opened.scalar(before) or sweep_id, config_id or 0, series_of, sha, at)


def _ask(url: str, question: Callable[[Session, Asked], object], chosen: list[Asked]) -> float:
    taken_ms = []
    with session(url) as opened:
        question(opened, chosen[0])  # connects and plans
        for asked in chosen[1:]:
            began = time.perf_counter()
            question(opened, asked)
            taken_ms.append(1e3 * (time.perf_counter() - began))
    return statistics.quantiles(taken_ms, n=20)[-1]
