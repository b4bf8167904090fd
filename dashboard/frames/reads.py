"""Where the database is, and cached reads of it as data frames. Asks db.queries, draws nothing.

The URL is an argument of every cached read, so that two databases in one process (the tests) cannot mix. Live reads are
kept just long enough for several viewers to share one query.
"""

import datetime as dt
import functools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st
from streamlit.errors import StreamlitSecretNotFoundError

from tilewatch.dashboard.frames.frames import to_frame
from tilewatch.db.queries import actions as action_queries
from tilewatch.db.queries import alarms as alarm_queries
from tilewatch.db.queries import canaries as canary_queries
from tilewatch.db.queries import evidence as evidence_queries
from tilewatch.db.queries import judge_score, quarantine, queue, snapshots
from tilewatch.db.queries import regressions as regression_queries
from tilewatch.db.queries import replays as replay_queries
from tilewatch.db.queries import series as series_queries
from tilewatch.db.queries import static_facts as static_fact_queries
from tilewatch.db.queries import sweeps as sweep_queries
from tilewatch.db.session import session

LIVE_TTL_S = 2
HISTORY_TTL_S = 20
LIVE_EVERY_S = 5
"""How often a live part of a page asks again."""

CACHED_RESULTS = 32
"""Answers kept per question; the trials of a 500-config sweep take about 1 MB."""


@dataclass(frozen=True)
class Evidence:
    """`same_config_before` is what the later run's winner was like at the earlier run's commit."""

    run: evidence_queries.RunRow
    before: evidence_queries.RunRow | None
    sampled: tuple[evidence_queries.SamplesRow, ...]
    sampled_before: tuple[evidence_queries.SamplesRow, ...]
    winner: evidence_queries.CubinRow | None
    winner_before: evidence_queries.CubinRow | None
    same_config_before: evidence_queries.CubinRow | None
    commits: tuple[evidence_queries.CommitInRangeRow, ...]
    suspicion: replay_queries.SuspicionRow | None
    replays: tuple[replay_queries.ReplayRow, ...]


class NoDatabase(Exception):
    """Nothing says where the database is; the message is a sentence."""


def database_url() -> str:
    """The environment first, then Streamlit's secrets, then what `tilewatch up` wrote down in its home."""
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


