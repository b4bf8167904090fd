"""Draws trends from frames with the columns of PointRow."""

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pandas as pd

from tilewatch.dashboard.charts import colours, hover, trend_lines
from tilewatch.dashboard.charts.marks import Mark
from tilewatch.dashboard.charts.trend_layout import lay_out
from tilewatch.dashboard.charts.trend_lines import Along, Trace
from tilewatch.dashboard.frames.baseline_texts import name_lines
from tilewatch.dashboard.frames.metrics import Metric
from tilewatch.text import plain_html

NUMBER = re.compile(r"-?\d{1,12}(\.\d+)?(e-?\d\d?)?")
DATE = re.compile(r"\d{4}-\d\d-\d\d[\d:. ]*")
_NONE: Mapping[str, pd.DataFrame] = MappingProxyType({})


@dataclass(frozen=True)
class Drawing:
    """A figure with its description and caption. If there is no figure, `words` give the reason."""

    figure: dict[str, Any] | None
    words: str
    caption: str


def trend(
    points: pd.DataFrame,
    metric: Metric,
    *,
    along: Along = "commits",
    marks: Sequence[Mark] = (),
    branches: Mapping[str, pd.DataFrame] = _NONE,
) -> dict[str, Any]:
    """Returns a figure of one series with its baselines and marks, as Plotly's JSON."""
    points = points.join(metric.values(points)).dropna(subset="value")
    points = points.assign(line=name_lines(points))
    beside = {name: line.join(metric.values(line)).dropna(subset="value") for name, line in branches.items()}
    traces: list[Trace] = []
    machines = points.groupby(["line", "origin"])["machine"].nunique()
    for (shown_as, role, origin, machine), line in points.groupby(["line", "role", "origin", "machine"], sort=False):
        # A recording's machine is "h200-node, NVIDIA H200", which is wider than a phone. Lines of several recordings
        # look alike, so they share one row of the legend: separate rows took the plot's space on a phone.
        several = machines[shown_as, origin]
        place = machine.partition(",")[0] if several == 1 else f"{several} machines"
        name = plain_html(shown_as if origin == "measured" else f"{shown_as}, {origin} on {place}")
        # The version of the newest point chooses the colour of the line.
        colour = colours.colour_of(line["implementation"].iloc[-1], role)
        line = line.assign(implementation=shown_as)
        named = any(trace["name"] == name for trace in traces)
        drawn = trend_lines.draw_line(line, metric, along, name, colour, main=role == "kernel")
        traces += [{**trace, "showlegend": False} for trace in drawn] if named else drawn
    traces += trend_lines.draw_verdicts(points, along)
    chosen = _choose_colours(beside, colours.OTHERS)
    traces += [
        trend_lines.draw_branch(line, metric, along, plain_html(name), chosen[name]) for name, line in beside.items()
    ]
    shown = [points, *(line for line in beside.values() if len(line))]
    in_order = pd.concat(shown).sort_values("position", kind="stable") if len(shown) > 1 else points
    return {"data": traces, "layout": lay_out(in_order, metric, along, marks)}


def trends(series: Mapping[str, pd.DataFrame], metric: Metric, *, along: Along = "commits") -> dict[str, Any]:
    """Returns a figure of several series over the same commits, as Plotly's JSON."""
    traces: list[Trace] = []
    shown = []
    own = (colours.KERNEL, *colours.OTHERS)
    chosen = _choose_colours(series, own if len(series) <= len(own) else (*own, *colours.BASELINES.values()))
    for name, points in series.items():
        line = points[points["role"] == "kernel"]
        line = line.join(metric.values(line)).dropna(subset="value")
        for origin, part in line.groupby("origin", sort=False):
            label = plain_html(name if origin == "measured" else f"{name}, {origin}")
            traces += trend_lines.draw_line(part, metric, along, label, chosen[name], main=True)
        shown.append(line)
    everything = pd.concat(shown).sort_values("position", kind="stable") if shown else pd.DataFrame()
    return {"data": traces, "layout": lay_out(everything, metric, along, ())}


def ring(figure: Mapping[str, Any], run_id: int | None) -> dict[str, Any]:
    """Returns the figure with a ring around a run's point; the same figure if no line has this run."""
    for trace in (each for each in figure["data"] if each.get("meta") == trend_lines.KERNEL):
        of_runs = [row[hover.RUN] for row in trace.get("customdata", ())]
        if run_id in of_runs:
            place = of_runs.index(run_id)
            return {**figure, "data": [*figure["data"], trend_lines.draw_ring(trace["x"][place], trace["y"][place])]}
    return dict(figure)


def zoom(figure: Mapping[str, Any], name: str, asked: str) -> dict[str, Any]:
    """Returns the figure, zoomed to the ranges in `asked` (NAME,X0,X1,Y0,Y1) if NAME equals `name`."""
    about, *ends = asked.split(",")
    layout = {**figure["layout"], "meta": name}  # serving/zoom.js reads the name
    if about == name and len(ends) == 4 and all(NUMBER.fullmatch(end) or DATE.fullmatch(end) for end in ends):
        read = [float(end) if NUMBER.fullmatch(end) else end for end in ends]
        layout |= {"xaxis": {**layout["xaxis"], "range": read[:2]}, "yaxis": {**layout["yaxis"], "range": read[2:]}}
    return {**figure, "layout": layout}


def _choose_colours(names: Iterable[str], palette: Sequence[str]) -> dict[str, str]:
    """Maps each name to a colour. Names share a colour only if all colours are taken."""
    chosen: dict[str, str] = {}
    for name in sorted(names):
        start = zlib.crc32(name.encode()) % len(palette)
        in_turn = (*palette[start:], *palette[:start])
        chosen[name] = next((colour for colour in in_turn if colour not in chosen.values()), in_turn[0])
    return chosen
