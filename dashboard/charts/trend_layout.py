"""Makes the axes, the legend and the vertical lines of a trend for Plotly."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from tilewatch.dashboard.charts import colours
from tilewatch.dashboard.charts.marks import Mark
from tilewatch.dashboard.charts.trend_lines import Along
from tilewatch.dashboard.frames.metrics import Metric, axis_title
from tilewatch.dashboard.text import day, label_commit
from tilewatch.text import plain_html, short_sha, shorten

MOST_LABELLED_MARKS = 6
"""The most marks that have words. Further marks are drawn without words, which would overlap."""
AXIS_TITLE_PX = 12
SIDE_PX, FOOT_PX, END_PX = 92, 148, 32
"""Margins in pixels beside, below and above the plot for the axes, their titles and one row of legend. If the margins
are too small, Plotly enlarges them and draws the figure again, often twice."""
MOST_LABELS = 10
"""The most labels on a commit axis. More would overlap on a phone."""
MOST_LETTERS_OF_A_MARK = 48
"""The most characters of the words above a mark."""
SLANT_DEGREES = -40


def lay_out(points: pd.DataFrame, metric: Metric, along: Along, marks: Sequence[Mark]) -> dict[str, Any]:
    """Returns Plotly's layout of a trend. The points must be in the order of their commits."""
    commits = points.drop_duplicates("sha").reset_index(drop=True) if len(points) else points
    names = [short_sha(sha) for sha in commits["sha"]] if len(points) else []
    commit_axis = {
        "title": {"text": name_days(commits), "font": {"size": AXIS_TITLE_PX}, "standoff": 4},
        "type": "category",
        "categoryorder": "array",
        "categoryarray": names,
        "range": [-0.5, max(len(names), 1) - 0.5],
        **label_commits(commits, names),
    }
    placed = [(mark, _between(commits, mark, along)) for mark in marks]
    seen = [(mark, x, i) for i, (mark, x) in enumerate(placed) if x is not None]
    lines = [_line(x, mark) for mark, x, _ in seen]
    values = _around(points, with_one=metric.key == "ratio")
    if metric.key == "ratio":
        lines.append(_line_at_one(points))
    return {
        "shapes": lines,
        "annotations": [_words(x, mark, labelled=i < MOST_LABELLED_MARKS, row=i) for mark, x, i in seen],
        "height": 500,
        "margin": {"t": 20 + 16 * min(len(marks), 3), "b": FOOT_PX, "l": SIDE_PX, "r": END_PX},
        "hovermode": "closest",
        "hoverlabel": {"align": "left"},
        # At the foot, where the figure reserves space. In a narrow window it covered the title of the axis.
        "legend": {"orientation": "h", "yref": "container", "yanchor": "bottom", "y": 0, "x": 0},
        "showlegend": True,
        "yaxis": {
            # The longest label fits the height.
            "title": {"text": axis_title(metric, points), "font": {"size": AXIS_TITLE_PX}},
            "range": values,
            "autorangeoptions": {"include": values},
            "zeroline": False,
        },
        "xaxis": commit_axis if along == "commits" else {"title": {"text": "date of the commit"}, "type": "date"},
    }


def label_commits(commits: pd.DataFrame, names: Sequence[str]) -> dict[str, Any]:
    """Returns axis settings that label at most MOST_LABELS commits, always including the newest."""
    step = max(1, -(-len(names) // MOST_LABELS))
    shown = [at for at in range(len(names)) if (len(names) - 1 - at) % step == 0]
    days, subjects = (commits[name].iloc[shown] for name in ("committed_at", "subject"))
    labels = [plain_html(label_commit(at, subject)) for at, subject in zip(days, subjects, strict=True)]
    look = {"tickangle": SLANT_DEGREES, "tickfont": {"size": 11}}
    return {**look, "tickmode": "array", "tickvals": [names[at] for at in shown], "ticktext": labels}


def name_days(commits: pd.DataFrame) -> str:
    """Returns the title of a commit axis: the days of the first and of the last commit."""
    if commits.empty:
        return "commits in their order"
    first, last = day(commits["committed_at"].min()), day(commits["committed_at"].max())
    return f"commits of {first}" if first == last else f"commits of {first} to {last}, in their order"


def _line(x: Any, mark: Mark) -> dict[str, Any]:
    look = {"width": 1.5, "dash": mark.dash, "color": mark.colour}
    return {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "line": look}


def _words(x: Any, mark: Mark, *, labelled: bool, row: int) -> dict[str, Any]:
    """Returns the words above a mark's line, in one of three rows to avoid overlaps."""
    return {
        "x": x,
        "y": 1.0,
        "yref": "paper",
        "yshift": 14 * (row % 3),
        "yanchor": "bottom",
        "xanchor": "center",
        "showarrow": False,
        "text": plain_html(shorten(mark.words, MOST_LETTERS_OF_A_MARK)) if labelled else "",
        "hovertext": plain_html(mark.words),
        "font": {"size": 11},  # in the text colour: on one of the themes a mark's colour has too little contrast
    }


def _line_at_one(points: pd.DataFrame) -> dict[str, Any]:
    baselines = set(points["baseline"].dropna()) if len(points) else set()
    colour = colours.colour_of(baselines.pop(), "baseline") if len(baselines) == 1 else colours.LINE
    ends = {"x0": 0, "x1": 1, "xref": "x domain", "y0": 1.0, "y1": 1.0}
    return {"type": "line", **ends, "line": {"width": 1, "color": colour}, "opacity": 0.6}


def _between(commits: pd.DataFrame, mark: Mark, along: Along) -> Any:
    """Returns the x of a mark, halfway between its neighbouring commits; None if a neighbour is missing."""
    positions = commits["position"] if len(commits) else pd.Series(dtype=int)
    earlier, later = positions.index[positions <= mark.before], positions.index[positions >= mark.after]
    if earlier.empty or later.empty:
        return None
    before, after = earlier[-1], later[0]
    if along == "commits":
        return (before + after) / 2
    first, last = commits.iloc[before]["committed_at"], commits.iloc[after]["committed_at"]
    return first + (last - first) / 2


def _around(points: pd.DataFrame, *, with_one: bool) -> list[float] | None:
    """Returns the axis range around the points, and around 1.0 if `with_one`; None without points."""
    if points.empty:
        return None
    low, high = points["low"].fillna(points["value"]).min(), points["high"].fillna(points["value"]).max()
    if with_one:
        low, high = min(low, 1.0), max(high, 1.0)
    room = max(0.12 * (high - low), 0.02 * abs(high), 0.001)
    return [float(low - room), float(high + room)]
