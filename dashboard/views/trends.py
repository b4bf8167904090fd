"""Shows one series over the commits with its baselines, or a few series in one chart: the page Series, at /trends."""

import math
from collections.abc import Callable, Iterator

import pandas as pd
import streamlit as st

from tilewatch.configs import config_text
from tilewatch.dashboard.charts import colours, hover, marks, trend, trend_lines
from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.frames.metrics import METRICS, Metric, values_of_samples
from tilewatch.dashboard.text import moment, rival_text, source_text
from tilewatch.dashboard.widgets import address, filters, page_head, plots, repository, tables
from tilewatch.db.models import TOTAL
from tilewatch.db.repository_names import describe_branch, split_branch
from tilewatch.text import count_text, short_sha

FEW_COMMITS = 20
"""With at most this many commits in view, the raw samples are drawn too."""
MOST_OTHERS = 5
MOST_BRANCHES = 5
COMMITS, DATES = "Commit order", "Date"

Key = tuple[str, str, str, str]
KEY = ("repository", "kernel", "problem", "gpu_model")
"""The columns that name a series."""

ABOUT = (
    "One series over the commits, with its baselines. Each point is the median of one run with its 95 % interval; "
    "a click on it opens everything behind it."
)


def page(url: str) -> None:
    """Shows the chart below one line of choices; the others stand below it, where a phone has them too."""
    page_head.show("Series", ABOUT)
    everything = reads.series(url)
    if everything.empty:
        _say_unmeasured("No series is measured yet.")
        return
    several = repository.has_several(url)
    columns = iter(st.columns([3, 2, 2, 1, 2] if several else 4, gap="small"))
    with next(columns) if several else st.container():
        name = repository.pick_repository(url)
    everything = everything[everything["repository"] == name]
    if everything.empty:
        _say_unmeasured(f"No series of {name} is measured yet.")
        return
    series = everything
    with next(columns):
        series = filters.pick_value(series, "Kernel", "kernel", "kernel")
    with next(columns):
        series = filters.pick_value(series, "Problem", "problem", "problem")
    with next(columns):
        names = dict(zip(series["gpu_model"], series["gpu_name"], strict=True))
        gpu_model = filters.pick("GPU", filters.main_first(names), "gpu", help=", ".join(names.values()))
    with next(columns):
        metric = filters.pick_metric()
    own = series[series["gpu_model"] == gpu_model].iloc[0]
    points = reads.points(url, *_key(own), static_facts=metric.static)
    chart = st.container()
    left, middle, right = st.columns([2, 2, 1], vertical_alignment="bottom", gap="medium")
    with left:
        others = _pick_others(everything, own)
    with right:
        along: trend_lines.Along = "dates" if filters.pick("Order", [COMMITS, DATES], "along") == DATES else "commits"
    if others:
        with chart:
            _few(url, {_name(*_key(own)): _key(own), **others}, metric, along)
        return
    with middle:
        span = filters.pick_span(list(dict.fromkeys(points["sha"])), "commits")
    key = _key(own)
    drawing = _draw(url, key, span, metric.key, along)
    with chart:
        _show(drawing)
        _lead_on(url, own, points)
    _behind(drawing.measurements, lambda: _list_behind(*_in_view(url, key, span, metric), own["kernel"]))


def _show(drawing: trend.Drawing) -> None:
    if drawing.figure is None:
        st.info(drawing.words)
        return
    _open(plots.show_clickable(drawing.figure, "trend", drawing.words))
    st.caption(drawing.caption)


def _lead_on(url: str, own: pd.Series, points: pd.DataFrame) -> None:
    """Links the newest run of the series and its sweep."""
    kernel = points[points["role"] == "kernel"]
    if kernel.empty:
        return
    newest = kernel.iloc[-1]
    of_commit = {**repository.series_parameters(url, dict(own)), "commit": short_sha(newest["sha"])}
    with st.container(horizontal=True):
        run = {"run": str(newest["run_id"])}
        st.page_link("views/evidence.py", label="Open the newest run's evidence", query_params=run)
        if own["kernel"] != TOTAL:
            st.page_link("views/sweeps.py", label="Open its sweep", query_params=of_commit)


