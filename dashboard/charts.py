"""Figures from data frames. Pure: no query, no widget, no clock; the frames have the columns of the rows in db.queries.

A colour belongs to an implementation or an outcome, never to an order, so that it stays the same over pages and days.
Text and grid colours come from Streamlit's theme; only what carries meaning is coloured here.
"""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from dashboard.metrics import Metric
from dashboard.wording import config_text, moment, plural, short, time_text

KERNEL_COLOUR = "#3d7fe0"
BASELINE_COLOURS = {"deepgemm": "#e58a2b", "deepgemm_as_called": "#b9955c", "cublaslt": "#2fa37c"}
OTHER_COLOURS = ("#a064d8", "#c95f8a", "#8a7d3c", "#4aa3b8")
VERDICT_COLOURS = {"regression": "#d6344b", "improvement": "#1f9d55"}
OUTCOME_COLOURS = {
    "timed": "#2fa37c",
    "compiled": "#3d7fe0",
    "timeout": "#e5a52b",
    "compile error": "#d6344b",
    "wrong": "#a064d8",
    "launch error": "#c95f8a",
    "crashed": "#7d2f4d",
    "hung": "#8a7d3c",
    "waiting": "#9aa5b4",
}
GOOD_TO_BAD = ((0.0, "#1d7f74"), (0.35, "#8cc0a0"), (0.6, "#f1dfa0"), (1.0, "#d0603f"))

MOST_LABELLED_CHANGES = 6
"""Toolchain changes beyond this many keep their line and lose their words, which would lie over each other."""


def trend(points: pd.DataFrame, metric: Metric) -> go.Figure:
    """One series over commits: the kernel and its baselines, each with its 95 % interval.

    What was measured here is a filled circle on a solid line, what was recorded elsewhere an open diamond on a dotted
    one.
    """
    points = points.join(metric.values(points)).dropna(subset="value")
    commits = list(dict.fromkeys(points["sha"]))
    place = {sha: i for i, sha in enumerate(commits)}
    figure = go.Figure()
    for (implementation, role, origin, machine), line in points.groupby(
        ["implementation", "role", "origin", "machine"], sort=False
    ):
        recorded = origin == "recorded"
        colour = colour_of(implementation, role)
        kernel = role == "kernel"
        figure.add_scatter(
            x=[short(sha) for sha in line["sha"]],
            y=line["value"],
            error_y={
                "array": line["high"] - line["value"],
                "arrayminus": line["value"] - line["low"],
                "thickness": 1.2,
                "width": 3,
            },
            name=f"{implementation}, recorded on {machine}" if recorded else implementation,
            mode="lines+markers",
            line={"color": colour, "width": 2.5 if kernel else 1.5, "dash": "dot" if recorded else "solid"},
            marker={
                "color": colour,
                "size": (10 if kernel else 7) + (2 if recorded else 0),
                "symbol": "diamond-open" if recorded else "circle",
                "line": {"width": 2 if recorded else 0, "color": colour},
            },
            customdata=[[_hover(point, metric), point["run_id"]] for _, point in line.iterrows()],
            hovertemplate="%{customdata[0]}<extra></extra>",
        )
    _mark_verdicts(figure, points)
    changes = list(toolchain_changes(points, place))
    for i, change in enumerate(changes):
        figure.add_vline(
            x=change.place,
            line={"width": 1.5, "dash": "dash", "color": "#8a94a3"},
            annotation={
                "text": escape(change.words) if i < MOST_LABELLED_CHANGES else "",
                "font": {"size": 11},
                "hovertext": escape(change.words),
                "yref": "paper",
                "y": 1.0,
                "yanchor": "bottom",
                "xanchor": "center",
                "showarrow": False,
            },
        )
    if metric.key == "ratio":
        figure.add_hline(y=1.0, line={"width": 1, "color": BASELINE_COLOURS["deepgemm"]}, opacity=0.6)
    figure.update_layout(
        height=460,
        margin={"t": 40 if changes else 20, "b": 10, "l": 10, "r": 10},
        hovermode="closest",
        hoverlabel={"align": "left"},
        legend={"orientation": "h", "yanchor": "top", "y": -0.16, "x": 0},
        yaxis={"title": metric.axis, "range": _around(points, with_one=metric.key == "ratio"), "zeroline": False},
        xaxis={
            "title": "commit, in commit order",
            "type": "category",
            "categoryorder": "array",
            "categoryarray": [short(sha) for sha in commits],
            "range": [-0.5, max(len(commits), 1) - 0.5],
        },
    )
    return figure


