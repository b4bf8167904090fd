"""Choices that are kept in the URL: the key of each widget is its query parameter. Knows no query and no chart."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from tilewatch.dashboard.frames.metrics import METRICS, Metric
from tilewatch.text import short_sha

SHA_8 = re.compile("[0-9a-f]{8}")
MAIN = ("gemm_fp8_scaled", "gemm_fp8", "320x32576x7168", "b200", "h200")
"""Kernels, problems and GPU models that pages open on, where there are any of these: the FP8 GEMM that is held against
DeepGEMM, on Blackwell, else on the GPU model of the recorded nights, whose sweeps are whole."""
OLDEST, NEWEST, THE_ONE_BEFORE = "oldest", "newest", "the one before"


def pick(label: str, options: Sequence[str], key: str, **more: Any) -> str:
    """One of a list. The first is the default and not in the URL, so it must mean the same tomorrow."""
    _lengthen_shas(key, options)
    return str(st.selectbox(label, options, key=key, bind="query-params", **more))


def pick_value(rows: pd.DataFrame, label: str, column: str, key: str) -> pd.DataFrame:
    """The rows with the picked value of a column. The values that people come for are first, then all others in
    alphabetical order, which new rows keep."""
    return rows[rows[column] == pick(label, main_first(set(rows[column])), key)]


def main_first(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (MAIN.index(name) if name in MAIN else len(MAIN), name))


def pick_or_newest(rows: pd.DataFrame, label: str, column: str, key: str, newest: str = NEWEST) -> pd.DataFrame:
    """The rows, newest first, with the picked value of a column; with the newest row's value if nobody picked.

    `newest` is the name of that default.
    """
    picked = pick(label, [newest, *dict.fromkeys(rows[column])], key)
    return rows[rows[column] == (rows.iloc[0][column] if picked == newest else picked)]


def choose(label: str, options: Sequence[str], key: str) -> str:
    """One of a few, all of them visible; the first is the default."""
    return str(st.segmented_control(label, options, default=options[0], required=True, key=key, bind="query-params"))


def pick_commit(rows: pd.DataFrame, label: str, key: str, newest: str) -> pd.DataFrame:
    """The rows of one commit, picked on a slider in commit order, that of the sha `newest` if nobody picked; the rows
    come newest first."""
    names = rows["sha"].map(short_sha)
    stops = [*dict.fromkeys(names.iloc[::-1]), NEWEST]
    _lengthen_shas(key, stops)
    picked = str(st.select_slider(label, stops, value=NEWEST, key=key, bind="query-params"))
    return rows[rows["sha"] == newest] if picked == NEWEST else rows[names == picked]


def pick_span(shas: Sequence[str], key: str) -> tuple[int, int]:
    """The indices of the first and the last picked commit; of all commits by default."""
    names = [short_sha(sha) for sha in shas]
    stops = [OLDEST, *names, NEWEST]
    _lengthen_shas(key, stops)
    first, last = st.select_slider(
        "Commits", stops, value=(OLDEST, NEWEST), key=key, bind="query-params", help="Fewer commits show raw samples."
    )
    return (
        0 if first == OLDEST else names.index(first) if first in names else len(names) - 1,
        len(names) - 1 if last == NEWEST else names.index(last) if last in names else 0,
    )


def pick_metric() -> Metric:
    """The metric to show of each point. The URL has its label."""
    label = pick("Show", [metric.label for metric in METRICS], "show")
    return next(metric for metric in METRICS if metric.label == label)


def _lengthen_shas(key: str, options: Sequence[str]) -> None:
    """Addresses of earlier versions have 8 digits of a commit and not the 10 of `short_sha`; they still work."""
    given = st.query_params.get_all(key)
    full = [
        next((option for option in options if option.startswith(value)), value) if SHA_8.fullmatch(value) else value
        for value in given
    ]
    if full != given and key not in st.session_state:
        st.session_state[key] = full[0] if len(full) == 1 else tuple(full)
