"""Figures of many series at once: the board of ratios, and sorted differences. Pure, like charts.py."""

from html import escape
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from dashboard import colours
from dashboard.wording import change_text, commit_text, ratio_to, rival_text, short, time_text

RATIO_SPAN = 0.5
"""The colours of the board end at this far from 1.0."""
CHANGE_SPAN = 0.1
"""The colours of changes end at this far from none."""
ROW_HEIGHT = 22
DEEPGEMM = "deepgemm"
AT_EACH_END = 20


def board(series: pd.DataFrame) -> go.Figure:
    """Kernel and problem down, GPU models across: the ratio, and its change where the intervals are apart.

    A cell names what its ratio is to where that is not DeepGEMM, which most kernels have. The frame is of
    `changes.one_record`: one row per series.
    """
    return _grid(series, "ratio", 1.0, RATIO_SPAN, _board_text, "ratio to the main baseline")


def change_map(pairs: pd.DataFrame) -> go.Figure:
    """The changes by series and GPU model: a row of one colour is the algorithm, one cell is one architecture."""
    return _grid(pairs, "change", 0.0, CHANGE_SPAN, _change_cell_text, "change of speed")


def _grid(series: pd.DataFrame, column: str, middle: float, span: float, write: Any, title: str) -> go.Figure:
    rows = list(dict.fromkeys(zip(series["kernel"], series["problem"], strict=True)))
    names = dict(zip(series["gpu_model"], series["gpu_name"], strict=True))
    found = {(row["kernel"], row["problem"], row["gpu_model"]): row for row in series.to_dict("records")}
    cells = [[found.get((kernel, problem, model)) for model in names] for kernel, problem in rows]
    figure = go.Figure(
        go.Heatmap(
            x=[name.removeprefix("NVIDIA ") for name in names.values()],
            y=[f"{kernel} {problem}" for kernel, problem in rows],
            z=[[None if cell is None or pd.isna(cell[column]) else cell[column] for cell in line] for line in cells],
            text=[["" if cell is None else write(cell) for cell in line] for line in cells],
            texttemplate="%{text}",
            textfont={"color": "#1b2430"},
            customdata=[["" if cell is None else _hover(cell) for cell in line] for line in cells],
            hovertemplate="%{customdata}<extra></extra>",
            hoverongaps=False,
            colorscale=colours.SLOWER_TO_FASTER,
            zmin=middle - span,
            zmid=middle,
            zmax=middle + span,
            colorbar={"title": {"text": title, "side": "right"}, "thickness": 12, "outlinewidth": 0},
            xgap=2,
            ygap=2,
        )
    )
    figure.update_layout(
        height=90 + ROW_HEIGHT * max(len(rows), 3),
        margin={"t": 30, "b": 10, "l": 10, "r": 10},
        hoverlabel={"align": "left"},
        xaxis={"side": "top", "type": "category", "showgrid": False},
        yaxis={"type": "category", "autorange": "reversed", "showgrid": False},
    )
    return figure


def _board_text(cell: dict[str, Any]) -> str:
    if pd.isna(cell["ratio"]):
        return ""
    moved = f" {'▲' if cell['change'] > 0 else '▼'}{abs(100 * cell['change']):.1f}%" if cell["apart"] else ""
    rival = "" if cell["baseline"] == DEEPGEMM else f" {escape(rival_text(cell['baseline']))}"
    return f"{cell['ratio']:.2f}{rival}{moved}"


def _change_cell_text(cell: dict[str, Any]) -> str:
    return "" if pd.isna(cell["change"]) else change_text(cell["change"])


def _hover(cell: dict[str, Any]) -> str:
    lines = [
        f"<b>{escape(cell['kernel'])} {escape(cell['problem'])}</b>, {escape(cell['gpu_name'])}",
        f"<b>{short(cell['sha'])}</b> {escape(commit_text(cell['subject'], cell['author'], cell['committed_at']))}",
        "without a baseline" if pd.isna(cell["ratio"]) else _interval(cell),
        f"median {time_text(cell['median_us'])} ({time_text(cell['low_us'])} to {time_text(cell['high_us'])})",
    ]
    if not pd.isna(cell["change"]):
        lines.append(
            f"speed {change_text(cell['change'])} since {short(cell['sha_before'])} "
            f"({change_text(cell['change_low'])} to {change_text(cell['change_high'])})"
        )
    if cell["verdict"]:
        lines.append(f"{cell['verdict']}: {escape(cell['reason'])}")
    return "<br>".join(lines)


def _interval(cell: dict[str, Any]) -> str:
    return f"{escape(ratio_to(cell['ratio'], cell['baseline']))} ({cell['ratio_low']:.3f} to {cell['ratio_high']:.3f})"


def differences(pairs: pd.DataFrame, label: str) -> go.Figure:
    """The changes that lie furthest at each end, with their intervals; grey where the interval holds zero."""
    ordered = pairs.dropna(subset="change").sort_values("change")
    ends = ordered if len(ordered) <= 2 * AT_EACH_END else pd.concat([ordered[:AT_EACH_END], ordered[-AT_EACH_END:]])
    shown = ends.iloc[::-1]  # the slowest at the top
    rows = shown.to_dict("records")
    names = [f"{row['kernel']} {row['problem']} {row['where']}" for row in rows]
    marked = [
        colours.UNCERTAIN
        if not row["apart"]
        else colours.VERDICTS["improvement" if row["change"] > 0 else "regression"]
        for row in rows
    ]
    figure = go.Figure(
        go.Scatter(
            x=100 * shown["change"],
            y=names,
            mode="markers",
            marker={
                "color": marked,
                "size": 9,
                "symbol": ["circle" if apart else "circle-open" for apart in shown["apart"]],
            },
            error_x={
                "array": 100 * (shown["change_high"] - shown["change"]),
                "arrayminus": 100 * (shown["change"] - shown["change_low"]),
                "thickness": 1.2,
                "width": 3,
                "color": colours.UNCERTAIN,
            },
            customdata=[_hover(row) for row in rows],
            hovertemplate="%{customdata}<extra></extra>",
        )
    )
    figure.add_vline(x=0, line={"width": 1, "color": colours.UNCERTAIN})
    figure.update_layout(
        height=110 + 20 * max(len(shown), 4),
        margin={"t": 10, "b": 10, "l": 10, "r": 10},
        hoverlabel={"align": "left"},
        xaxis={"title": f"{label}, % (plus is faster)", "zeroline": False},
        yaxis={"type": "category", "automargin": True, "showgrid": False},
    )
    return figure
