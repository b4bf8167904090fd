"""What cubins say over commits without running: the counts as a figure, and what moved between two sweeps by kind.

Pure. The frames have the columns of db.queries.StaticRow and MovedRow.
"""

from html import escape

import pandas as pd
import plotly.graph_objects as go

from tilewatch.dashboard.charts import colours
from tilewatch.dashboard.text import config_text, first_line
from tilewatch.text import short_sha

COUNTS = (
    ("compiled", "compiled", colours.OUTCOMES["compiled"], "circle"),
    ("tma", "every load through TMA", colours.OTHERS[3], "square"),
    ("tensor_core", "every MMA on Tensor Cores", colours.OUTCOMES["timed"], "diamond"),
    ("spilling", "with spills", colours.OTHERS[0], "triangle-up"),
    ("timeouts", "timeout", colours.OUTCOMES["timeout"], "x"),
    ("errors", "compile error", colours.OUTCOMES["compile error"], "cross"),
)
"""Column, name, colour and mark: the marks tell the lines apart without the colours."""


def over_commits(counts: pd.DataFrame) -> go.Figure:
    """The share of the configs that are so, per commit; a change of the compiler is a dashed line.

    Shares are of the configs whose compilation ended, so that a sweep that still compiles does not look like a loss.
    """
    figure = go.Figure()
    commits = [short_sha(sha) for sha in counts["sha"]]
    for column, name, colour, symbol in COUNTS:
        figure.add_scatter(
            x=commits,
            y=100 * counts[column] / counts["settled"],
            name=name,
            mode="lines+markers",
            line={"color": colour, "width": 1.5},
            marker={"color": colour, "symbol": symbol, "size": 8},
            customdata=list(zip(counts[column], counts["settled"], counts["subject"].map(escape), strict=True)),
            hovertemplate="%{customdata[0]} of %{customdata[1]}: " + name + "<br>%{x} %{customdata[2]}<extra></extra>",
        )
    compilers = counts["compiler"].tolist()
    for place in range(1, len(compilers)):
        if compilers[place] != compilers[place - 1]:
            figure.add_vline(x=place - 0.5, line={"width": 1.5, "dash": "dash", "color": colours.LINE})
    figure.update_layout(
        height=380,
        margin={"t": 10, "b": 10, "l": 10, "r": 10},
        xaxis={"title": "commit, in commit order (dashed: another compiler)", "type": "category", "nticks": 15},
        yaxis={"title": "% of the configs", "rangemode": "tozero"},
        # Over the plot: under it, names of commits that do not fit side by side turn and run into it.
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
    )
    return figure


def by_kind(moved: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The moved configs under what happened to them, bad news first; one config may stand under several."""
    ok_before, ok_after = moved["status_before"] == "ok", moved["status_after"] == "ok"
    both = ok_before & ok_after
    spills = moved["stack_after"].fillna(0) - moved["stack_before"].fillna(0)
    kinds = {
        "Stopped compiling": ok_before & ~ok_after,
        "Lost Tensor Core code": both & (moved["tensor_core_after"] < moved["tensor_core_before"]),
        "Lost TMA loads": both & (moved["tma_after"] < moved["tma_before"]),
        "Spills appeared or grew": both & (spills > 0),
        "Compile again": ~ok_before & ok_after,
        "Gained Tensor Core code": both & (moved["tensor_core_after"] > moved["tensor_core_before"]),
        "Gained TMA loads": both & (moved["tma_after"] > moved["tma_before"]),
        "Spills shrank or vanished": both & (spills < 0),
        "Other registers": both & (moved["registers_before"] != moved["registers_after"]),
    }
    return {kind: moved[rows] for kind, rows in kinds.items() if rows.any()}


def table(moved: pd.DataFrame) -> pd.DataFrame:
    """Each config with what it was and what it is, only the facts that differ for some of them."""
    told = {"config": [config_text(params) for params in moved["params"]]}
    for name, label in (
        ("status", "compiled"),
        ("registers", "registers"),
        ("stack", "stack bytes"),
        ("tma", "TMA loads"),
        ("tensor_core", "Tensor Core MMAs"),
        ("code_bytes", "code bytes"),
    ):
        before, after = moved[f"{name}_before"], moved[f"{name}_after"]
        if (before.notna() & after.notna() & (before != after)).any():
            told[label] = [
                f"{_text(b)} → {_text(a)}" if b != a else _text(b) for b, a in zip(before, after, strict=True)
            ]
    if moved["failure"].notna().any():
        told["failure"] = [first_line(failure) for failure in moved["failure"]]
    return pd.DataFrame(told)


def _moved(before: object, after: object) -> str:
    old, new = _text(before), _text(after)
    return old if old == new else f"{old} → {new}"


def _text(value: object) -> str:
    if value is None or pd.isna(value):
        return "none"
    return f"{value:,.0f}" if isinstance(value, float) else str(value)
