"""Draws static facts of cubins, such as spills, over the commits, and lists cubins that changed."""

import pandas as pd
import plotly.graph_objects as go

from tilewatch.configs import config_text
from tilewatch.dashboard.charts import colours, trend_layout
from tilewatch.dashboard.text import first_line
from tilewatch.text import plain_html, short_sha

COUNTS = (
    ("compiled", "compiled", colours.OUTCOMES["compiled"], "circle"),
    ("tma", "every load through TMA", colours.OTHERS[3], "square"),
    ("tensor_core", "every MMA on Tensor Cores", colours.OUTCOMES["timed"], "diamond"),
    ("spilling", "with spills", colours.OTHERS[0], "triangle-up"),
    ("timeouts", "timeout", colours.OUTCOMES["timeout"], "x"),
    ("errors", "compile error", colours.OUTCOMES["compile error"], "cross"),
)
"""The column, name, colour and point shape of each line. The shapes distinguish the lines without colours."""


def over_commits(counts: pd.DataFrame) -> go.Figure:
    """Draws, over the commits, the percentages of configs that compiled, spill registers, use TMA etc."""
    figure = go.Figure()
    commits = [short_sha(sha) for sha in counts["sha"]]
    for column, name, colour, symbol in COUNTS:
        figure.add_scatter(
            x=commits,
            # The share of finished compilations, because a sweep in progress must not look like a loss.
            y=100 * counts[column] / counts["settled"],
            name=name,
            mode="lines+markers",
            line={"color": colour, "width": 1.5},
            marker={"color": colour, "symbol": symbol, "size": 8},
            customdata=list(zip(counts[column], counts["settled"], counts["subject"].map(plain_html), strict=True)),
            hovertemplate="%{customdata[0]} of %{customdata[1]}: " + name + "<br>%{x} %{customdata[2]}<extra></extra>",
        )
    compilers = counts["compiler"].tolist()
    for place in range(1, len(compilers)):
        if compilers[place] != compilers[place - 1]:
            figure.add_vline(x=place - 0.5, line={"width": 1.5, "dash": "dash", "color": colours.LINE})
    title = f"{trend_layout.name_days(counts)}<br>(dashed: another compiler)"
    figure.update_layout(
        height=440,
        margin={"t": 10, "b": 10, "l": 10, "r": 10},
        xaxis=trend_layout.label_commits(counts, commits) | {"title": title, "type": "category"},
        yaxis={"title": "% of the configs", "rangemode": "tozero"},
        # At the foot, where the figure reserves space, because long commit names turn.
        legend={"orientation": "h", "yref": "container", "yanchor": "bottom", "y": 0, "x": 0},
    )
    return figure


def by_kind(changed: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Maps each kind of change, e.g. "Lost TMA loads", to its configs."""
    ok_before, ok_after = changed["status_before"] == "ok", changed["status_after"] == "ok"
    both = ok_before & ok_after
    spills = changed["stack_after"].fillna(0) - changed["stack_before"].fillna(0)
    kinds = {
        "Stopped compiling": ok_before & ~ok_after,
        "Lost Tensor Core code": both & (changed["tensor_core_after"] < changed["tensor_core_before"]),
        "Lost TMA loads": both & (changed["tma_after"] < changed["tma_before"]),
        "Spills appeared or grew": both & (spills > 0),
        "Compiling again": ~ok_before & ok_after,
        "Gained Tensor Core code": both & (changed["tensor_core_after"] > changed["tensor_core_before"]),
        "Gained TMA loads": both & (changed["tma_after"] > changed["tma_before"]),
        "Spills shrank or vanished": both & (spills < 0),
        "Other registers": both & (changed["registers_before"] != changed["registers_after"]),
    }
    return {kind: changed[rows] for kind, rows in kinds.items() if rows.any()}


def table(changed: pd.DataFrame) -> pd.DataFrame:
    """Returns a table of configs with the static facts that changed, before and after the change."""
    columns = {"config": [config_text(params) for params in changed["params"]]}
    for name, label in (
        ("status", "compiled"),
        ("registers", "registers"),
        ("stack", "stack bytes"),
        ("tma", "TMA loads"),
        ("tensor_core", "Tensor Core MMAs"),
        ("code_bytes", "code bytes"),
    ):
        before, after = changed[f"{name}_before"], changed[f"{name}_after"]
        if (before.notna() & after.notna() & (before != after)).any():
            columns[label] = [
                f"{_text(b)} → {_text(a)}" if b != a else _text(b) for b, a in zip(before, after, strict=True)
            ]
    if changed["failure"].notna().any():
        columns["failure"] = [first_line(failure) for failure in changed["failure"]]
    return pd.DataFrame(columns)


def _text(value: object) -> str:
    if value is None or pd.isna(value):
        return "none"
    return f"{value:,.0f}" if isinstance(value, float) else str(value)
