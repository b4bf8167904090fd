"""Draws many series as an HTML table with coloured cells: a row per problem, a column per GPU model.

Plotly is not used, because its 4.7 MB of script would slow down the first page. grid.js makes the table interactive.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd

from tilewatch.dashboard.charts import colours, hover
from tilewatch.dashboard.frames import differences
from tilewatch.dashboard.frames import scoreboard as scores
from tilewatch.dashboard.text import label_baseline

HERE = Path(__file__).parent
STYLE = (HERE / "grid.css").read_text(encoding="utf-8")
BEHAVIOUR = (HERE / "picture.js").read_text(encoding="utf-8") + (HERE / "grid.js").read_text(encoding="utf-8")
DEEPGEMM = "deepgemm"
MOST_ROWS = 16
"""The most rows of a table that starts unfolded. In longer tables, the first kernel and slower kernels are unfolded."""
SCALE_WIDTH_PX, SCALE_HEIGHT_PX = 520, 30
SPARK_WIDTH, SPARK_HEIGHT, SPARK_MARGIN = 64, 14, 2
LEAST_RANGE = 0.06
"""The least height of a sparkline, as a share of its middle value. Otherwise noise of 1 % would look like a step."""
NAMES_REM, CELL_REM = 24, 14
"""The largest widths of the column of names and of each other column, so that one GPU model does not fill the page."""

Row = Mapping[Any, Any]
Address = Callable[[Row], str]
"""The type of functions that return the link of a row's cell, relative to the page."""
Sparks = Mapping[tuple[str, str, str, str], Sequence[float]]
"""The newest ratios of each series, for its sparkline, oldest first. Keys: kernel, problem, GPU model and origin."""
NO_SPARKS: Sparks = MappingProxyType({})


@dataclass(frozen=True)
class Scale:
    """A scale of colours for one column. Its ends are at `middle` - `span` and `middle` + `span`."""

    key: str  # different for each scale of a page
    column: str
    title: str
    middle: float
    span: float
    tick: Callable[[float], str]
    write: Callable[[Row], str]
    valued: Callable[[Row], float]
    stops: Sequence[tuple[float, str]] = colours.SLOWER_TO_FASTER

    def colour(self, value: float) -> str:
        return colours.colour_at(self.stops, 0.5 + (value - self.middle) / (2 * self.span))


def ratio_table(
    series: pd.DataFrame, address: Address | None = None, sparks: Sparks = NO_SPARKS, scale: "Scale | None" = None
) -> str:
    """Returns an HTML table with one cell per series, which by default shows the ratio to the baseline."""
    scale = scale or RATIO
    models = _models(series)
    width = f'style="width:{100 / max(len(models), 1):.1f}%"'
    head = "".join(f'<th scope="col" {width}>{escape(name)}</th>' for name in models.values())
    operators = _worst_first(series, scale)
    is_small = sum(len(each.problems) for each in operators) + len(operators) <= MOST_ROWS
    body = "".join(
        _write_kernel(each, models, scale, address, sparks, is_open=is_small or not number or not address)
        for number, each in enumerate(operators)
    )
    widest = NAMES_REM + CELL_REM * len(models)
    role = ' role="grid"' if address else ""
    label = f'aria-label="{escape(scale.title)}"'
    return (
        f'<div class="wide"><table class="series"{role} {label} style="max-width:{widest}rem">'
        f"<thead><tr><td></td>{head}</tr></thead>{body}</table></div>{_scale(scale)}"
    )


def draw_groups(pairs: pd.DataFrame, address: Address | None, sparks: Sparks) -> dict[str, str]:
    """Returns a dict from each heading on the Overview to the HTML of the table under the heading."""
    pairs = pairs[pairs["ratio"].notna()]
    groups = [
        scores.find_group(kernel, baseline) for kernel, baseline in zip(pairs["kernel"], pairs["baseline"], strict=True)
    ]
    return {
        group: ratio_table(rows, address, sparks, SCALES[group])
        for group in scores.GROUPS
        if len(rows := pairs[[each == group for each in groups]])
    }


def index_sparks(recent: pd.DataFrame) -> Sparks:
    """Maps (kernel, problem, GPU model, origin) to the newest ratios of that series."""
    keys = zip(recent["kernel"], recent["problem"], recent["gpu_model"], recent["origin"], strict=True)
    return dict(zip(keys, recent["ratios"], strict=True))


@dataclass(frozen=True)
class KernelRows:
    """The rows of one kernel by problem and GPU model."""

    kernel: str
    problems: Mapping[str, Mapping[str, Row]]


