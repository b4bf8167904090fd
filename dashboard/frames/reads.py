"""Finds the database, and reads it into data frames with a cache.

Every read takes the database's URL as an argument, so that tests can use two databases in one process.
"""

import datetime as dt
import functools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast, get_args, get_type_hints

import pandas as pd
import streamlit as st
from sqlalchemy.orm import Session
from streamlit.errors import StreamlitSecretNotFoundError

from tilewatch.dashboard.frames import changes, differences, scoreboard
from tilewatch.dashboard.frames import inbox as inbox_frames
from tilewatch.dashboard.frames.row_frames import to_frame, trials_frame
from tilewatch.db.page_reads import actions as action_queries
from tilewatch.db.page_reads import alarms as alarm_queries
from tilewatch.db.page_reads import checks as check_queries
from tilewatch.db.page_reads import evidence as evidence_queries
from tilewatch.db.page_reads import gpu_health, judge_score, queue, snapshots
from tilewatch.db.page_reads import regressions as regression_queries
from tilewatch.db.page_reads import replays as replay_queries
from tilewatch.db.page_reads import series as series_queries
from tilewatch.db.page_reads import static_facts as static_fact_queries
from tilewatch.db.page_reads import submissions as submission_queries
from tilewatch.db.page_reads import sweeps as sweep_queries
from tilewatch.db.page_reads import toolchain_reports as report_queries
from tilewatch.db.page_reads import verdicts as verdict_queries
from tilewatch.db.session import reading_session

EVER = dt.datetime.min.replace(tzinfo=dt.UTC)
LIVE_TTL_S = 2
HISTORY_TTL_S = 20
LIVE_EVERY_S = 5
"""The seconds between two reads of a live section of a page."""

Read = TypeVar("Read", bound=Callable[..., Any])
Given = ParamSpec("Given")
Found = TypeVar("Found")
CACHED_RESULTS = 32
"""The most results that are cached per read. One result, the trials of a 500-config sweep, takes about 1 MB."""
UNDECIDED_FOR = dt.timedelta(days=14)
"""The age from which an undecided verdict no longer counts as something that needs a person."""


@dataclass(frozen=True)
class Evidence:
    """Everything stored about a run and the earlier run. `parts` lists the problems if the time is a weighted sum."""

    run: evidence_queries.RunRow
    before: evidence_queries.RunRow | None
    sampled: tuple[evidence_queries.SamplesRow, ...]
    sampled_before: tuple[evidence_queries.SamplesRow, ...]
    winner: evidence_queries.CubinRow | None
    winner_before: evidence_queries.CubinRow | None
    same_config_before: evidence_queries.CubinRow | None  # this run's winning config at the commit of `before`
    next_best: evidence_queries.CubinRow | None  # the second fastest config in the sweep
    diff_to_before: evidence_queries.CodeDiffRow | None  # None if no worker compared the code
    diff_to_next_best: evidence_queries.CodeDiffRow | None
    commits: tuple[evidence_queries.CommitInRangeRow, ...]
    suspicion: replay_queries.SuspicionRow | None
    replays: tuple[replay_queries.ReplayRow, ...]
    parts: tuple[evidence_queries.PartRow, ...]


class NoDatabase(Exception):
    """Raised if no setting gives the URL of the database. The message is a sentence."""


def database_url() -> str:
    """Returns the database's URL. Raises NoDatabase if no setting gives the URL."""
    url = os.environ.get("TILEWATCH_DATABASE_URL") or _secret() or _written_by_up()
    if not url:
        raise NoDatabase("No database is configured. Start Tilewatch with `make up`, or set TILEWATCH_DATABASE_URL.")
    return url


def _secret() -> str | None:
    try:
        return st.secrets.get("TILEWATCH_DATABASE_URL")
    except StreamlitSecretNotFoundError:
        return None


def _written_by_up() -> str | None:
    home = os.environ.get("TILEWATCH_HOME")
    if not home:
        return None
    try:
        url = json.loads((Path(home) / "connection.json").read_text())["database_url"]
    except (OSError, ValueError, KeyError):
        return None
    return str(url)


def _cached(ttl_s: int) -> Callable[[Read], Read]:
    """Returns a decorator that caches a read for `ttl_s` seconds."""
    words = "Reading the database ..." if ttl_s == HISTORY_TTL_S else False
    return cast(Callable[[Read], Read], st.cache_data(ttl=ttl_s, max_entries=CACHED_RESULTS, show_spinner=words))


