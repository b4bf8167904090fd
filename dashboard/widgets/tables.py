"""Tables on a page: one whose rows can be selected, and one behind a chart that is closed until somebody opens it."""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import streamlit as st


def pick_row(table: Any, rows: pd.DataFrame, key: str, **options: Any) -> pd.Series | None:
    """Shows `table`, a frame or a styled one; returns the row of `rows` that is selected in it, or None."""
    shown = st.dataframe(table, hide_index=True, on_select="rerun", selection_mode="single-row", key=key, **options)
    # A selection outlives the rows: there may be fewer by now.
    return next((rows.iloc[row] for row in shown.selection.rows if row < len(rows)), None)


def show_in_expander(
    title: str, key: str, make: Callable[[], pd.DataFrame], columns: Mapping[str, Any] | None = None
) -> None:
    """Shows a table that `make` makes when it is opened, which its key in the address says."""
    opened = st.expander(title, key=key, on_change="rerun", bind="query-params")
    with opened:
        if opened.open:
            st.dataframe(make(), hide_index=True, key=f"{key}-rows", column_config=dict(columns or {}))