@st.cache_data(ttl=LIVE_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def submissions(url: str, limit: int) -> pd.DataFrame:
    return to_frame(queue.SubmissionRow, _ask(url, queue.list_submissions, limit))


@st.cache_data(ttl=LIVE_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def last_nights(url: str) -> pd.DataFrame:
    return to_frame(queue.SubmissionRow, _ask(url, queue.list_last_nights))


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def snapshot(url: str, repository: str, at: dt.datetime) -> pd.DataFrame:
    return to_frame(snapshots.SnapshotRow, _ask(url, snapshots.list_points_as_of, repository, at))


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def snapshot_at_commit(url: str, repository: str, sha: str) -> pd.DataFrame:
    return to_frame(snapshots.SnapshotRow, _ask(url, snapshots.list_points_at_commit, repository, sha))


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def commits(url: str, repository: str) -> pd.DataFrame:
    return to_frame(snapshots.CommitRow, _ask(url, snapshots.list_commits, repository))


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def changes_judged(url: str, repository: str, since: dt.datetime) -> pd.DataFrame:
    return to_frame(snapshots.JudgedChangeRow, _ask(url, snapshots.list_judged_changes, repository, since))


@st.cache_data(ttl=LIVE_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def regressions(url: str) -> pd.DataFrame:
    return to_frame(regression_queries.RegressionRow, _ask(url, regression_queries.list_regressions))


@st.cache_data(ttl=LIVE_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def regression_series(url: str, regression_id: int) -> pd.DataFrame:
    return to_frame(regression_queries.RegressionSeriesRow, _ask(url, regression_queries.list_series, regression_id))


@st.cache_data(ttl=LIVE_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def events(url: str, regression_id: int) -> pd.DataFrame:
    return to_frame(regression_queries.EventRow, _ask(url, regression_queries.list_events, regression_id))


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def judge_score_since(url: str, since: dt.datetime | None) -> judge_score.Score:
    with session(url) as opened:
        return judge_score.read_score(opened, since)


@st.cache_data(ttl=LIVE_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def alarms(url: str) -> pd.DataFrame:
    return to_frame(alarm_queries.AlarmRow, _ask(url, alarm_queries.list_alarms))


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def newest_runs(url: str) -> pd.DataFrame:
    return to_frame(evidence_queries.RunChoiceRow, _ask(url, evidence_queries.list_newest_runs))


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def spaces(url: str) -> pd.DataFrame:
    return to_frame(static_fact_queries.SpaceRow, _ask(url, static_fact_queries.list_spaces))


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def static_facts(url: str, repository: str, kernel: str, problem: str, gpu_model: str) -> pd.DataFrame:
    return to_frame(
        static_fact_queries.StaticRow,
        _ask(url, static_fact_queries.list_static_facts, repository, kernel, problem, gpu_model),
    )


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def cubin_changes(url: str, before: int, after: int) -> pd.DataFrame:
    return to_frame(
        static_fact_queries.CubinChangeRow, _ask(url, static_fact_queries.list_cubin_changes, before, after)
    )


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def evidence(url: str, run_id: int) -> Evidence | None:
    """All that is on record about a run and the one before it; None when there is no such run."""
    with session(url) as opened:
        run = evidence_queries.find_run(opened, run_id)
        if run is None:
            return None
        earlier = evidence_queries.find_run_before(opened, run_id)
        before = evidence_queries.find_run(opened, earlier) if earlier is not None else None
        sampled = evidence_queries.list_samples(opened, run_id)
        sampled_before = evidence_queries.list_samples(opened, before.run_id) if before else []
        after = before.position if before else run.position - 1
        winner = next((each.config_id for each in sampled if each.config_id is not None), None)
        winner_before = next((each.config_id for each in sampled_before if each.config_id is not None), None)

        def cubin(of: evidence_queries.RunRow | None, config_id: int | None) -> evidence_queries.CubinRow | None:
            return evidence_queries.find_cubin(opened, of.sweep_id, config_id) if of and config_id is not None else None

        return Evidence(
            run=run,
            before=before,
            sampled=tuple(sampled),
            sampled_before=tuple(sampled_before),
            winner=cubin(run, winner),
            winner_before=cubin(before, winner_before),
            same_config_before=cubin(before, winner),
            commits=tuple(evidence_queries.list_commits_between(opened, run.repository, after, run.position)),
            suspicion=replay_queries.find_suspicion(opened, run_id),
            replays=tuple(replay_queries.list_replays(opened, run_id)),
        )


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def repositories(url: str) -> list[str]:
    return _ask(url, series_queries.list_repositories)


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def series(url: str) -> pd.DataFrame:
    return to_frame(series_queries.SeriesRow, _ask(url, series_queries.list_series))


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def points(url: str, repository: str, kernel: str, problem: str, gpu_model: str, *, static_facts: bool) -> pd.DataFrame:
    asked = functools.partial(series_queries.list_points, static_facts=static_facts)
    return to_frame(series_queries.PointRow, _ask(url, asked, repository, kernel, problem, gpu_model))


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def raw_samples(url: str, run_ids: tuple[int, ...]) -> dict[tuple[int, str], list[float]]:
    return {
        (row.run_id, row.implementation): row.samples_us for row in _ask(url, series_queries.list_raw_samples, run_ids)
    }


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def levels(url: str, repository: str, kernel: str, problem: str, gpu_model: str) -> pd.DataFrame:
    return to_frame(
        regression_queries.LevelRow, _ask(url, regression_queries.list_levels, repository, kernel, problem, gpu_model)
    )


@st.cache_data(ttl=LIVE_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def sweeps(url: str, repository: str, kernel: str, problem: str, gpu_model: str) -> pd.DataFrame:
    return to_frame(
        sweep_queries.SweepRow, _ask(url, sweep_queries.list_sweeps, repository, kernel, problem, gpu_model)
    )


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def winners(url: str, repository: str, kernel: str, problem: str, gpu_model: str) -> pd.DataFrame:
    return to_frame(
        sweep_queries.WinnerRow, _ask(url, sweep_queries.list_winners, repository, kernel, problem, gpu_model)
    )


@st.cache_data(ttl=LIVE_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def trials(url: str, sweep_id: int) -> pd.DataFrame:
    """The trials with one column per parameter, `param.NAME`, and `outcome`, the word people read for how it ended."""
    rows = _ask(url, sweep_queries.list_trials, sweep_id)
    found = to_frame(sweep_queries.TrialRow, rows)
    found["outcome"] = [outcome(row.status, row.compile_status) for row in rows]
    params = pd.DataFrame([row.params for row in rows]).add_prefix("param.")
    return pd.concat([found.drop(columns="params"), params], axis=1)


def outcome(status: str, compile_status: str | None) -> str:
    if status == "not_compiled":
        return "timeout" if compile_status == "timeout" else "compile error"
    return status.replace("_", " ")


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def remarks(url: str, trial_id: int) -> pd.DataFrame:
    """The remarks in reading order; the columns are those of kernels.results.StaticFacts."""
    found = pd.DataFrame(_ask(url, sweep_queries.read_remarks, trial_id))
    return found.reindex(columns=["line", "instruction", "shape", "passed", "text", "pass", "name"])


@st.cache_data(ttl=LIVE_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def measurements(url: str, sweep_id: int) -> pd.DataFrame:
    return to_frame(sweep_queries.MeasurementRow, _ask(url, sweep_queries.list_measurements, sweep_id))


@st.cache_data(ttl=LIVE_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def job_counts(url: str) -> pd.DataFrame:
    return to_frame(queue.JobCount, _ask(url, queue.count_jobs))


@st.cache_data(ttl=LIVE_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def jobs(url: str, *states: str) -> pd.DataFrame:
    return to_frame(queue.JobRow, _ask(url, queue.list_jobs, states))


@st.cache_data(ttl=LIVE_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def queues(url: str) -> pd.DataFrame:
    return to_frame(queue.QueueRow, _ask(url, queue.list_queues))


@st.cache_data(ttl=LIVE_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def workers(url: str) -> pd.DataFrame:
    return to_frame(queue.WorkerRow, _ask(url, queue.list_workers))


@st.cache_data(ttl=LIVE_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def quarantines(url: str) -> pd.DataFrame:
    return to_frame(quarantine.QuarantineRow, _ask(url, quarantine.list_quarantines))


@st.cache_data(ttl=LIVE_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def actions(url: str) -> pd.DataFrame:
    return to_frame(action_queries.ActionRow, _ask(url, action_queries.list_actions))


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=CACHED_RESULTS, show_spinner=False)
def canaries(url: str) -> pd.DataFrame:
    return to_frame(canary_queries.CanaryRow, _ask(url, canary_queries.list_canaries))


def _ask(url: str, question: Callable[..., list[Any]], *about: object) -> list[Any]:
    with session(url) as opened:
        return question(opened, *about)
