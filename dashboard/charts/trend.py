"""Draws trends, from frames with the columns of PointRow. Pure: no query, no widget, no clock.

Text and grid colours come from Streamlit's theme; colours with a meaning are in colours.py.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go

from tilewatch.dashboard.charts import colours, hover
from tilewatch.dashboard.charts.marks import Mark
from tilewatch.dashboard.frames.metrics import Metric, axis_title
from tilewatch.dashboard.frames.rivals import name_lines
from tilewatch.repository_names import describe_branch
from tilewatch.text import short_sha

MOST_LABELLED_MARKS = 6
"""Marks beyond this many have a line and no words, which would overlap."""
PLAIN = 60
"""A line of more points has a band for its intervals, and a baseline's has no marks: a year of both is unreadable."""
BAND_OPACITY = 0.25
AXIS_TITLE_PX = 12

Along = Literal["commits", "dates"]
LOOKS = {
    # origin: the mark, and the line between two of them
    "measured": ("circle", "solid"),
    "recorded": ("diamond-open", "dot"),
    "simulated": ("square-open", "dashdot"),
}
QUARANTINED = "x-open"
BRANCH = "hexagon2-open"
_NONE: Mapping[str, pd.DataFrame] = MappingProxyType({})


def trend(
    points: pd.DataFrame,
    metric: Metric,
    *,
    along: Along = "commits",
    marks: Sequence[Mark] = (),
    raw: pd.DataFrame | None = None,
    branches: Mapping[str, pd.DataFrame] = _NONE,
) -> go.Figure:
    """One series: the kernel and its baselines, each with its 95 % interval, and the marks.

    `raw` has a row per sample: sha, committed_at, implementation, role, value. `branches` are the kernel's points off
    the main line, by the name of the branch.
    """
    points = points.join(metric.values(points)).dropna(subset="value")
    points = points.assign(line=name_lines(points))
    beside = {name: line.join(metric.values(line)).dropna(subset="value") for name, line in branches.items()}
    figure = go.Figure()
    for (shown_as, role, origin, machine), line in points.groupby(["line", "role", "origin", "machine"], sort=False):
        # A recording's machine is "h200-node, NVIDIA H200": the whole of it is wider than a phone.
        name = shown_as if origin == "measured" else f"{shown_as}, {origin} on {machine.partition(',')[0]}"
        colour = colours.colour_of(
            line["implementation"].iloc[-1], role
        )  # of the installed version, if it is the newest
        _line(figure, line.assign(implementation=shown_as), metric, along, name, colour, main=role == "kernel")
    _verdicts(figure, points, along)
    if raw is not None and len(raw):
        _raw(figure, raw, along)
    chosen = _choose_colours(beside, colours.OTHERS)
    for name, line in beside.items():
        _branch(figure, line, metric, along, name, chosen[name])
    shown = [points, *(line for line in beside.values() if len(line))]
    in_order = pd.concat(shown).sort_values(["position", "committed_at"], kind="stable") if len(shown) > 1 else points
    _finish(figure, in_order, metric, along, marks)
    return figure


def trends(series: Mapping[str, pd.DataFrame], metric: Metric, *, along: Along = "commits") -> go.Figure:
    """A few series by name over the same commits: the kernels alone, each with its interval."""
    figure = go.Figure()
    shown = []
    own = (colours.KERNEL, *colours.OTHERS)
    chosen = _choose_colours(series, own if len(series) <= len(own) else (*own, *colours.BASELINES.values()))
    for name, points in series.items():
        line = points[points["role"] == "kernel"]
        line = line.join(metric.values(line)).dropna(subset="value")
        for origin, part in line.groupby("origin", sort=False):
            label = name if origin == "measured" else f"{name}, {origin}"
            _line(figure, part, metric, along, label, chosen[name], main=True)
        shown.append(line)
    everything = pd.concat(shown).sort_values(["position", "committed_at"]) if shown else pd.DataFrame()
    _finish(figure, everything, metric, along, ())
    return figure


