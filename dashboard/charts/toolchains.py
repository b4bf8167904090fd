"""Draws a comparison of toolchains: the change of each operator's time, with intervals."""

from collections.abc import Sequence

import plotly.graph_objects as go

from tilewatch.dashboard.charts import colours
from tilewatch.dashboard.charts.axes import log_numbers
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

WIDE = 1.0
"""If a time grew by more than this share, times are drawn as multiples on a log axis. With +3985 % on a linear axis,
+31 % cannot be told from 0 (an H200's report, 2026-11-30)."""


def name_operators(rows: Sequence[OperatorRow]) -> list[str]:
    """Returns each row's kernel and problem as text, with the newer toolchain if the rows have several."""
    several = len({row.head for row in rows}) > 1
    return [f"{row.kernel} {row.problem}{f', {row.head}' if several else ''}" for row in rows]


def changes(operators: Sequence[OperatorRow]) -> go.Figure:
    """Draws the operators' changes of time, the worst first. Crosses are the changes with re-tuned configs."""
    timed = sorted((row for row in operators if row.frozen is not None), key=_change, reverse=True)[:AT_MOST]
    named = list(zip(map(plain_html, name_operators(timed)), timed, strict=True))
    newer = plain_html(", ".join(dict.fromkeys(row.head for row in timed)))
    is_wide = any(_change(row) > WIDE for row in timed)
    # Three short lines: a phone has no room for a long one beside the names.
    title = f"change of the time<br>with {newer}, %<br>(plus is slower)"
    axis: dict[str, object] = {"title": title, "zeroline": False}
    if is_wide:
        axis = log_numbers([1 + _change(row) for row in timed])
        axis["title"] = f"time with {newer}<br>as a multiple of before<br>(over 1 is slower)"
    figure = go.Figure()
    for safety, (colour, symbol) in SAFETIES.items():
        rows = [(name, row.frozen) for name, row in named if row.safety == safety]
        _add(figure, safety, rows, {"color": colour, "symbol": symbol, "size": 9}, is_wide=is_wide)
    retuned = {"color": colours.KERNEL, "symbol": "x-thin-open", "size": 9}
    _add(figure, "re-tuned", [(name, row.retuned) for name, row in named], retuned, is_wide=is_wide)
    figure.add_vline(x=1 if is_wide else 0, line={"width": 1, "color": colours.LINE})
    figure.update_layout(
        height=140 + 20 * max(len(timed), 4),
        margin={"t": 30, "b": 10, "l": 10, "r": 10},
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
        xaxis=axis,
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
    figure: go.Figure,
    legend: str,
    changes: Sequence[tuple[str, TimeChange | None]],
    marker: dict[str, object],
    *,
    is_wide: bool,
) -> None:
    shown = [(name, change) for name, change in changes if change is not None]
    if not shown:
        return
    scale, start = (1, 1) if is_wide else (100, 0)
    figure.add_scatter(
        x=[start + scale * change.change for _, change in shown],
        y=[name for name, _ in shown],
        error_x={
            "array": [scale * _length(change.high, change.change) for _, change in shown],
            "arrayminus": [scale * _length(change.change, change.low) for _, change in shown],
            "thickness": 1.2,
            "width": 3,
            "color": colours.UNCERTAIN,
        },
        mode="markers",
        marker=marker,
        name=legend,
        customdata=[(100 * change.change, change.launches) for _, change in shown],
        hovertemplate="%{y}: %{customdata[0]:+.1f} % after %{customdata[1]} launches<extra></extra>",
    )


def _length(end: float | None, start: float | None) -> float:
    """Returns the length of one side of an error bar, as a share; 0 if an end is missing."""
    return 0.0 if end is None or start is None else end - start


def _change(row: OperatorRow) -> float:
    return 0.0 if row.frozen is None else row.frozen.change
