"""Draws and lists the changes of kernel times by problem shape and GPU model."""

import math
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from statistics import median
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from tilewatch.dashboard.charts import colours
from tilewatch.dashboard.charts.hover import to_html
from tilewatch.dashboard.frames import differences
from tilewatch.text import change_text

SHAPE = re.compile(r"(\d+)x(\d+)x(\d+)(?:-\w+)?")
"""The pattern of a problem's name that gives M, N and K, optionally followed by a data type, e.g. 128x256x512-bf16."""
CHANGE_SPAN = 0.1
LOG_AXIS = {"type": "log", "zeroline": False, "tickformat": "d", "autotickangles": [0, 90]}
"""A log axis with whole numbers, where Plotly's default writes 32576 as 32.576k. Labels that do not fit are rotated."""
NEAREST = 0.06
"""The least distance of two ticks, as a share of the axis: 14 pixels of 240, a rotated label on a phone."""
ABOVE, BELOW = "top center", "bottom center"
ROOMY = 2.0
"""The distance of two problems in M, as a base-2 logarithm, from which there is room for both their labels."""
SMALLEST, LARGEST = 16, 44
"""The diameters in pixels of the points with the smallest and with the largest K."""

Row = Mapping[Any, Any]
BY = ("kernel", "problem")


def shape_map(pairs: pd.DataFrame, label: str = differences.CHANGE_OF_TIME) -> go.Figure:
    """Draws a point per problem at its N and M, coloured by the median change over all GPU models."""
    rows = sorted(_records(pairs, "problem", "gpu_name"), key=itemgetter("problem"))
    problems = [_problem(name, list(group)) for name, group in groupby(rows, itemgetter("problem"))]
    m, n, k, claimed, labels, hints = zip(*problems, strict=True)
    roots = [each**0.5 for each in k]
    widest = max(max(roots) - min(roots), 1)
    marks = {
        "type": "scatter",
        "x": n,
        "y": m,
        "mode": "markers+text",
        "text": labels,
        "textposition": _sides(list(zip(m, n, strict=True))),
        "cliponaxis": False,
        "customdata": hints,
        "hovertemplate": "%{customdata}<extra></extra>",
        "marker": {
            "size": [SMALLEST + (LARGEST - SMALLEST) * (root - min(roots)) / widest for root in roots],
            "color": claimed,
            "colorscale": colours.SLOWER_TO_FASTER,
            "reversescale": True,  # minus is faster
            "cmin": -CHANGE_SPAN,
            "cmax": CHANGE_SPAN,
            "cmid": 0,
            "line": {"width": 1, "color": colours.LINE},
            "colorbar": {
                "title": {"text": label, "side": "right"},
                "tickvals": [-CHANGE_SPAN, -CHANGE_SPAN / 2, 0, CHANGE_SPAN / 2, CHANGE_SPAN],
                "ticktext": ["≤ -10 %", "-5 %", "0 %", "+5 %", "≥ +10 %"],
                "thickness": 12,
                "outlinewidth": 0,
            },
        },
    }
    layout = {
        "height": 420,
        "margin": {"t": 10, "b": 10, "l": 10, "r": 10},
        "hoverlabel": {"align": "left"},
        "xaxis": {**LOG_AXIS, "title": {"text": "N (log)"}, "tickvals": _ticks(n)},
        "yaxis": {**LOG_AXIS, "title": {"text": "M (log)"}, "tickvals": _ticks(m)},
    }
    return go.Figure([marks], layout)


def _records(pairs: pd.DataFrame, *columns: str) -> list[Row]:
    """Returns a dict for each row with a known change."""
    rows: list[Row] = pairs[[*columns, "change", "finding"]].dropna(subset="change").to_dict("records")
    return rows


