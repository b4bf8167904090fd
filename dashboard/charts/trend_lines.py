"""Makes the lines and points of a trend as dicts instead of Plotly's trace objects.

Plotly copies trace objects twice. The second copy takes 60 of the 280 ms of a page with a year of data (2026-11).
"""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from tilewatch.dashboard.charts import colours, hover
from tilewatch.dashboard.frames.metrics import Metric
from tilewatch.db.repository_names import describe_branch
from tilewatch.text import short_sha

PLAIN = 60
"""The most points of a line that get error bars. A longer line gets a band; a longer line of a baseline, no markers."""
BAND_OPACITY = 0.25
MOST_MARKS = 120
"""The most points drawn on a long line. Zooming in draws more of them; hover texts and clicks work for every point."""

Along = Literal["commits", "dates"]
Trace = dict[str, Any]
LOOKS = {
    # by origin: the mark shape, and the style of the line between two marks
    "measured": ("circle", "solid"),
    "recorded": ("diamond-open", "dot"),
    "simulated": ("square-open", "dashdot"),
}
QUARANTINED = "x-open"
BRANCH = "hexagon2-open"
KERNEL = "kernel"
"""The `meta` of traces that consist of the kernel's own points."""


def draw_line(line: pd.DataFrame, metric: Metric, along: Along, name: str, colour: str, *, main: bool) -> list[Trace]:
    """Returns the traces of one implementation. More than PLAIN points get a band instead of error bars."""
    mark, dash = LOOKS[line["origin"].iloc[0]]
    opened = mark.endswith("-open")
    dense = len(line) > PLAIN
    size = (5 if main else 3) if dense else (10 if main else 7)
    ill = line["quarantined"].to_numpy()
    x = _x(line, along)
    template, customdata = hover.points_hover(line, metric)
    points = {
        "type": "scatter",
        "x": x,
        "y": _values(line["value"]),
        "error_y": None if dense else draw_intervals(line),
        "name": name,
        "meta": KERNEL if main else None,
        "legendgroup": name,
        "mode": "lines+markers" if main or not dense or ill.any() else "lines",
        "line": {"color": colour, "width": 2.5 if main else 1.5, "dash": dash},
        "marker": {
            "color": colour,
            "size": size + (2 if opened else 0),
            "symbol": np.where(ill, QUARANTINED, mark) if ill.any() else mark,
            "line": {"width": 2 if opened else 0},
            **({"maxdisplayed": MOST_MARKS} if dense and not ill.any() else {}),
        },
        "customdata": customdata,
        "hovertemplate": template,
    }
    return [*(_band(line, x, name, colour) if dense else ()), points]


def draw_branch(line: pd.DataFrame, metric: Metric, along: Along, name: str, colour: str) -> Trace:
    """Returns the trace of a branch's points. No line joins them to the points of the main line."""
    template, customdata = hover.points_hover(line, metric)
    return {
        "type": "scatter",
        "x": _x(line, along),
        "y": _values(line["value"]),
        "error_y": draw_intervals(line),
        "name": describe_branch(name),
        "meta": KERNEL,
        "mode": "lines+markers",
        "line": {"color": colour, "width": 1, "dash": "dot"},
        "marker": {"color": colour, "size": 11, "symbol": BRANCH, "line": {"width": 2, "color": colour}},
        "customdata": customdata,
        "hovertemplate": template,
    }


def draw_ring(x: Any, y: float) -> Trace:
    """Returns the trace of a ring around the selected run's point."""
    return {
        "type": "scatter",
        "x": [x],
        "y": [y],
        "name": "this run",
        "mode": "markers",
        "cliponaxis": False,
        "marker": {"size": 22, "symbol": "circle-open", "color": colours.LINE, "line": {"width": 2.5}},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def draw_verdicts(points: pd.DataFrame, along: Along) -> list[Trace]:
    """Returns traces that mark the kernel's regressions and improvements."""
    kernel = points[points["role"] == "kernel"]
    judged = {verdict: kernel[kernel["verdict"] == verdict] for verdict in colours.VERDICTS}
    return [
        {
            "type": "scatter",
            "x": _x(found, along),
            "y": _values(found["value"]),
            "name": verdict,
            "mode": "markers",
            "cliponaxis": False,
            "marker": {
                "symbol": colours.VERDICT_MARKS[verdict],
                "size": 18,
                "color": colours.VERDICTS[verdict],
                "line": {"width": 3, "color": colours.VERDICTS[verdict]},
            },
            "hoverinfo": "skip",
        }
        for verdict, found in judged.items()
        if len(found)
    ]


def draw_intervals(line: pd.DataFrame) -> dict[str, Any]:
    """Returns the intervals of a line as Plotly's error bars."""
    return {
        "array": _values(line["high"] - line["value"]),
        "arrayminus": _values(line["value"] - line["low"]),
        "thickness": 1.2,
        "width": 3,
    }


def _band(line: pd.DataFrame, x: npt.NDArray[np.object_], name: str, colour: str) -> list[Trace]:
    """Returns a band that shows the intervals of a line. Error bars take twice as long to draw."""
    exists = line["low"].notna().to_numpy()
    if not exists.any():
        return []
    high, low = _values(line["high"][exists]), _values(line["low"][exists])
    band = {
        "type": "scatter",
        "x": np.concatenate([x[exists], x[exists][::-1]]),
        "y": np.concatenate([high, low[::-1]]),
        "fill": "toself",
        "fillcolor": colour,
        "opacity": BAND_OPACITY,
        "mode": "lines",
        "line": {"width": 0},
        "name": f"{name}, 95 %",
        "legendgroup": name,
        "showlegend": False,
        "hoverinfo": "skip",
    }
    return [band]


def _values(numbers: pd.Series) -> npt.NDArray[np.object_]:
    """Returns the numbers as an array of objects. For an array of doubles, Plotly redraws the whole figure."""
    return np.array(numbers.tolist(), dtype=object)


def _x(points: pd.DataFrame, along: Along) -> npt.NDArray[np.object_]:
    """Returns each point's commit hash or date, as an array because Plotly checks each value of a list."""
    values = [short_sha(sha) for sha in points["sha"]] if along == "commits" else points["committed_at"].tolist()
    return np.array(values, dtype=object)
