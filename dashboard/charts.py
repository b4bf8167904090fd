"""Figures from data frames. Pure: no query, no widget, no clock; the frames have the columns of the rows in db.queries.

Text and grid colours come from Streamlit's theme; only what carries meaning is coloured here (colours.py).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from dashboard import colours
from dashboard.metrics import Metric
from dashboard.wording import config_text, moment, plural, short, time_text

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
        colour = colours.of(implementation, role)
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
            line={"width": 1.5, "dash": "dash", "color": colours.LINE},
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
        figure.add_hline(y=1.0, line={"width": 1, "color": colours.BASELINES["deepgemm"]}, opacity=0.6)
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
    for verdict, colour in colours.VERDICTS.items():
        judged = kernel[kernel["verdict"] == verdict]
        if len(judged):
            figure.add_scatter(
                x=[short(sha) for sha in judged["sha"]],
                y=judged["value"],
                name=verdict,
                mode="markers",
                marker={"symbol": colours.VERDICT_MARKS[verdict], "size": 20, "color": colour, "line": {"width": 3}},
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