def _line(
    figure: go.Figure, line: pd.DataFrame, metric: Metric, along: Along, name: str, colour: str, *, main: bool
) -> None:
    mark, dash = LOOKS[line["origin"].iloc[0]]
    opened = mark.endswith("-open")
    dense = len(line) > PLAIN
    size = (5 if main else 3) if dense else (10 if main else 7)
    ill = line["quarantined"].to_numpy()
    x = _x(line, along)
    if dense:
        _band(figure, line, x, name, colour)
    template, customdata = hover.points_hover(line, metric)
    figure.add_scatter(
        x=x,
        y=line["value"],
        error_y=None if dense else _bars(line),
        name=name,
        legendgroup=name,
        mode="lines+markers" if main or not dense or ill.any() else "lines",
        line={"color": colour, "width": 2.5 if main else 1.5, "dash": dash},
        marker={
            "color": colour,
            "size": size + (2 if opened else 0),
            "symbol": np.where(ill, QUARANTINED, mark) if ill.any() else mark,
            "line": {"width": 2 if opened else 0, "color": colour},
        },
        customdata=customdata,
        hovertemplate=template,
    )


def _branch(figure: go.Figure, line: pd.DataFrame, metric: Metric, along: Along, name: str, colour: str) -> None:
    """The points of a branch, which no line connects with the main line: its commits are not of that history."""
    template, customdata = hover.points_hover(line, metric)
    figure.add_scatter(
        x=_x(line, along),
        y=line["value"],
        error_y=_bars(line),
        name=describe_branch(name),
        mode="lines+markers",
        line={"color": colour, "width": 1, "dash": "dot"},
        marker={"color": colour, "size": 11, "symbol": BRANCH, "line": {"width": 2, "color": colour}},
        customdata=customdata,
        hovertemplate=template,
    )


def _bars(line: pd.DataFrame) -> dict[str, Any]:
    return {
        "array": line["high"] - line["value"],
        "arrayminus": line["value"] - line["low"],
        "thickness": 1.2,
        "width": 3,
    }


def _band(figure: go.Figure, line: pd.DataFrame, x: npt.NDArray[np.object_], name: str, colour: str) -> None:
    """The intervals of many points as one shape around the line: a bar of its own for each takes twice as long."""
    exists = line["low"].notna().to_numpy()
    if not exists.any():
        return
    figure.add_scatter(
        x=np.concatenate([x[exists], x[exists][::-1]]),
        y=np.concatenate([line["high"].to_numpy()[exists], line["low"].to_numpy()[exists][::-1]]),
        fill="toself",
        fillcolor=colour,
        opacity=BAND_OPACITY,
        mode="lines",
        line={"width": 0},
        name=f"{name}, 95 %",
        legendgroup=name,
        showlegend=False,
        hoverinfo="skip",
    )


def _raw(figure: go.Figure, raw: pd.DataFrame, along: Along) -> None:
    for (implementation, role), samples in raw.groupby(["implementation", "role"], sort=False):
        figure.add_scatter(
            x=_x(samples, along),
            y=samples["value"],
            name=f"{implementation}, samples",
            mode="markers",
            marker={
                "color": colours.colour_of(implementation, role),
                "size": 4,
                "opacity": 0.35,
                "symbol": "line-ew-open",
            },
            hoverinfo="skip",  # or a click near a median would find a sample, which has no evidence of its own
            showlegend=False,
        )


def _verdicts(figure: go.Figure, points: pd.DataFrame, along: Along) -> None:
    kernel = points[points["role"] == "kernel"]
    for verdict, colour in colours.VERDICTS.items():
        judged = kernel[kernel["verdict"] == verdict]
        if len(judged):
            figure.add_scatter(
                x=_x(judged, along),
                y=judged["value"],
                name=verdict,
                mode="markers",
                marker={
                    "symbol": colours.VERDICT_MARKS[verdict],
                    "size": 18,
                    "color": colour,
                    "line": {"width": 3, "color": colour},
                },
                hoverinfo="skip",
            )