def _worst_first(series: pd.DataFrame, scale: Scale) -> list[KernelRows]:
    """Returns the rows by kernel. Kernels that became slower come first, then kernels with low ratios."""
    kernels: dict[str, dict[str, dict[str, Row]]] = {}
    for row in series.to_dict("records"):
        kernels.setdefault(row["kernel"], {}).setdefault(row["problem"], {})[row["gpu_model"]] = row

    def badness(cells: Iterable[Row]) -> tuple[bool, float]:
        there = [row for row in cells if not pd.isna(row[scale.column])]
        slower = any(row["finding"] == differences.SLOWER for row in there)
        return not slower, min((scale.valued(row) for row in there), default=float("inf"))

    operators = [
        KernelRows(kernel, dict(sorted(problems.items(), key=lambda each: badness(each[1].values()))))
        for kernel, problems in kernels.items()
    ]
    return sorted(operators, key=lambda each: badness(_cells(each)))


def _cells(operator: KernelRows) -> list[Row]:
    return [row for rows in operator.problems.values() for row in rows.values()]


def _write_kernel(
    operator: KernelRows,
    models: Mapping[str, str],
    scale: Scale,
    address: Address | None,
    sparks: Sparks,
    *,
    is_open: bool,
) -> str:
    """Returns a kernel's table rows as HTML. Several rows are hidden if none shows a slowdown."""
    several = len(operator.problems) > 1
    is_open = is_open or not several or any(row["finding"] == differences.SLOWER for row in _cells(operator))
    folded = "" if is_open else " hidden"
    lines = "".join(
        f'<tr{folded}><th scope="row">{_write_name(problem if several else f"{operator.kernel} {problem}")}</th>'
        + "".join(_cell(rows.get(model), scale, address, sparks) for model in models)
        + "</tr>"
        for problem, rows in operator.problems.items()
    )
    if not several:
        return f"<tbody>{lines}</tbody>"
    over = "".join(_range([rows.get(model) for rows in operator.problems.values()], scale) for model in models)
    name = f'<button type="button" aria-expanded="{str(is_open).lower()}">{_write_name(operator.kernel)}</button>'
    count = f"<small>{len(operator.problems)} problems</small>"
    return (
        f'<tbody data-operator="{escape(operator.kernel)}">'
        f'<tr class="operator"><th scope="rowgroup">{name} {count}</th>{over}</tr>{lines}</tbody>'
    )


def _write_name(name: str) -> str:
    """Returns the HTML of a name that may break after each underscore, for narrow screens."""
    return escape(name).replace("_", "_<wbr>")


def _range(rows: Sequence[Row | None], scale: Scale) -> str:
    """Returns an HTML cell with a kernel's lowest and highest value on one GPU model."""
    there = [row for row in rows if row is not None and not pd.isna(row[scale.column])]
    if not there:
        return "<td></td>"
    values = [scale.valued(row) for row in there]
    low, high = scale.tick(min(values)), scale.tick(max(values))
    arrows = Counter(_arrow(row) for row in there if row["finding"] in differences.DIFFERENT)
    words = [low if low == high else f"{low} to {high}", *_name_baselines(there, scale)]
    words += [f"{arrow}{count}" for arrow, count in arrows.items()]
    colour = scale.colour(min(values))
    return f'<td style="background:{colour};color:{colours.ink_on(colour)}"><span>{" ".join(words)}</span></td>'


def _name_baselines(rows: Sequence[Row], scale: Scale) -> list[str]:
    """Returns the baselines' names as one text, e.g. ["A or B"]; an empty list for DeepGEMM alone."""
    baselines = {row["baseline"] for row in rows} if scale.column == RATIO.column else set()
    return [escape(" or ".join(sorted(map(label_baseline, baselines))))] if baselines - {DEEPGEMM} else []


def _models(series: pd.DataFrame) -> dict[str, str]:
    """Maps each GPU model to the heading of its column."""
    named = {}
    for model, rows in series.groupby("gpu_model", sort=False):
        origins = sorted(set(rows["origin"]))
        elsewhere = f" ({', '.join(origins)})" if "measured" not in origins else ""
        named[str(model)] = rows["gpu_name"].iloc[0].removeprefix("NVIDIA ") + elsewhere
    return named