def _sides(places: Sequence[tuple[int, int]]) -> list[str]:
    """Returns ABOVE or BELOW for each point: the side where its label has more room."""
    sides: dict[tuple[int, int], str] = {}
    for m, row in groupby(sorted(places), itemgetter(0)):
        last = ABOVE
        for _, n in row:
            others = [math.log2(other / m) for other, at in places if at == n and other != m]
            above = min([ROOMY, *(gap for gap in others if gap > 0)])
            below = min([ROOMY, *(-gap for gap in others if gap < 0)])
            # Alternate labels at the same M, which would overlap on a phone.
            last = (BELOW if last == ABOVE else ABOVE) if above == below else ABOVE if above > below else BELOW
            sides[m, n] = last
    return [sides[place] for place in places]


def _ticks(sizes: Sequence[int]) -> list[int]:
    """Returns the sizes for ticks, sorted, without sizes that are too close to another tick."""
    span = math.log(max(sizes) / min(sizes))
    kept: list[int] = []
    for size in sorted(set(sizes)):
        if not kept or math.log(size / kept[-1]) >= NEAREST * span:
            kept.append(size)
    return kept


def keep_shaped(pairs: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows whose problem name gives M, N and K."""
    return pairs[pairs["problem"].map(_shape).notna()]


def _shape(problem: str) -> tuple[int, int, int] | None:
    match = SHAPE.fullmatch(problem)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def _problem(name: str, group: Sequence[Row]) -> tuple[int, int, int, float, str, str]:
    """Returns a problem's M, N and K, the relative change that sets its colour, its label and its hover text."""
    shape = _shape(name)
    assert shape, "else it has no place"
    lines = [
        f"{row['gpu_name']}: {change_text(row['change'])}"
        + ("" if row["finding"] in differences.CLAIMS else f" ({row['finding']})")
        for row in sorted(group, key=itemgetter("change"))
    ]
    claimed = median(row["change"] if row["finding"] in differences.CLAIMS else 0.0 for row in group)
    label = change_text(median(row["change"] for row in group))
    return *shape, claimed, label, to_html([name, *lines])


def list_moved(pairs: pd.DataFrame) -> pd.DataFrame:
    """Returns a table of the problems that changed, with the likely cause and the change on each GPU model."""
    compared = sorted(_records(pairs, *BY, "gpu_model", "arch"), key=itemgetter(*BY))
    models = sorted({row["gpu_model"] for row in compared})
    rows = []
    for (kernel, problem), each in groupby(compared, itemgetter(*BY)):
        group = list(each)
        moved = [row for row in group if row["finding"] in differences.DIFFERENT]
        for sign, direction in ((1, "slower"), (-1, "faster")):
            so_moved = [row for row in moved if sign * row["change"] > 0]
            if so_moved:
                cells = {row["gpu_model"]: differences.write_cell(row) for row in group}
                rows.append(
                    {
                        "kernel": kernel,
                        "problem": problem,
                        "moved": direction,
                        "where": explain_pattern(so_moved, group),
                        "worst": max(abs(row["change"]) for row in so_moved),
                        **{model: cells.get(model, "") for model in models},
                    }
                )
    rows.sort(key=lambda row: (row["moved"] == "slower", row["worst"]), reverse=True)
    return pd.DataFrame(rows, columns=["kernel", "problem", "moved", "where", *models])


def explain_pattern(moved: Sequence[Row], everywhere: Sequence[Row]) -> str:
    """Returns the likely cause of a change, e.g. "everywhere: the algorithm"."""
    archs, models = sorted({row["arch"] for row in moved}), sorted({row["gpu_model"] for row in moved})
    if len(everywhere) == 1:
        return "measured on one GPU model only"
    if len(models) == len(everywhere):
        return "everywhere: the algorithm"
    if len(archs) == 1:
        siblings = {row["gpu_model"] for row in everywhere if row["arch"] == archs[0]}
        if siblings == set(models):
            return f"{archs[0]} alone: its code generation"
        return f"{' and '.join(models)} alone, not all of {archs[0]}: its node, its GPU or noise"
    return "several architectures"
