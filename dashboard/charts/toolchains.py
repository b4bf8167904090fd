"""Draws a comparison of two toolchains: the change of each operator's time, with intervals. Pure."""

from collections.abc import Sequence

import plotly.graph_objects as go

from tilewatch.dashboard.charts import colours
from tilewatch.db.page_reads.toolchain_reports import OperatorRow, TimeChange
from tilewatch.text import plain_html

AT_MOST = 40
SAFETIES = {
    "not safe": (colours.WORSE, "circle"),
    "safe if re-tuned": (colours.WORSE, "circle-open"),
    "unknown": (colours.UNCERTAIN, "diamond-open"),
    "safe": (colours.BETTER, "circle-open"),
}
"""The colour and the mark shape of each verdict."""


def changes(operators: Sequence[OperatorRow], newer: str) -> go.Figure:
    """Draws the operators that a GPU timed, the slowest on top. A cross shows the time after re-tuning."""
    timed = sorted((row for row in operators if row.frozen is not None), key=_change, reverse=True)[:AT_MOST]
    figure = go.Figure()
    for safety, (colour, symbol) in SAFETIES.items():
        rows = [row for row in timed if row.safety == safety]
        _add(figure, safety, [(row, row.frozen) for row in rows], {"color": colour, "symbol": symbol, "size": 9})
    retuned = {"color": colours.KERNEL, "symbol": "x-thin-open", "size": 9}
    _add(figure, "re-tuned", [(row, row.retuned) for row in timed], retuned)
    figure.add_vline(x=0, line={"width": 1, "color": colours.LINE})
    figure.update_layout(
        height=140 + 20 * max(len(timed), 4),
        margin={"t": 30, "b": 10, "l": 10, "r": 10},
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
        # Three short lines: a phone has no room for a long one beside the names.
        xaxis={"title": f"change of the time<br>with {plain_html(newer)}, %<br>(plus is slower)", "zeroline": False},
        yaxis={
            "type": "category",
            "automargin": True,
            "showgrid": False,
            "categoryorder": "array",
            "categoryarray": [_name(row) for row in reversed(timed)],
            "range": [-0.7, max(len(timed), 1) - 0.3],  # Plotly's default leaves a tenth of the height empty
        },
    )
    return figure


def _add(
    figure: go.Figure, name: str, changes: Sequence[tuple[OperatorRow, TimeChange | None]], marker: dict[str, object]
) -> None:
    shown = [(row, change) for row, change in changes if change is not None]
    if not shown:
        return
    figure.add_scatter(
        x=[100 * change.change for _, change in shown],
        y=[_name(row) for row, _ in shown],
        error_x={
            "array": [_length(change.high, change.change) for _, change in shown],
            "arrayminus": [_length(change.change, change.low) for _, change in shown],
            "thickness": 1.2,
            "width": 3,
            "color": colours.UNCERTAIN,
        },
        mode="markers",
        marker=marker,
        name=name,
        customdata=[change.launches for _, change in shown],
        hovertemplate="%{y}: %{x:+.1f} % after %{customdata} launches<extra></extra>",
    )


def _length(end: float | None, start: float | None) -> float:
    """Returns the length of one side of an interval in %; 0 if its end is unknown."""
    return 0.0 if end is None or start is None else 100 * (end - start)


def _change(row: OperatorRow) -> float:
    return 0.0 if row.frozen is None else row.frozen.change


def _name(row: OperatorRow) -> str:
    return plain_html(f"{row.kernel} {row.problem}")
