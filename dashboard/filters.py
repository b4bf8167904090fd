"""Choices that live in the URL: each is a widget whose key is the query parameter. Knows no query and no chart."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st

from dashboard.metrics import METRICS, Metric
from dashboard.wording import short

NEWEST = "newest"


def pick(label: str, options: Sequence[str], key: str, **more: Any) -> str:
    """One of a list. The first is the default, which the URL leaves out: it has to mean the same tomorrow."""
    return str(st.selectbox(label, options, key=key, bind="query-params", **more))


def narrow(rows: pd.DataFrame, label: str, column: str, key: str) -> pd.DataFrame:
    """The rows with the picked value of a column. The values are offered in alphabetical order, which new rows keep."""
    return rows[rows[column] == pick(label, sorted(set(rows[column])), key)]


def newest_or(rows: pd.DataFrame, label: str, column: str, key: str) -> pd.DataFrame:
    """The rows, newest first, with the picked value of a column, or with the newest row's if nobody picked."""
    picked = pick(label, [NEWEST, *dict.fromkeys(rows[column])], key)
    return rows[rows[column] == (rows.iloc[0][column] if picked == NEWEST else picked)]


def choice(label: str, options: Sequence[str], key: str) -> str:
    """One of a few, all of them in sight; the first is the default."""
    return str(st.segmented_control(label, options, default=options[0], required=True, key=key, bind="query-params"))


def slide(rows: pd.DataFrame, label: str, key: str) -> pd.DataFrame:
    """The rows of one commit, picked on a slider in commit order; the rows come newest first."""
    names = rows["sha"].map(short)
    stops = [*dict.fromkeys(names.iloc[::-1]), NEWEST]
    picked = str(st.select_slider(label, stops, value=NEWEST, key=key, bind="query-params"))
    return rows[names == (names.iloc[0] if picked == NEWEST else picked)]


def metric() -> Metric:
    labels = {metric.key: metric.label for metric in METRICS}
    key = st.segmented_control(
        "Show",
        list(labels),
        format_func=lambda key: labels[key],
        default=METRICS[0].key,
        required=True,
        key="show",
        bind="query-params",
    )
    return next(metric for metric in METRICS if metric.key == key)
