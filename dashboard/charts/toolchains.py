"""Draws a comparison of toolchains: the change of each operator's time, with intervals."""

from collections.abc import Sequence

import plotly.graph_objects as go

from tilewatch.dashboard.charts import colours
from tilewatch.db.page_reads.toolchain_reports import OperatorRow, TimeChange
from tilewatch.text import plain_html

AT_MOST = 40
LEGEND = (
    f"The {AT_MOST} slowest at most, with 95 % intervals. Filled: surely slower than allowed. A cross: the newer "
    "toolchain's own best config beside the config in use."
)
SAFETIES = {
    "not safe": (colours.WORSE, "circle"),
    "safe if re-tuned": (colours.WORSE, "circle-open"),
    "unknown": (colours.UNCERTAIN, "diamond-open"),
    "safe": (colours.BETTER, "circle-open"),
}
"""The colour and the point shape of each answer to whether a toolchain is safe for an operator."""


def name_operators(rows: Sequence[OperatorRow]) -> list[str]:
    """Returns each row's kernel and problem as text, with the newer toolchain if the rows have several."""
    several = len({row.head for row in rows}) > 1
    return [f"{row.kernel} {row.problem}{f', {row.head}' if several else ''}" for row in rows]


def changes(operators: Sequence[OperatorRow]) -> go.Figure:
    """Draws the operators' changes of time, the worst first. Crosses are the changes with re-tuned configs."""
    timed = sorted((row for row in operators if row.frozen is not None), key=_change, reverse=True)[:AT_MOST]
    named = list(zip(map(plain_html, name_operators(timed)), timed, strict=True))
    newer = ", ".join(dict.fromkeys(row.head for row in timed))
    figure = go.Figure()
    for safety, (colour, symbol) in SAFETIES.items():
        rows = [(name, row.frozen) for name, row in named if row.safety == safety]
        _add(figure, safety, rows, {"color": colour, "symbol": symbol, "size": 9})
    retuned = {"color": colours.KERNEL, "symbol": "x-thin-open", "size": 9}
    _add(figure, "re-tuned", [(name, row.retuned) for name, row in named], retuned)
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
            "categoryarray": [name for name, _ in reversed(named)],
            "range": [-0.7, max(len(timed), 1) - 0.3],  # Plotly's default leaves a tenth of the height empty
        },
    )
    return figure


def _add(
    figure: go.Figure, legend: str, changes: Sequence[tuple[str, TimeChange | None]], marker: dict[str, object]
) -> None:
    shown = [(name, change) for name, change in changes if change is not None]
    if not shown:
        return
    figure.add_scatter(
        x=[100 * change.change for _, change in shown],
        y=[name for name, _ in shown],
        error_x={
            "array": [_length(change.high, change.change) for _, change in shown],
            "arrayminus": [_length(change.change, change.low) for _, change in shown],
            "thickness": 1.2,
            "width": 3,
            "color": colours.UNCERTAIN,
        },
        mode="markers",
        marker=marker,
        name=legend,
        customdata=[change.launches for _, change in shown],
        hovertemplate="%{y}: %{x:+.1f} % after %{customdata} launches<extra></extra>",
    )


def _length(end: float | None, start: float | None) -> float:
    """Returns the length of one side of an error bar in %; 0 if an end is missing."""
    return 0.0 if end is None or start is None else 100 * (end - start)


def _change(row: OperatorRow) -> float:
    return 0.0 if row.frozen is None else row.frozen.change
