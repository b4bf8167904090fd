"""Where the database is, and cached reads of it as data frames. Asks db.queries, draws nothing.

The URL is an argument of every cached read, so that two databases in one process (the tests) cannot mix. Live reads are
kept just long enough for several viewers to share one query.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st
from streamlit.errors import StreamlitSecretNotFoundError

from db import queries
from db.session import session

LIVE_TTL_S = 2
HISTORY_TTL_S = 20
LIVE_EVERY_S = 5
"""How often a live part of a page asks again."""

KEPT_ANSWERS = 64
"""Answers kept per question; the trials of a 500-config sweep take about 1 MB."""


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
def submissions(url: str) -> pd.DataFrame:
    return _frame(queries.SubmissionRow, _ask(url, queries.submissions))


@st.cache_data(ttl=LIVE_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def latest(url: str) -> pd.DataFrame:
    return _frame(queries.LatestRow, _ask(url, queries.latest))


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def series(url: str) -> pd.DataFrame:
    return _frame(queries.SeriesRow, _ask(url, queries.series))


@st.cache_data(ttl=HISTORY_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def points(url: str, kernel: str, problem: str, gpu_model: str) -> pd.DataFrame:
    return _frame(queries.PointRow, _ask(url, queries.points, kernel, problem, gpu_model))


@st.cache_data(ttl=LIVE_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def sweeps(url: str) -> pd.DataFrame:
    return _frame(queries.SweepRow, _ask(url, queries.sweeps))


@st.cache_data(ttl=LIVE_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def trials(url: str, sweep_id: int) -> pd.DataFrame:
    """The trials with one column per parameter, `param.NAME`, and `outcome`, the word people read for how it ended."""
    rows = _ask(url, queries.trials, sweep_id)
    frame = _frame(queries.TrialRow, rows)
    frame["outcome"] = [outcome(row.status, row.compile_status) for row in rows]
    params = pd.DataFrame([row.params for row in rows]).add_prefix("param.")
    return pd.concat([frame.drop(columns="params"), params], axis=1)


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
    return _frame(queries.MeasuredRow, _ask(url, queries.measured, sweep_id))


@st.cache_data(ttl=LIVE_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def job_counts(url: str) -> pd.DataFrame:
    return _frame(queries.JobCount, _ask(url, queries.job_counts))


@st.cache_data(ttl=LIVE_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def jobs(url: str, *states: str) -> pd.DataFrame:
    return _frame(queries.JobRow, _ask(url, queries.jobs, states))


@st.cache_data(ttl=LIVE_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def queues(url: str) -> pd.DataFrame:
    return _frame(queries.QueueRow, _ask(url, queries.queues))


@st.cache_data(ttl=LIVE_TTL_S, max_entries=KEPT_ANSWERS, show_spinner=False)
def workers(url: str) -> pd.DataFrame:
    return _frame(queries.WorkerRow, _ask(url, queries.workers))


def _ask(url: str, question: Callable[..., list[Any]], *about: object) -> list[Any]:
    with session(url) as opened:
        return question(opened, *about)


def _frame(row: type, rows: list[Any]) -> pd.DataFrame:
    """A frame that has its columns even when there is no row, and None where a text is missing.

    pandas writes NaN for a missing text, and NaN is true in an `if`.
    """
    names = list(row.__dataclass_fields__)  # type: ignore[attr-defined]  # every row is a dataclass
    frame = pd.DataFrame([vars(found) for found in rows], columns=names)
    texts = {name: frame[name].astype(object).where(frame[name].notna(), None) for name in frame.select_dtypes("str")}
    return frame.assign(**texts)
