"""Shows tables on a page: plain, with rows to select, or in a closed expander below a chart."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pandas as pd
import streamlit as st

from tilewatch.dashboard.text import without_formula
from tilewatch.dashboard.widgets import address

ROW_PX, BORDER_PX = 35, 2
MOST_ROWS = 10
"""The most rows in sight. A longer table scrolls."""

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler


def show(table: "pd.DataFrame | Styler", *, key: str, **options: Any) -> Any:
    """Shows a table without its index. A button saves the table as CSV without formulas."""
    if isinstance(table, pd.DataFrame):
        table = _without_formulas(table)
    else:
        table.data = _without_formulas(table.data)
    rows = len(table if isinstance(table, pd.DataFrame) else table.data)
    if options.get("height", "auto") in ("auto", "content"):
        shown = rows if "height" in options else min(rows, MOST_ROWS)
        # Set before the script of the table has loaded, so that nothing below moves.
        options["height"] = (shown + 1) * ROW_PX + BORDER_PX
    return st.dataframe(table, hide_index=True, placeholder="", key=f"table-{key}", **options)


def show_few(rows: Sequence[Mapping[str, str]]) -> None:
    """Shows a few rows as a Markdown table. Streamlit's own tables need a script of 1 MB."""
    heads = list(dict.fromkeys(head for row in rows for head in row))
    lines = (heads, ["---"] * len(heads), *([row.get(head, "") for head in heads] for row in rows))
    st.markdown("\n".join(f"| {' | '.join(line)} |" for line in lines))


def pick_row(table: Any, rows: pd.DataFrame, key: str, **options: Any) -> pd.Series | None:
    """Shows a table and returns the selected row of `rows`; None if no row is selected."""
    # A choice of another page may use `key`, and Streamlit would take its value for the selection.
    shown = show(table, on_select="rerun", selection_mode="single-row", key=f"{key}-picked", **options)
    # The selection may contain rows that no longer exist.
    return next((rows.iloc[row] for row in shown.selection.rows if row < len(rows)), None)


def show_in_expander(
    title: str, key: str, make: Callable[[], pd.DataFrame], columns: Mapping[str, Any] | None = None
) -> None:
    """Shows an expander with a table. `make` is called only if the expander is open."""
    with open_expander(title, key) as is_open:
        if is_open:
            show(make(), key=f"{key}-rows", column_config=dict(columns or {}))


@contextmanager
def open_expander(title: str, key: str) -> Iterator[bool]:
    """Shows an expander and yields whether it is open. `key` is the parameter in the address."""
    opened = st.expander(title, key=key, on_change=address.restore(key, address.is_yes))
    with opened:
        yield bool(opened.open)


def _without_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """Returns the table with `without_formula` applied to every text."""
    texts = (name for name, column in table.items() if column.dtype.kind == "O")  # objects and pandas' own texts
    found = [name for name in texts if any(without_formula(cell) is not cell for cell in table[name])]
    return table.assign(**{name: table[name].map(without_formula) for name in found})