def _read(query: Callable[Concatenate[Session, Given], Found], ttl_s: int) -> Callable[Concatenate[str, Given], Found]:
    """Returns a cached function that runs the query on the database at a URL."""

    def read(url: str, /, *about: Given.args, **more: Given.kwargs) -> Found:
        with reading_session(url) as opened:
            return query(opened, *about, **more)

    # Streamlit identifies a cached function by name and source text, and the text is the same for all of these.
    read.__qualname__ = f"{query.__module__}.{query.__qualname__}"
    return _cached(ttl_s)(read)


def _frames(query: Callable[..., list[Any]], ttl_s: int) -> Callable[..., pd.DataFrame]:
    """Returns a cached function that runs the query on the database at a URL and returns a frame."""
    (row,) = get_args(get_type_hints(query)["return"])

    @functools.wraps(query)
    def make_frame(opened: Session, *about: object, **more: object) -> pd.DataFrame:
        return to_frame(row, query(opened, *about, **more))

    return _read(make_frame, ttl_s)


submissions = _frames(submission_queries.list_submissions, LIVE_TTL_S)
last_nights = _frames(submission_queries.list_last_nights, LIVE_TTL_S)
job_counts = _frames(queue.count_jobs, LIVE_TTL_S)
jobs = _frames(queue.list_jobs, LIVE_TTL_S)
next_jobs = _frames(queue.list_next_jobs, LIVE_TTL_S)
queues = _frames(queue.list_queues, LIVE_TTL_S)
workers = _frames(queue.list_workers, LIVE_TTL_S)
environments = _frames(queue.list_environments, LIVE_TTL_S)
actions = _frames(action_queries.list_actions, LIVE_TTL_S)
alarms = _frames(alarm_queries.list_alarms, LIVE_TTL_S)
undecided = _frames(verdict_queries.list_undecided, HISTORY_TTL_S)
gpu_times = _frames(gpu_health.list_gpu_times, HISTORY_TTL_S)
quarantines = _frames(gpu_health.list_quarantines, LIVE_TTL_S)
canaries = _frames(gpu_health.list_canaries, HISTORY_TTL_S)
snapshot = _frames(snapshots.list_points_as_of, HISTORY_TTL_S)
snapshot_at_commit = _frames(snapshots.list_points_at_commit, HISTORY_TTL_S)
recent_ratios = _frames(snapshots.list_recent_ratios, HISTORY_TTL_S)
commits = _frames(snapshots.list_commits, HISTORY_TTL_S)
judged_changes = _frames(snapshots.list_judged_changes, HISTORY_TTL_S)
regressions = _frames(regression_queries.list_regressions, LIVE_TTL_S)
regression_series = _frames(regression_queries.list_series, LIVE_TTL_S)
events = _frames(regression_queries.list_events, LIVE_TTL_S)
levels = _frames(regression_queries.list_levels, HISTORY_TTL_S)
series = _frames(series_queries.list_series, HISTORY_TTL_S)
points = _frames(series_queries.list_points, HISTORY_TTL_S)
sizes = _frames(sweep_queries.list_sizes, HISTORY_TTL_S)
spaces = _frames(static_fact_queries.list_spaces, HISTORY_TTL_S)
static_facts = _frames(static_fact_queries.list_static_facts, HISTORY_TTL_S)
spills = _frames(static_fact_queries.list_spills, HISTORY_TTL_S)
cubin_changes = _frames(static_fact_queries.list_cubin_changes, HISTORY_TTL_S)
sweeps = _frames(sweep_queries.list_sweeps, LIVE_TTL_S)
winners = _frames(sweep_queries.list_winners, HISTORY_TTL_S)
measurements = _frames(sweep_queries.list_measurements, LIVE_TTL_S)
repositories = _read(series_queries.list_repositories, HISTORY_TTL_S)
watched = _read(series_queries.list_watched, LIVE_TTL_S)
branches = _read(series_queries.list_branches, HISTORY_TTL_S)
checks = _read(check_queries.list_checks, LIVE_TTL_S)
check = _read(check_queries.find_check, LIVE_TTL_S)
toolchain_reports = _read(report_queries.list_reports, LIVE_TTL_S)
toolchain_report = _read(report_queries.find_report, LIVE_TTL_S)
toolchain_reports_of = _read(report_queries.list_reports_of, HISTORY_TTL_S)
has_simulated_runs = _read(evidence_queries.has_simulated_runs, HISTORY_TTL_S)
judge_score_since = _read(judge_score.read_score, HISTORY_TTL_S)


