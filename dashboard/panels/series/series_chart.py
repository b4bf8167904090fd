"""Shows the chart of one series or several. A click on a point selects its run."""

import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from tilewatch.configs import config_text
from tilewatch.dashboard.charts import colours, hover, marks, trend, trend_lines
from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.frames.metrics import METRICS, Metric
from tilewatch.dashboard.frames.series_choice import COMMIT, KEY, RUN, SUBMISSION, Key
from tilewatch.dashboard.text import label_baseline, moment, source_text
from tilewatch.dashboard.widgets import address, filters, plots, repository, tables
from tilewatch.db.repository_names import describe_branch, split_branch
from tilewatch.text import count_text, short_sha

MOST_OTHERS = 5
MOST_BRANCHES = 5
COMMITS, DATES = "Commit order", "Date"
ZOOM = "zoom"
"""The address parameter for the zoomed range of the chart, written by serving/zoom.js."""


@dataclass(frozen=True)
class ChartView:
    """The choices for a chart. `span` has the indices of the first and last commit."""

    span: tuple[int, int]
    metric_key: str
    along: trend_lines.Along

    @property
    def metric(self) -> Metric:
        return next(metric for metric in METRICS if metric.key == self.metric_key)


def pick_others(keys: list[Key], own: Key) -> dict[str, Key]:
    """Shows a choice of other series for the same chart, and returns the chosen series by name."""
    # The commits of two repositories have no common order.
    names = {name_series(key): key for key in keys if key != own and key[0] == own[0]}
    picked = filters.pick_some("Other series", list(names), "beside", max_selections=MOST_OTHERS, placeholder="none")
    elsewhere = [name for name, key in names.items() if key[:-1] == own[:-1]]
    everywhere = elsewhere and filters.toggle("Every GPU model", "everywhere")
    return {name: names[name] for name in [*picked, *(elsewhere if everywhere else ())]}


def pick_order() -> trend_lines.Along:
    return "dates" if filters.pick("Order", [COMMITS, DATES], "along") == DATES else "commits"


def name_series(key: Key) -> str:
    _, kernel, problem, gpu_model = key
    return f"{kernel} {problem} on {gpu_model}"


def show(url: str, key: Key, others: Mapping[str, Key], view: ChartView, run_id: int | None) -> None:
    """Shows the chart of one series or several, with a ring around the point of `run_id`."""
    drawing = _draw_few(url, {name_series(key): key, **others}, view) if others else _draw(url, key, view)
    if drawing.figure is None:
        st.info(drawing.words)
        return
    about = repository.series_parameters(url, dict(zip(KEY, key, strict=True)))
    name = f"{zlib.crc32(repr((key, *others, view.metric_key, view.along, view.span[0])).encode()):x}"
    asked = st.query_params.get(ZOOM, "")
    if not asked.startswith(name):  # of what was shown before
        address.remove([ZOOM])
    figure = trend.zoom(trend.ring(drawing.figure, run_id), name, asked)
    plots.show_clickable(figure, "trend", drawing.words, partial(_pick, about))
    st.caption(drawing.caption)


def show_table(url: str, key: Key, others: Mapping[str, Key], view: ChartView) -> None:
    """Shows the measurements behind the chart in an expander below it."""
    columns = {name: st.column_config.NumberColumn(format="%.1f") for name in ("median us", "low us", "high us")}
    columns["ratio"] = st.column_config.NumberColumn(format="%.3fx")
    tables.show_in_expander(
        "Measurements behind the chart",
        "points",
        lambda: tabulate_points(_list_points(url, key, others, view)),
        columns,
    )


def _pick(about: Mapping[str, str], point: Mapping[str, Any]) -> None:
    """Selects the run of a clicked point. `about` has the address parameters of the run's series."""
    if point.get("customdata"):
        address.pick({**about, RUN: str(point["customdata"][hover.RUN])}, instead_of=(COMMIT, SUBMISSION))


@st.cache_data(ttl=reads.HISTORY_TTL_S, max_entries=reads.CACHED_RESULTS, show_spinner=False)
def _draw(url: str, key: Key, view: ChartView) -> trend.Drawing:
    """Draws one series with its baselines."""
    metric = view.metric
    points, branches = _read_view(url, key, view)
    if not metric.values(points)["value"].notna().any():
        why = f"{metric.missing}, so {metric.label.lower()} cannot be shown. Pick another value under Show."
        return trend.Drawing(None, why, "")
    lines = marks.list_marks(points, reads.levels(url, *key), of_ratio=metric.key == "ratio")
    branches = {name: line for name, line in branches.items() if metric.values(line)["value"].notna().any()}
    figure = trend.trend(points, metric, along=view.along, marks=lines, branches=branches)
    apart = ["hexagons are of branches and other toolchains, which count for no verdict"] if branches else []
    first, *others = list_meanings(points, lines)
    caption = ", ".join([first, "a click on a point of the kernel opens its run", *others, *apart]) + "."
    return trend.Drawing(figure, f"{metric.label} over {count_text(points['sha'].nunique(), 'commit')}", caption)


