"""Choices that live in the URL: each is a widget whose key is the query parameter. Knows no query and no chart."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st

from dashboard.metrics import METRICS, Metric


def pick(label: str, options: Sequence[str], key: str, **more: Any) -> str:
    """One of a list; the first is the default, which the URL leaves out."""
    chosen = st.selectbox(label, options, key=key, bind="query-params", **more)
    return str(chosen)


def narrow(rows: pd.DataFrame, label: str, column: str, key: str, **more: Any) -> pd.DataFrame:
    """The rows with the picked value of a column, the values offered in the rows' order."""
    return rows[rows[column] == pick(label, list(dict.fromkeys(rows[column])), key, **more)]


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