@_cached(HISTORY_TTL_S)
def compared(url: str, repository: str, at: dt.datetime, sha: str | None, until: dt.datetime) -> pd.DataFrame:
    """Returns one row per series, with its change from `at` to `until`. `sha` is the commit at `at`, or None."""
    # Cached, because this takes 65 ms of CPU for 488 series (2 cores, 2026-11-23).
    pairs = changes.pair_snapshots(snapshot(url, repository, at, sha), snapshot(url, repository, until))
    return changes.one_row_per_series(differences.add_findings(pairs, judged_changes(url, repository, EVER)))


_find_regression = _read(regression_queries.find_regression, LIVE_TTL_S)


def regression(url: str, regression_id: int) -> pd.Series | None:
    """Returns the row of a regression; None if no regression has this id."""
    row = _find_regression(url, regression_id)
    return None if row is None else to_frame(regression_queries.RegressionRow, [row]).iloc[0]


def inbox(url: str) -> inbox_frames.Inbox:
    """Returns everything that needs a person, over all repositories."""
    return inbox_frames.make_inbox(regressions(url), alarms(url), undecided(url, this_hour() - UNDECIDED_FOR))


@_cached(HISTORY_TTL_S)
def scores(url: str, repository: str) -> list[scoreboard.GpuScore]:
    """Returns a score per GPU model: how far the kernels are from DeepGEMM."""
    names = series(url)
    return scoreboard.list_scores(
        recent_ratios(url, repository, scoreboard.RECENT_COMMITS),
        commits(url, repository),
        dict(zip(names["gpu_model"], names["gpu_name"], strict=True)),
    )


@_cached(LIVE_TTL_S)
def trials(url: str, sweep_id: int) -> pd.DataFrame:
    """Returns a frame with one row per trial of a sweep: parameters, outcome, time and static facts of its config."""
    with reading_session(url) as opened:
        return trials_frame(sweep_queries.list_trials(opened, sweep_id))


@_cached(HISTORY_TTL_S)
def remarks(url: str, sweep_id: int, config_id: int) -> pd.DataFrame:
    """Returns the compiler's remarks on a config, with columns in reading order."""
    with reading_session(url) as opened:
        rows = sweep_queries.read_remarks(opened, sweep_id, config_id)
    return pd.DataFrame(rows).reindex(columns=["line", "instruction", "shape", "passed", "text", "pass", "name"])


def find_evidence(opened: Session, run_id: int) -> Evidence | None:
    """Returns everything stored about a run and about the run before; None if the run does not exist."""
    run = evidence_queries.find_run(opened, run_id)
    if run is None:
        return None
    earlier = evidence_queries.find_run_before(opened, run_id)
    before = evidence_queries.find_run(opened, earlier) if earlier is not None else None
    sampled = evidence_queries.list_samples(opened, run_id)
    sampled_before = evidence_queries.list_samples(opened, before.run_id) if before else []
    after = before.position if before else run.position - 1
    winner, winner_before = (rows[0].config_id if rows else None for rows in (sampled, sampled_before))

    def cubin(of: evidence_queries.RunRow | None, config_id: int | None) -> evidence_queries.CubinRow | None:
        return evidence_queries.find_cubin(opened, of.sweep_id, config_id) if of and config_id is not None else None

    new, old = cubin(run, winner), cubin(before, winner_before)
    other = evidence_queries.find_next_best(opened, run.sweep_id, winner) if winner is not None else None
    next_best = cubin(run, other)
    return Evidence(
        run=run,
        before=before,
        sampled=tuple(sampled),
        sampled_before=tuple(sampled_before),
        winner=new,
        winner_before=old,
        same_config_before=cubin(before, winner),
        next_best=next_best,
        diff_to_before=evidence_queries.find_code_diff(opened, old, new),
        diff_to_next_best=evidence_queries.find_code_diff(opened, next_best, new),
        commits=tuple(evidence_queries.list_commits_between(opened, run.repository, after, run.position)),
        suspicion=replay_queries.find_suspicion(opened, run_id),
        replays=tuple(replay_queries.list_replays(opened, run_id)),
        parts=tuple(evidence_queries.list_parts_of_total(opened, run_id)),
    )


evidence = _read(find_evidence, HISTORY_TTL_S)


def this_hour() -> dt.datetime:
    """Returns the current time rounded down to the hour, so that reads share cached results."""
    return dt.datetime.now(dt.UTC).replace(minute=0, second=0, microsecond=0)