@st.cache_data(ttl=reads.HISTORY_TTL_S, max_entries=reads.CACHED_RESULTS, show_spinner=False)
def _draw(url: str, key: Key, span: tuple[int, int], metric_key: str, along: trend_lines.Along) -> trend.Drawing:
    """Draws one series once for several viewers."""
    metric = next(metric for metric in METRICS if metric.key == metric_key)
    points, branches = _in_view(url, key, span, metric)
    measurements = len(points) + sum(map(len, branches.values()))
    if not metric.values(points)["value"].notna().any():
        why = f"{metric.missing}, so {metric.label.lower()} cannot be shown. Pick another value under Show."
        return trend.Drawing(None, why, "", measurements)
    lines = [
        *marks.level_changes(reads.levels(url, *key)),
        *marks.toolchain_changes(points),
        *(marks.baseline_changes(points) if metric.key == "ratio" else ()),
        *marks.node_changes(points),
        *marks.rewrites(points),
    ]
    commits = points["sha"].nunique()
    raw = _raw(url, points, metric) if commits <= FEW_COMMITS else None
    branches = {name: line for name, line in branches.items() if metric.values(line)["value"].notna().any()}
    figure = trend.trend(points, metric, along=along, marks=lines, raw=raw, branches=branches)
    apart = ["hexagons are of branches and other toolchains, which count for no verdict"] if branches else []
    caption = ", ".join([*_legend(points, lines, raw), *apart]) + "."
    return trend.Drawing(figure, f"{metric.label} over {count_text(commits, 'commit')}", caption, measurements)


def _in_view(url: str, key: Key, span: tuple[int, int], metric: Metric) -> tuple[pd.DataFrame, dict[str, pd.DataFrame]]:
    """The points of the commits from the first to the last of the span, and those of each branch beside them."""
    points = reads.points(url, *key, static_facts=metric.static)
    first, last = span
    shas = list(dict.fromkeys(points["sha"]))[first : last + 1]
    in_view = points[points["sha"].isin(shas)].reset_index(drop=True)
    branches = _read_branches(url, key, static_facts=metric.static)
    return in_view, {name: _beside(line, points, in_view) for name, line in branches}


def _list_behind(points: pd.DataFrame, branches: dict[str, pd.DataFrame], kernel: str) -> pd.DataFrame:
    named = [line.assign(implementation=f"{kernel}, {describe_branch(name)}") for name, line in branches.items()]
    return pd.concat([points, *(line for line in named if len(line))])


def _say_unmeasured(finding: str) -> None:
    st.info(
        f"{finding} A worker on a machine with an NVIDIA GPU measures what is submitted; without one, import a "
        "recording (`tilewatch import FILE`) or look at the static facts on the Sweeps page."
    )
    st.page_link("views/sweeps.py", label="To the sweeps")


def _read_branches(url: str, key: Key, *, static_facts: bool) -> Iterator[tuple[str, pd.DataFrame]]:
    """The newest branches that measured this series, by name: the points of the kernel."""
    for repository_name in reads.branches(url, *key, limit=MOST_BRANCHES):
        points = reads.points(url, repository_name, *key[1:], static_facts=static_facts)
        yield str(split_branch(repository_name)[1]), points[points["role"] == "kernel"].reset_index(drop=True)


def _beside(line: pd.DataFrame, points: pd.DataFrame, in_view: pd.DataFrame) -> pd.DataFrame:
    """The points of a branch that lie in the view of the main line; those after its newest commit belong to its end."""
    first, last = in_view["position"].min(), in_view["position"].max()
    until = math.inf if last == points["position"].max() else last
    return line[line["position"].between(first, until)].reset_index(drop=True)


def _name(_: str, kernel: str, problem: str, gpu_model: str) -> str:
    return f"{kernel} {problem} on {gpu_model}"


def _key(series: pd.Series) -> Key:
    repository, kernel, problem, gpu_model = (str(series[name]) for name in KEY)
    return repository, kernel, problem, gpu_model


def _pick_others(everything: pd.DataFrame, own: pd.Series) -> dict[str, Key]:
    """Other series to draw in the same chart, by name."""
    keys, own_key = list(zip(*(everything[name] for name in KEY), strict=True)), _key(own)
    names = {_name(*key): key for key in keys if key != own_key}
    picked = filters.pick_some("Other series", list(names), "beside", max_selections=MOST_OTHERS, placeholder="none")
    elsewhere = [name for name, key in names.items() if key[:-1] == own_key[:-1]]
    everywhere = elsewhere and filters.toggle("Every GPU model", "everywhere")
    return {name: names[name] for name in [*picked, *(elsewhere if everywhere else ())]}