def _finish(figure: go.Figure, points: pd.DataFrame, metric: Metric, along: Along, marks: Sequence[Mark]) -> None:
    """Axes, lines and marks."""
    commits = points.drop_duplicates("sha").reset_index(drop=True) if len(points) else points
    for i, mark in enumerate(marks):
        x = _between(commits, mark, along)
        if x is not None:
            _draw(figure, x, mark, labelled=i < MOST_LABELLED_MARKS, row=i)
    if metric.key == "ratio":
        figure.add_hline(y=1.0, line={"width": 1, "color": _colour_of_rival(points)}, opacity=0.6)
    names = [short_sha(sha) for sha in commits["sha"]] if len(points) else []
    commit_axis = {
        "title": "commit, in commit order",
        "type": "category",
        "categoryorder": "array",
        "categoryarray": names,
        "range": [-0.5, max(len(names), 1) - 0.5],
        "nticks": 20,
    }
    figure.update_layout(
        height=460,
        margin={"t": 20 + 16 * min(len(marks), 3), "b": 10, "l": 10, "r": 10},
        hovermode="closest",
        hoverlabel={"align": "left"},
        # At the foot of the figure, which keeps room for it: in a narrow window it lay over the title of the axis.
        legend={"orientation": "h", "yref": "container", "yanchor": "bottom", "y": 0, "x": 0},
        showlegend=True,
        yaxis={
            "title": {
                "text": axis_title(metric, points),
                "font": {"size": AXIS_TITLE_PX},
            },  # the longest fits the height
            "range": _around(points, with_one=metric.key == "ratio"),
            "zeroline": False,
        },
        xaxis=commit_axis if along == "commits" else {"title": "date of the commit", "type": "date"},
    )


def _draw(figure: go.Figure, x: Any, mark: Mark, *, labelled: bool, row: int) -> None:
    """A line over the whole height; the words of neighbours are in three rows above it."""
    line = {"width": 1.5, "dash": mark.dash, "color": mark.colour}
    figure.add_shape(type="line", x0=x, x1=x, y0=0, y1=1, yref="paper", line=line)
    figure.add_annotation(
        x=x,
        y=1.0,
        yref="paper",
        yshift=14 * (row % 3),
        yanchor="bottom",
        xanchor="center",
        showarrow=False,
        text=escape(mark.words) if labelled else "",
        hovertext=escape(mark.words),
        font={"size": 11} if mark.colour == colours.LINE else {"size": 11, "color": mark.colour},
    )


def _between(commits: pd.DataFrame, mark: Mark, along: Along) -> Any:
    """The x halfway between the two commits of a mark, or where this series measured neither between the last before it
    and the first after it; None when one of them is not shown."""
    positions = commits["position"] if len(commits) else pd.Series(dtype=int)
    earlier, later = positions.index[positions <= mark.before], positions.index[positions >= mark.after]
    if earlier.empty or later.empty:
        return None
    before, after = earlier[-1], later[0]
    if along == "commits":
        return (before + after) / 2
    first, last = commits.iloc[before]["committed_at"], commits.iloc[after]["committed_at"]
    return first + (last - first) / 2


def _x(points: pd.DataFrame, along: Along) -> npt.NDArray[np.object_]:
    """The x of each point as an array, which Plotly takes whole; it checks each value of a list."""
    values = [short_sha(sha) for sha in points["sha"]] if along == "commits" else points["committed_at"].tolist()
    return np.array(values, dtype=object)


def _colour_of_rival(points: pd.DataFrame) -> str:
    rivals = set(points["baseline"].dropna()) if len(points) else set()
    return colours.colour_of(rivals.pop(), "baseline") if len(rivals) == 1 else colours.LINE


def _choose_colours(names: Iterable[str], palette: Sequence[str]) -> dict[str, str]:
    """A name's own colour where that is free, else the next one that is; with more names than colours some share."""
    chosen: dict[str, str] = {}
    for name in sorted(names):
        start = zlib.crc32(name.encode()) % len(palette)
        in_turn = (*palette[start:], *palette[:start])
        chosen[name] = next((colour for colour in in_turn if colour not in chosen.values()), in_turn[0])
    return chosen


def _around(points: pd.DataFrame, *, with_one: bool) -> list[float] | None:
    """A value range with room around the points: Plotly gives a single point a range of two whole units."""
    if points.empty:
        return None
    low, high = points["low"].fillna(points["value"]).min(), points["high"].fillna(points["value"]).max()
    if with_one:
        low, high = min(low, 1.0), max(high, 1.0)
    room = max(0.12 * (high - low), 0.02 * abs(high), 0.001)
    return [float(low - room), float(high + room)]
