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

from dashboard.frames import frame
from db import queries
from db.session import session

LIVE_TTL_S = 2
HISTORY_TTL_S = 20
LIVE_EVERY_S = 5
"""How often a live part of a page asks again."""

KEPT_ANSWERS = 32
"""Answers kept per question; the trials of a 500-config sweep take about 1 MB."""


@dataclass(frozen=True)
class Evidence:
    """`same_config_before` is what the later run's winner was like at the earlier run's commit."""

    run: queries.RunRow
    before: queries.RunRow | None
    sampled: tuple[queries.SampledRow, ...]
    sampled_before: tuple[queries.SampledRow, ...]
    winner: queries.CubinRow | None
    winner_before: queries.CubinRow | None
    same_config_before: queries.CubinRow | None
    commits: tuple[queries.CommitLine, ...]
    suspicion: queries.SuspicionRow | None
    replays: tuple[queries.ReplayRow, ...]


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


@st.cache_data(ttl=LIVE_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def submissions(url: str, limit: int) -> pd.DataFrame:
    return frame(queries.SubmissionRow, _ask(url, queries.submissions, limit))


@st.cache_data(ttl=LIVE_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def last_nights(url: str) -> pd.DataFrame:
    return frame(queries.SubmissionRow, _ask(url, queries.last_nights))


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def standing(url: str, repository: str, at: dt.datetime) -> pd.DataFrame:
    return frame(queries.StandingRow, _ask(url, queries.standing, repository, at))


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def standing_at(url: str, repository: str, sha: str) -> pd.DataFrame:
    return frame(queries.StandingRow, _ask(url, queries.standing_at, repository, sha))


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def commits(url: str, repository: str) -> pd.DataFrame:
    return frame(queries.CommitRow, _ask(url, queries.commits, repository))


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def changes_judged(url: str, repository: str, since: dt.datetime) -> pd.DataFrame:
    return frame(queries.JudgedRow, _ask(url, queries.changes_judged, repository, since))


@st.cache_data(ttl=LIVE_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def regressions(url: str) -> pd.DataFrame:
    return frame(queries.RegressionRow, _ask(url, queries.regressions))


@st.cache_data(ttl=LIVE_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def regressed(url: str, regression_id: int) -> pd.DataFrame:
    return frame(queries.RegressedRow, _ask(url, queries.regressed, regression_id))


@st.cache_data(ttl=LIVE_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def events(url: str, regression_id: int) -> pd.DataFrame:
    return frame(queries.EventRow, _ask(url, queries.events, regression_id))


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def score(url: str, since: dt.datetime | None) -> queries.Score:
    with session(url) as opened:
        return queries.score(opened, since)


@st.cache_data(ttl=LIVE_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def alarms(url: str) -> pd.DataFrame:
    return frame(queries.AlarmRow, _ask(url, queries.alarms))


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def newest_runs(url: str) -> pd.DataFrame:
    return frame(queries.RunLine, _ask(url, queries.newest_runs))


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def spaces(url: str) -> pd.DataFrame:
    return frame(queries.SpaceRow, _ask(url, queries.spaces))


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def statics(url: str, repository: str, kernel: str, problem: str, gpu_model: str) -> pd.DataFrame:
    return frame(queries.StaticRow, _ask(url, queries.statics, repository, kernel, problem, gpu_model))


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def moved(url: str, before: int, after: int) -> pd.DataFrame:
    return frame(queries.MovedRow, _ask(url, queries.moved, before, after))


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def evidence(url: str, run_id: int) -> Evidence | None:
    """All that is on record about a run and the one before it; None when there is no such run."""
    with session(url) as opened:
        run = queries.run(opened, run_id)
        if run is None:
            return None
        earlier = queries.run_before(opened, run_id)
        before = queries.run(opened, earlier) if earlier is not None else None
        sampled = queries.sampled(opened, run_id)
        sampled_before = queries.sampled(opened, before.run_id) if before else []
        after = before.position if before else run.position - 1
        winner = next((each.config_id for each in sampled if each.config_id is not None), None)
        winner_before = next((each.config_id for each in sampled_before if each.config_id is not None), None)

        def cubin(of: queries.RunRow | None, config_id: int | None) -> queries.CubinRow | None:
            return queries.cubin(opened, of.sweep_id, config_id) if of and config_id is not None else None

        return Evidence(
            run=run,
            before=before,
            sampled=tuple(sampled),
            sampled_before=tuple(sampled_before),
            winner=cubin(run, winner),
            winner_before=cubin(before, winner_before),
            same_config_before=cubin(before, winner),
            commits=tuple(queries.commits_between(opened, run.repository, after, run.position)),
            suspicion=queries.suspicion(opened, run_id),
            replays=tuple(queries.replays(opened, run_id)),
        )


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def repositories(url: str) -> list[str]:
    return _ask(url, queries.repositories)


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def series(url: str) -> pd.DataFrame:
    return frame(queries.SeriesRow, _ask(url, queries.series))


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def points(url: str, repository: str, kernel: str, problem: str, gpu_model: str, *, static_facts: bool) -> pd.DataFrame:
    asked = functools.partial(queries.points, static_facts=static_facts)
    return frame(queries.PointRow, _ask(url, asked, repository, kernel, problem, gpu_model))


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def raw_samples(url: str, run_ids: tuple[int, ...]) -> dict[tuple[int, str], list[float]]:
    return {(row.run_id, row.implementation): row.samples_us for row in _ask(url, queries.raw_samples, run_ids)}


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def levels(url: str, repository: str, kernel: str, problem: str, gpu_model: str) -> pd.DataFrame:
    return frame(queries.LevelRow, _ask(url, queries.levels, repository, kernel, problem, gpu_model))


@st.cache_data(ttl=LIVE_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def sweeps(url: str, repository: str, kernel: str, problem: str, gpu_model: str) -> pd.DataFrame:
    return frame(queries.SweepRow, _ask(url, queries.sweeps, repository, kernel, problem, gpu_model))


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def winners(url: str, repository: str, kernel: str, problem: str, gpu_model: str) -> pd.DataFrame:
    return frame(queries.WinnerRow, _ask(url, queries.winners, repository, kernel, problem, gpu_model))


@st.cache_data(ttl=LIVE_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def trials(url: str, sweep_id: int) -> pd.DataFrame:
    """The trials with one column per parameter, `param.NAME`, and `outcome`, the word people read for how it ended."""
    rows = _ask(url, queries.trials, sweep_id)
    found = frame(queries.TrialRow, rows)
    found["outcome"] = [outcome(row.status, row.compile_status) for row in rows]
    params = pd.DataFrame([row.params for row in rows]).add_prefix("param.")
    return pd.concat([found.drop(columns="params"), params], axis=1)


def outcome(status: str, compile_status: str | None) -> str:
    if status == "not_compiled":
        return "timeout" if compile_status == "timeout" else "compile error"
    return status.replace("_", " ")


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def remarks(url: str, trial_id: int) -> pd.DataFrame:
    """The remarks in reading order; the columns are those of kernels.results.StaticFacts."""
    found = pd.DataFrame(_ask(url, queries.remarks, trial_id))
    return found.reindex(columns=["line", "instruction", "shape", "passed", "text", "pass", "name"])


@st.cache_data(ttl=LIVE_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def measured(url: str, sweep_id: int) -> pd.DataFrame:
    return frame(queries.MeasuredRow, _ask(url, queries.measured, sweep_id))


@st.cache_data(ttl=LIVE_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def job_counts(url: str) -> pd.DataFrame:
    return frame(queries.JobCount, _ask(url, queries.job_counts))


@st.cache_data(ttl=LIVE_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def jobs(url: str, *states: str) -> pd.DataFrame:
    return frame(queries.JobRow, _ask(url, queries.jobs, states))


@st.cache_data(ttl=LIVE_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def queues(url: str) -> pd.DataFrame:
    return frame(queries.QueueRow, _ask(url, queries.queues))


@st.cache_data(ttl=LIVE_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def workers(url: str) -> pd.DataFrame:
    return frame(queries.WorkerRow, _ask(url, queries.workers))


@st.cache_data(ttl=LIVE_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def quarantines(url: str) -> pd.DataFrame:
    return frame(queries.QuarantineRow, _ask(url, queries.quarantines))


@st.cache_data(ttl=LIVE_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def actions(url: str) -> pd.DataFrame:
    return frame(queries.ActionRow, _ask(url, queries.actions))


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def canaries(url: str) -> pd.DataFrame:
    return frame(queries.CanaryRow, _ask(url, queries.canaries))


def _ask(url: str, question: Callable[..., list[Any]], *about: object) -> list[Any]:
    with session(url) as opened:
        return question(opened, *about)
