"""Computes a parallel-coordinates plot of a sweep, with one line per config.

parallel.js draws the plot in 0.55 s in a browser without a GPU. Plotly took 2.1 s (2026-11; the limit is 1.0 s).
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from tilewatch.configs import config_text
from tilewatch.dashboard.charts import colours
from tilewatch.dashboard.charts.axes import round_between
from tilewatch.dashboard.charts.sweep import FACTS, Fact, axis_title, parameters
from tilewatch.dashboard.text import time_text

HERE = Path(__file__).parent
STYLE = (HERE / "parallel.css").read_text(encoding="utf-8")
BEHAVIOUR = (HERE / "picture.js").read_text(encoding="utf-8") + (HERE / "parallel.js").read_text(encoding="utf-8")


def drawing(trials: pd.DataFrame) -> dict[str, Any]:
    """Returns the data for parallel.js: the axes, and a line for each config, the best config last."""
    by = "median_us" if trials["median_us"].notna().any() else "registers"
    drawn = trials.dropna(subset=by).sort_values(by, ascending=False, kind="stable").to_dict("records")
    names = parameters(trials)
    several = [name for name in names if trials[f"param.{name}"].nunique() > 1]
    axes = [_steps([row[f"param.{name}"] for row in drawn], name) for name in several]
    for fact in FACTS:
        if fact.key != "compile_s" and len({row[fact.key] for row in drawn if not pd.isna(row[fact.key])}) > 1:
            axes.append(_fact([row[fact.key] for row in drawn], fact))
    values = [row[by] for row in drawn]
    # The colour scale ends at the median. If it ended at the slowest config, the fast half would have one colour.
    best, middle = min(values, default=0.0), median(values or [0.0])
    span = middle - best if middle > best else 1.0
    return {
        "axes": [{"label": label, "ticks": ticks} for label, ticks, _ in axes],
        "lines": [
            {
                "at": [round(positions[i], 4) for _, _, positions in axes],
                "colour": colours.colour_at(colours.GOOD_TO_BAD, (row[by] - best) / span),
                "hint": _hint(row, names),
            }
            for i, row in enumerate(drawn)
        ],
    }


Axis = tuple[str, list[tuple[float, str]], list[float]]
"""An axis: its label, its ticks as position and text, and the position of each line on the axis."""


def _steps(column: Sequence[Any], name: str) -> Axis:
    """Returns an axis that places a parameter's values at equal distances."""
    values = sorted({value for value in column if not pd.isna(value)})
    positions = {value: i / max(len(values) - 1, 1) for i, value in enumerate(values)}
    ticks = [(position, str(value)) for value, position in positions.items()]
    return name, ticks, [positions.get(value, 0.0) for value in column]


def _fact(column: Sequence[float], fact: Fact) -> Axis:
    values = [0.0 if pd.isna(value) else float(value) for value in column]
    low, high = min(values), max(values)
    ticks = [((tick - low) / (high - low), format(tick, ",.10g")) for tick in round_between(low, high)]
    return axis_title(fact), ticks, [(value - low) / (high - low) for value in values]


def _hint(row: dict[Any, Any], names: Sequence[str]) -> str:
    """Returns a line's hover text: its config, its time and static facts such as registers."""
    config = config_text({name: row[f"param.{name}"] for name in names if not pd.isna(row[f"param.{name}"])})
    time = [] if pd.isna(row["median_us"]) else [time_text(row["median_us"])]
    facts = [
        f"{fact.label} {format(row[fact.key], fact.write)}"
        for fact in FACTS
        if fact.key not in ("median_us", "compile_s") and not pd.isna(row[fact.key])
    ]
    return "\n".join([config, ", ".join(time + facts)])
