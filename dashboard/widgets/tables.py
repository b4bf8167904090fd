"""How a table stands behind a chart: closed until somebody wants it, and not even made before. Knows no chart."""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import streamlit as st


def show_in_expander(
    title: str, key: str, make: Callable[[], pd.DataFrame], columns: Mapping[str, Any] | None = None
) -> None:
    """`make` runs when it is open; its key is in the address then. A table's own toolbar saves it as CSV."""
    opened = st.expander(title, key=key, on_change="rerun", bind="query-params")
    with opened:
        if opened.open:
            st.dataframe(make(), hide_index=True, key=f"{key}-rows", column_config=dict(columns or {}))
