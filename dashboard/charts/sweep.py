"""Draws figures of one sweep from its trials. `prepare` makes the frame of trials: one row per config."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from statistics import fmean, median
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from tilewatch.configs import config_text
from tilewatch.dashboard.charts import colours
from tilewatch.grouping import group_by
from tilewatch.text import count_text, plain_html

BAR_PX, NAMES_PX, NAMES_OF_A_ROW = 46, 22, 3
"""The heights in pixels of the outcome bar and of a row of names, and the number of names in a row on a phone."""


def outcomes(trials: pd.DataFrame) -> go.Figure:
    """Draws one bar, divided by outcome, with the numbers of trials."""
    counts = Counter(trials["outcome"])
    bars = [
        {
            "type": "bar",
            "x": [counts[outcome]],
            "y": [""],
            "orientation": "h",
            "name": f"{outcome} {counts[outcome]}",
            "marker": {"color": colour},
            "hovertemplate": f"{outcome}: {count_text(counts[outcome], 'config')}<extra></extra>",
        }
        for outcome, colour in colours.OUTCOMES.items()
        if counts[outcome]
    ]
    # Below the bar is space for the legend, also on a phone.
    height = BAR_PX + NAMES_PX * math.ceil(len(bars) / NAMES_OF_A_ROW)
    below = 1 - BAR_PX / height
    layout = {
        "barmode": "stack",
        "height": height,
        "margin": {"t": 0, "b": 0, "l": 0, "r": 0},
        "legend": {"orientation": "h", "traceorder": "normal", "maxheight": 1, "y": below, "yanchor": "top", "x": 0},
        "xaxis": {"visible": False, "range": [0, max(len(trials), 1)]},
        "yaxis": {"visible": False, "domain": [below + 8 / height, 1]},
        "showlegend": True,
    }
    return go.Figure(bars, layout)


@dataclass(frozen=True)
class Fact:
    """A number that a heatmap can show for each config, such as its time or registers."""

    key: str
    label: str
    cell: str
    summarize: Callable[[list[float]], float]
    write: str
    more_is_better: bool = False


FACTS = (
    Fact("median_us", "Time", "fastest time, us", min, ",.1f"),
    Fact("registers", "Registers", "median registers per thread", median, ".0f"),
    Fact("stack_bytes", "Spills", "median stack, bytes", median, ",.0f"),
    Fact("shared_bytes", "Shared memory", "median shared memory, bytes", median, ",.0f"),
    Fact("compile_s", "Compile time", "median compile time, s", median, ".1f"),
    Fact("tensor_core_share", "Tensor Core", "MMAs on Tensor Cores, %", fmean, ".0f", more_is_better=True),
    Fact("tma_share", "TMA", "loads through TMA, %", fmean, ".0f", more_is_better=True),
)

Row = Mapping[Any, Any]


def prepare(trials: pd.DataFrame, axes: Sequence[Sequence[Any]]) -> pd.DataFrame:
    """Returns the trials with sorted parameter columns, and with the Tensor Core and TMA shares in percent."""
    params = [f"param.{name}" for name, _ in axes if f"param.{name}" in trials.columns]
    trials = trials[[*(column for column in trials.columns if column not in params), *params]]
    shares = {"tensor_core_share": ("tensor_core_mmas", "mmas"), "tma_share": ("tma_loads", "loads")}
    return trials.assign(
        **{
            name: 100 * trials[part].astype(float) / trials[whole].astype(float).where(lambda all_: all_ > 0)
            for name, (part, whole) in shares.items()
        }
    )


def cells(trials: pd.DataFrame, x: str, y: str, fact: Fact) -> go.Figure:
    """Draws a heatmap of a fact over the parameters `x` and `y`. A cell combines all configs with these two values."""
    across, down = f"param.{x}", f"param.{y}"
    places = group_by(trials[[across, down, "outcome", fact.key]].to_dict("records"), itemgetter(across, down))
    columns, rows = (sorted({place[i] for place in places}) for i in (0, 1))
    across_axis, down_axis = plain_html(x), plain_html(y)
    across_names, down_names = list(map(plain_html, columns)), list(map(plain_html, rows))
    grid = [[_sum_up(places.get((column, row), ()), fact) for column in columns] for row in rows]
    present = [value for line in grid for value, *_ in line if value is not None]
    scale: tuple[tuple[float, str], ...] = colours.GOOD_TO_BAD
    low, high = min(present, default=0.0), max(present, default=1.0)
    if fact.more_is_better:
        scale = tuple((1 - at, colour) for at, colour in reversed(scale))
        low, high = 0.0, 100.0
    elif low == high:  # the one colour is the good end
        high = low + 1
    heat = {
        "type": "heatmap",
        "x": across_names,
        "y": down_names,
        "z": [[value for value, *_ in line] for line in grid],
        "text": [[text for _, text, _ in line] for line in grid],
        "customdata": [
            [
                f"{across_axis}={column} {down_axis}={row}<br>{counts}"
                for column, (*_, counts) in zip(across_names, line, strict=True)
            ]
            for row, line in zip(down_names, grid, strict=True)
        ],
        "hovertemplate": "%{customdata}<br>" + fact.cell + ": %{text}<extra></extra>",
        "colorscale": scale,
        "colorbar": {"title": {"text": fact.cell, "side": "right"}, "thickness": 12, "outlinewidth": 0},
        "xgap": 2,
        "ygap": 2,
        "zmin": low,
        "zmax": high,
    }
    layout = {
        "height": 130 + 52 * len(rows),
        "margin": {"t": 10, "b": 10, "l": 10, "r": 10},
        "xaxis": {"title": {"text": across_axis}, "type": "category", "showgrid": False},
        "yaxis": {"title": {"text": down_axis}, "type": "category", "showgrid": False},
    }
    inks = [
        colours.LINE if value is None else colours.ink_on(colours.colour_at(scale, (value - low) / (high - low)))
        for line in grid
        for value, *_ in line
    ]
    # Plotly's own text in a heatmap is grey on medium green, with a contrast of 2.
    words = {
        "type": "scatter",
        "mode": "text",
        "x": across_names * len(rows),
        "y": [name for name in down_names for _ in columns],
        "text": [text for line in grid for _, text, _ in line],
        "textfont": {"color": inks},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    return go.Figure([heat, words], layout)


def _sum_up(configs: Sequence[Row], fact: Fact) -> tuple[float | None, str, str]:
    """Returns a cell's value, text and hover text. The value is None if no config has a value."""
    values = [float(config[fact.key]) for config in configs if not pd.isna(config[fact.key])]
    outcomes_here = Counter(config["outcome"] for config in configs).most_common()
    counts = "".join(f"<br>{outcome}: {count}" for outcome, count in outcomes_here)
    value = fact.summarize(values) if values else None
    text = format(value, fact.write) if value is not None else outcomes_here[0][0] if outcomes_here else ""
    return value, text, f"{count_text(len(configs), 'config')}{counts}"


def parameters(trials: pd.DataFrame) -> list[str]:
    return [column.removeprefix("param.") for column in trials.columns if column.startswith("param.")]


def config_of_trial(trial: Row) -> str:
    """Returns the config of a trial as text, in the notation of the pages."""
    names = [str(column) for column in trial if str(column).startswith("param.")]
    return config_text({name.removeprefix("param."): trial[name] for name in names})


def axis_title(fact: Fact) -> str:
    units = {"median_us": "us", "stack_bytes": "bytes", "shared_bytes": "bytes"}
    unit = units.get(fact.key, "%" if fact.more_is_better else "")
    return f"{fact.label}, {unit}" if unit else fact.label