def _draw_few(url: str, chosen: Mapping[str, Key], view: ChartView) -> trend.Drawing:
    series = {name: reads.points(url, *key, static_facts=view.metric.static) for name, key in chosen.items()}
    return trend.Drawing(
        trend.trends(series, view.metric, along=view.along),
        f"{view.metric.label} of {count_text(len(series), 'series')}",
        "Medians of the kernels with their 95 % interval; a click on a point opens its run.",
    )


def _read_view(url: str, key: Key, view: ChartView) -> tuple[pd.DataFrame, dict[str, pd.DataFrame]]:
    """Returns the points of the shown commits, and a dict from branch name to points."""
    points = reads.points(url, *key, static_facts=view.metric.static)
    first, last = view.span
    shas = list(dict.fromkeys(points["sha"]))[first : last + 1]
    in_view = points[points["sha"].isin(shas)].reset_index(drop=True)
    branches = _read_branches(url, key, static_facts=view.metric.static)
    return in_view, {name: _beside(line, points, in_view) for name, line in branches}


def _read_branches(url: str, key: Key, *, static_facts: bool) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yields (name, kernel's points) for each of the newest branches that measured this series."""
    for repository_name in reads.branches(url, *key, limit=MOST_BRANCHES):
        points = reads.points(url, repository_name, *key[1:], static_facts=static_facts)
        yield str(split_branch(repository_name)[1]), points[points["role"] == "kernel"].reset_index(drop=True)


def _beside(line: pd.DataFrame, points: pd.DataFrame, in_view: pd.DataFrame) -> pd.DataFrame:
    """Returns the branch's points that lie between the first and the last shown commit."""
    first, last = in_view["position"].min(), in_view["position"].max()
    # A view up to the newest commit also shows the later points of the branch.
    until = math.inf if last == points["position"].max() else last
    return line[line["position"].between(first, until)].reset_index(drop=True)


def _list_points(url: str, key: Key, others: Mapping[str, Key], view: ChartView) -> pd.DataFrame:
    if others:
        each = {name_series(key): key, **others}
        read = {name: reads.points(url, *of, static_facts=view.metric.static) for name, of in each.items()}
        return pd.concat([rows[rows["role"] == "kernel"].assign(implementation=name) for name, rows in read.items()])
    points, branches = _read_view(url, key, view)
    named = [line.assign(implementation=f"{key[1]}, {describe_branch(name)}") for name, line in branches.items()]
    return pd.concat([points, *(line for line in named if len(line))])


def list_meanings(points: pd.DataFrame, lines: list[marks.Mark]) -> list[str]:
    """Returns a caption text for each kind of line and point in the chart."""
    dense = points.groupby("implementation").size().max() > trend_lines.PLAIN
    words = [
        "Lines are medians in a band of their 95 % intervals"
        if dense
        else "Points are medians with their 95 % interval"
    ]
    dashes = {mark.dash for mark in lines}
    for is_there, meaning in (
        (points["machine"].nunique() > 1, "a line connects the runs of one machine"),
        ((points["origin"] == "recorded").any(), "open diamonds come from recordings"),
        ((points["origin"] == "simulated").any(), "open squares are simulated"),
        (points["quarantined"].any(), "crosses are of a GPU in quarantine"),
        (points["verdict"].isin(list(colours.VERDICTS)).any(), "triangles are verdicts"),
        ("solid" in dashes, "solid lines are confirmed changes, with the number of the regression"),
        ("dash" in dashes, "dashed lines are changes of the toolchain or the main baseline"),
        ("dot" in dashes, "dotted lines are changes of the machine"),
        ("longdash" in dashes, "long dashes enclose commits that left the branch, whose history was rewritten"),
    ):
        if is_there:
            words.append(meaning)
    return words


def tabulate_points(points: pd.DataFrame) -> pd.DataFrame:
    """Returns a table with one row per measurement."""
    rows = points.to_dict("records")
    return pd.DataFrame(
        {
            "commit": [f"{short_sha(row['sha'])} {row['subject']}" for row in rows],
            "implementation": points["implementation"],
            "median us": points["median_us"],
            "low us": points["low_us"],
            "high us": points["high_us"],
            "samples": points["samples"],
            "ratio": points["ratio"],
            "to": [label_baseline(row["baseline"]) if row["baseline"] else "" for row in rows],
            "verdict": points["verdict"].fillna("").where(points["role"] == "kernel", ""),
            "config": [config_text(row["params"]) if row["params"] else "" for row in rows],
            "source": [source_text(row["origin"], row["machine"], row["measured_at"]) for row in rows],
            "toolchain": [", ".join(f"{name} {version}" for name, version in row["toolchain"].items()) for row in rows],
            "measured": [moment(row["measured_at"]) for row in rows],
        }
    )
