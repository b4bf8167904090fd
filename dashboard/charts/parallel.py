"""Every config of a sweep as a line through its parameters, its time and its static facts: parallel coordinates. Pure.

Only where the lines go: parallel.js draws them. Plotly's own are drawn by WebGL, which a machine without a GPU, a
remote desktop or a locked-down browser does in a second or more, and cannot say what a line is.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from tilewatch.dashboard.charts import colours
from tilewatch.dashboard.charts.sweep import FACTS, Fact, axis_title, parameters
from tilewatch.dashboard.text import config_text, time_text

HERE = Path(__file__).parent
STYLE = (HERE / "parallel.css").read_text(encoding="utf-8")
BEHAVIOUR = (HERE / "picture.js").read_text(encoding="utf-8") + (HERE / "parallel.js").read_text(encoding="utf-8")
TICKS = 5
"""About so many on the axis of a static fact; a parameter has one for each of its values."""


def drawing(trials: pd.DataFrame) -> dict[str, Any]:
    """`axes` with their label and ticks, and `lines` with a place on each, from 0 to 1; the best are drawn last.

    Coloured by time where the sweep was measured, else by registers. Half of a space may be many times slower than the
    rest: the colours are for the half people look at.
    """
    by = "median_us" if trials["median_us"].notna().any() else "registers"
    known = trials.dropna(subset=by).sort_values(by, ascending=False, kind="stable")
    names = [name for name in parameters(trials) if trials[f"param.{name}"].nunique() > 1]
    facts = [fact for fact in FACTS if fact.key != "compile_s" and known[fact.key].nunique() > 1]
    axes = [_steps(known, name) for name in names] + [_fact(known, fact) for fact in facts]
    best, middle = known[by].min(), known[by].median()
    span = middle - best if middle > best else 1.0
    told = [_told(row, parameters(trials)) for row in known.to_dict("records")]
    return {
        "axes": [{"label": label, "ticks": ticks} for label, ticks, _ in axes],
        "lines": [
            {
                "at": [round(places[i], 4) for _, _, places in axes],
                "colour": colours.colour_at(colours.GOOD_TO_BAD, (value - best) / span),
                "told": told[i],
            }
            for i, value in enumerate(known[by])
        ],
    }


Axis = tuple[str, list[tuple[float, str]], list[float]]
"""Its label, its ticks, and the place of each line on it."""


def _steps(known: pd.DataFrame, name: str) -> Axis:
    """A parameter's values evenly spaced: 64, 128, 256 would crowd at one end."""
    values = sorted(known[f"param.{name}"].dropna().unique())
    places = {value: place / max(len(values) - 1, 1) for place, value in enumerate(values)}
    ticks = [(place, str(value)) for value, place in places.items()]
    return name, ticks, [places.get(value, 0.0) for value in known[f"param.{name}"]]


def _fact(known: pd.DataFrame, fact: Fact) -> Axis:
    values = known[fact.key].astype(float).fillna(0)
    low, high = float(values.min()), float(values.max())
    ticks = [((tick - low) / (high - low), format(tick, ",.10g")) for tick in _round_between(low, high)]
    return axis_title(fact), ticks, [(value - low) / (high - low) for value in values]


def _round_between(low: float, high: float) -> Sequence[float]:
    """Some round numbers from `low` to `high`."""
    rough = (high - low) / TICKS
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * each for each in (1, 2, 5, 10) if power * each >= rough * (1 - 1e-9))
    return [step * count for count in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _told(row: dict[Any, Any], names: Sequence[str]) -> str:
    """A line in words: its config, and what is known of it."""
    config = config_text({name: row[f"param.{name}"] for name in names if not pd.isna(row[f"param.{name}"])})
    time = [] if pd.isna(row["median_us"]) else [time_text(row["median_us"])]
    facts = [
        f"{fact.label} {format(row[fact.key], fact.write)}"
        for fact in FACTS
        if fact.key not in ("median_us", "compile_s") and not pd.isna(row[fact.key])
    ]
    return "\n".join([config, ", ".join(time + facts)])