def colour_of(implementation: str, role: str) -> str:
    if role == "kernel":
        return KERNEL_COLOUR
    other = OTHER_COLOURS[zlib.crc32(implementation.encode()) % len(OTHER_COLOURS)]
    return BASELINE_COLOURS.get(implementation, other)


@dataclass(frozen=True)
class ToolchainChange:
    place: float
    words: str


def toolchain_changes(points: pd.DataFrame, place: Mapping[str, int]) -> Iterator[ToolchainChange]:
    """Where the toolchain of the kernel's runs changed, halfway between the two commits it lies between.

    Machines are looked at one by one: that another machine has another driver is not a change.
    """
    kernel = points[points["role"] == "kernel"]
    for _, line in kernel.groupby(["origin", "machine"], sort=False):
        runs = list(line.to_dict("records"))
        for before, after in pairwise(runs):
            if before["toolchain_sha256"] != after["toolchain_sha256"]:
                middle = (place[before["sha"]] + place[after["sha"]]) / 2
                yield ToolchainChange(middle, _difference(before["toolchain"], after["toolchain"]))


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    changed = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    told = [f"{name} {before.get(name, 'none')} → {after.get(name, 'none')}" for name in changed[:2]]
    more = [f"{len(changed) - 2} more"] if len(changed) > 2 else []
    return ", ".join(told + more)


def _mark_verdicts(figure: go.Figure, points: pd.DataFrame) -> None:
    kernel = points[points["role"] == "kernel"]
    for verdict, colour in VERDICT_COLOURS.items():
        judged = kernel[kernel["verdict"] == verdict]
        if len(judged):
            figure.add_scatter(
                x=[short(sha) for sha in judged["sha"]],
                y=judged["value"],
                name=verdict,
                mode="markers",
                marker={"symbol": "circle-open", "size": 20, "color": colour, "line": {"width": 3}},
                hoverinfo="skip",
            )


def _hover(point: pd.Series, metric: Metric) -> str:
    lines = [
        f"<b>{short(point['sha'])}</b> {escape(point['subject'])}",
        f"<b>{escape(point['implementation'])}: {metric.write(point['value'])}</b>"
        f" (95 %: {metric.write(point['low'])} to {metric.write(point['high'])})",
    ]
    if metric.key != "time_us":
        lines.append(f"median {time_text(point['median_us'])} of {plural(point['samples'], 'sample')}")
    if point["params"]:
        lines.append(f"config {escape(config_text(point['params']))}")
    driver = point["toolchain"].get("driver")
    board = escape(point["board"]) + (f", driver {escape(str(driver))}" if driver else "")
    lines.append(f"{point['origin']} on {escape(point['machine'])} ({board})")
    lines.append(f"{moment(point['measured_at'])}; commit of {moment(point['committed_at'])}")
    if point["role"] == "kernel" and point["verdict"]:
        lines.append(f"{point['verdict']}: {escape(point['reason'])}")
    return "<br>".join(lines)


def _around(points: pd.DataFrame, *, with_one: bool) -> list[float] | None:
    """A value range with room around the points: a single point would otherwise stand in a range of two whole units."""
    if points.empty:
        return None
    low, high = points["low"].fillna(points["value"]).min(), points["high"].fillna(points["value"]).max()
    if with_one:
        low, high = min(low, 1.0), max(high, 1.0)
    room = max(0.12 * (high - low), 0.02 * abs(high))
    return [float(low - room), float(high + room)]


def outcomes(trials: pd.DataFrame) -> go.Figure:
    """How the trials of a sweep stand, as one bar."""
    counts = trials["outcome"].value_counts()
    figure = go.Figure()
    for outcome, colour in OUTCOME_COLOURS.items():
        if outcome in counts.index:
            figure.add_bar(
                x=[counts[outcome]],
                y=[""],
                orientation="h",
                name=f"{outcome} {counts[outcome]}",
                marker={"color": colour},
                hovertemplate=f"{outcome}: {plural(int(counts[outcome]), 'config')}<extra></extra>",
            )
    figure.update_layout(
        barmode="stack",
        height=84,
        margin={"t": 0, "b": 0, "l": 0, "r": 0},
        legend={"orientation": "h", "traceorder": "normal", "y": 0.45, "yanchor": "top", "x": 0},
        xaxis={"visible": False, "range": [0, max(len(trials), 1)]},
        yaxis={"visible": False, "domain": [0.55, 1]},
        showlegend=True,
    )
    return figure