def _cell(row: Row | None, scale: Scale, address: Address | None, sparks: Sparks) -> str:
    if row is None or pd.isna(row[scale.column]):
        return "<td></td>"
    colour = scale.colour(scale.valued(row))
    spark = sparkline(sparks.get((row["kernel"], row["problem"], row["gpu_model"], row["origin"]), ()))
    words = f"<b>{escape(scale.write(row))}</b>{spark}"
    hint = f'title="{escape(chr(10).join(hover.series_lines(row)))}"'
    inside = f'<a href="{escape(address(row))}" {hint}>{words}</a>' if address else f"<span {hint}>{words}</span>"
    return f'<td style="background:{colour};color:{colours.ink_on(colour)}">{inside}</td>'


def sparkline(values: Sequence[float]) -> str:
    """Returns a small line through the values as SVG; an empty text for fewer than two values."""
    if len(values) < 2:
        return ""
    middle = (min(values) + max(values)) / 2
    height = max(max(values) - min(values), LEAST_RANGE * middle, 1e-9)
    low = middle - height / 2
    step = (SPARK_WIDTH - 2 * SPARK_MARGIN) / (len(values) - 1)
    drawn = SPARK_HEIGHT - 2 * SPARK_MARGIN
    points = " ".join(
        f"{SPARK_MARGIN + i * step:.0f},{SPARK_HEIGHT - SPARK_MARGIN - (value - low) / height * drawn:.1f}"
        for i, value in enumerate(values)
    )
    return (
        f'<svg class="spark" width="{SPARK_WIDTH}" height="{SPARK_HEIGHT}" viewBox="0 0 {SPARK_WIDTH} {SPARK_HEIGHT}" '
        'preserveAspectRatio="none" aria-hidden="true"><polyline fill="none" stroke="currentColor" '
        f'stroke-width="1.2" vector-effect="non-scaling-stroke" points="{points}"/></svg>'
    )


def _scale(scale: Scale) -> str:
    """Returns the legend of the colours as SVG, which saved pictures of the table include."""
    stops = "".join(f'<stop offset="{at}" stop-color="{colour}"/>' for at, colour in scale.stops)
    ends = (scale.middle - scale.span, scale.middle, scale.middle + scale.span)
    words = (f"≤ {scale.tick(ends[0])}", scale.tick(ends[1]), f"≥ {scale.tick(ends[2])}")
    ticks = "".join(
        f'<text x="{x}" y="26" text-anchor="{anchor}">{word}</text>'
        for word, x, anchor in zip(words, (0, 110, 220), ("start", "middle", "end"), strict=True)
    )
    name = f"scale-{scale.key}"
    return (
        f'<svg class="scale" width="{SCALE_WIDTH_PX}" height="{SCALE_HEIGHT_PX}" font-size="11" fill="currentColor" '
        f'aria-hidden="true"><defs><linearGradient id="{name}">{stops}</linearGradient></defs>'
        f'<rect width="220" height="12" fill="url(#{name})"/>{ticks}'
        f'<text x="230" y="11">{escape(scale.title)}</text></svg>'
    )


def _ratio_words(row: Row) -> str:
    moved = f" {_arrow(row)}{100 * row['change']:+.1f}%" if row["finding"] in differences.DIFFERENT else ""
    baseline = "" if row["baseline"] == DEEPGEMM else f" {label_baseline(row['baseline'])}"
    return f"{_two_digits(row['ratio'])}{baseline}{moved}"


def _two_digits(ratio: float) -> str:
    """Returns a ratio with two decimals or, below 0.1, with two significant digits."""
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"


def _arrow(row: Row) -> str:
    """Returns an arrow up for faster or down for slower, filled if the change is confirmed."""
    up, down = "▲▼" if row["finding"] in differences.CLAIMS else "△▽"
    return up if row["change"] < 0 else down


def _scale_of_ratios(key: str, title: str, middle: float, span: float, **more: Any) -> Scale:
    return Scale(key, "ratio", title, middle, span, _two_digits, _ratio_words, lambda row: float(row["ratio"]), **more)


RATIO = _scale_of_ratios("ratio", "ratio to the main baseline", 1.0, 0.5)
LIBRARIES = _scale_of_ratios("libraries", "ratio to DeepGEMM, or to the library that a cell names", 1.0, 1.0)
MEMORY = _scale_of_ratios("memory", "share of a copy's speed", 0.75, 0.25, stops=colours.FAR_TO_NEAR)
SCALES = {
    scores.LIKE_DEEPGEMM: RATIO,
    scores.LIBRARIES: LIBRARIES,
    scores.MEMORY: MEMORY,
    scores.TUTORIAL: LIBRARIES,
}