def _few(url: str, chosen: dict[str, Key], metric: Metric, along: trend_lines.Along) -> None:
    series = {name: reads.points(url, *key, static_facts=metric.static) for name, key in chosen.items()}
    clicked = plots.show_clickable(
        trend.trends(series, metric, along=along), "trend", f"{metric.label} of {count_text(len(series), 'series')}"
    )
    st.caption("Medians of the kernels with their 95 % interval; a click on a point opens its evidence.")
    _open(clicked)
    kernels = pd.concat([points[points["role"] == "kernel"].assign(implementation=n) for n, points in series.items()])
    _behind(len(kernels), lambda: kernels)


def _raw(url: str, points: pd.DataFrame, metric: Metric) -> pd.DataFrame:
    """Every sample behind these points as a row of its own."""
    samples = reads.raw_samples(url, tuple(sorted({int(run) for run in points["run_id"]})))
    rows = []
    for point in points.join(metric.values(points)).dropna(subset="value").to_dict("records"):
        own = samples.get((point["run_id"], point["implementation"]), [])
        values = values_of_samples(metric, point, own, samples.get((point["run_id"], point["baseline"]), []))
        about = {name: point[name] for name in ("sha", "committed_at", "implementation", "role")}
        rows += [{**about, "value": value} for value in values]
    return pd.DataFrame(rows)


def _open(clicked: list[dict[str, object]]) -> None:
    runs = [point["customdata"][hover.RUN] for point in clicked if point.get("customdata")]  # type: ignore[index]
    if runs:
        address.open_page("views/evidence.py", {"run": runs[0]})


def _legend(points: pd.DataFrame, lines: list[marks.Mark], raw: pd.DataFrame | None) -> list[str]:
    """The meaning of each kind of mark that is in the chart."""
    dense = points.groupby("implementation").size().max() > trend_lines.PLAIN
    words = [
        "Lines are medians in a band of their 95 % intervals, a click on a point of the kernel opens its evidence"
        if dense
        else "Points are medians with their 95 % interval, a click on a point of the kernel opens its evidence"
    ]
    if points["machine"].nunique() > 1:
        words.append("a line connects the runs of one machine")
    if raw is not None and len(raw):
        words.append("small dashes are the raw samples")
    if (points["origin"] == "recorded").any():
        words.append("open diamonds come from recordings")
    if (points["origin"] == "simulated").any():
        words.append("open squares are simulated")
    if points["quarantined"].any():
        words.append("crosses are of a GPU in quarantine")
    if points["verdict"].isin(list(colours.VERDICTS)).any():
        words.append("triangles are verdicts")
    dashes = {mark.dash for mark in lines}
    for dash, meaning in (
        ("solid", "solid lines are confirmed changes, with the number of the regression"),
        ("dash", "dashed lines are changes of the toolchain or the main baseline"),
        ("dot", "dotted lines are changes of the machine"),
        (
            "longdash",
            "long dashes enclose commits that left the branch, whose history was rewritten",
        ),
    ):
        if dash in dashes:
            words.append(meaning)
    return words


def _behind(count: int, read: Callable[[], pd.DataFrame]) -> None:
    columns = {name: st.column_config.NumberColumn(format="%.1f") for name in ("median us", "low us", "high us")}
    columns["ratio"] = st.column_config.NumberColumn(format="%.3fx")
    title = f"{count_text(count, 'measurement')} behind the chart"
    tables.show_in_expander(title, "points", lambda: _table(read()), columns)


def _table(points: pd.DataFrame) -> pd.DataFrame:
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
            "to": [rival_text(row["baseline"]) if row["baseline"] else "" for row in rows],
            "verdict": points["verdict"].fillna("").where(points["role"] == "kernel", ""),
            "config": [config_text(row["params"]) if row["params"] else "" for row in rows],
            "source": [source_text(row["origin"], row["machine"], row["measured_at"]) for row in rows],
            "toolchain": [", ".join(f"{name} {version}" for name, version in row["toolchain"].items()) for row in rows],
            "measured": [moment(row["measured_at"]) for row in rows],
        }
    )


page(reads.database_url())