@dataclass(frozen=True)
class Fact:
    """Something known of each config, and how the configs that share two parameters become one cell."""

    key: str
    label: str
    cell: str
    summarize: str
    write: str
    more_is_better: bool = False


FACTS = (
    Fact("median_us", "Time", "fastest time, us", "min", ",.1f"),
    Fact("registers", "Registers", "median registers per thread", "median", ".0f"),
    Fact("stack_bytes", "Spills", "median stack, bytes", "median", ",.0f"),
    Fact("shared_bytes", "Shared memory", "median shared memory, bytes", "median", ",.0f"),
    Fact("compile_s", "Compile time", "median compile time, s", "median", ".1f"),
    Fact("tensor_core_share", "Tensor Core", "MMAs on Tensor Cores, %", "mean", ".0f", more_is_better=True),
    Fact("tma_share", "TMA", "loads through TMA, %", "mean", ".0f", more_is_better=True),
)


def with_shares(trials: pd.DataFrame) -> pd.DataFrame:
    """The counts of Tensor Core MMAs and TMA loads as percentages of all of them."""
    shares = {"tensor_core_share": ("tensor_core_mmas", "mmas"), "tma_share": ("tma_loads", "loads")}
    return trials.assign(
        **{
            name: 100 * trials[part].astype(float) / trials[whole].astype(float).where(lambda all_: all_ > 0)
            for name, (part, whole) in shares.items()
        }
    )


def cells(trials: pd.DataFrame, x: str, y: str, fact: Fact) -> go.Figure:
    """A fact over two parameters; each cell sums up the configs that differ in the others. Cells without it say why."""
    trials = with_shares(trials)
    across, down = f"param.{x}", f"param.{y}"
    columns, rows = sorted(trials[across].unique()), sorted(trials[down].unique())
    values: list[list[float | None]] = []
    texts: list[list[str]] = []
    hovers: list[list[str]] = []
    for row in rows:
        values.append([])
        texts.append([])
        hovers.append([])
        for column in columns:
            cell = trials[(trials[across] == column) & (trials[down] == row)]
            known = cell[fact.key].dropna().astype(float)
            value = float(known.agg(fact.summarize)) if len(known) else None
            values[-1].append(value)
            texts[-1].append(format(value, fact.write) if value is not None else _why_empty(cell))
            told = "".join(f"<br>{outcome}: {count}" for outcome, count in cell["outcome"].value_counts().items())
            hovers[-1].append(f"{x}={column} {y}={row}<br>{plural(len(cell), 'config')}{told}")
    figure = go.Figure(
        go.Heatmap(
            x=[str(column) for column in columns],
            y=[str(row) for row in rows],
            z=values,
            text=texts,
            texttemplate="%{text}",
            customdata=hovers,
            hovertemplate="%{customdata}<br>" + fact.cell + ": %{text}<extra></extra>",
            colorscale=[(1 - at, colour) for at, colour in reversed(GOOD_TO_BAD)]
            if fact.more_is_better
            else GOOD_TO_BAD,
            colorbar={"title": {"text": fact.cell, "side": "right"}, "thickness": 12, "outlinewidth": 0},
            xgap=2,
            ygap=2,
        )
    )
    found = [value for row in values for value in row if value is not None]
    if fact.more_is_better:
        figure.data[0].update(zmin=0, zmax=100)
    elif found and min(found) == max(found):  # one colour, and it is the good end
        figure.data[0].update(zmin=found[0], zmax=found[0] + 1)
    figure.update_layout(
        height=130 + 52 * len(rows),
        margin={"t": 10, "b": 10, "l": 10, "r": 10},
        xaxis={"title": x, "type": "category", "showgrid": False},
        yaxis={"title": y, "type": "category", "showgrid": False},
    )
    return figure


def _why_empty(cell: pd.DataFrame) -> str:
    """The commonest outcome of a cell's configs, e.g. "timeout"."""
    return str(cell["outcome"].value_counts().index[0]) if len(cell) else ""
