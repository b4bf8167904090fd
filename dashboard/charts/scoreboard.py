"""Draws HTML cards that show how far each GPU model is from DeepGEMM.

The cards need no script, so they appear at the page's first paint and nothing below them moves later.
"""

import datetime as dt
import itertools
import re
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from tilewatch.dashboard.charts import colours
from tilewatch.dashboard.frames.scoreboard import GpuScore, LinePoint, find_change, write_direction, write_distance
from tilewatch.dashboard.text import day
from tilewatch.text import count_text, short_sha, shorten

HERE = Path(__file__).parent
STYLE = (HERE / "scoreboard.css").read_text(encoding="utf-8")
BEHAVIOUR = (HERE / "picture.js").read_text(encoding="utf-8") + (HERE / "scoreboard.js").read_text(encoding="utf-8")
WIDTH, HEIGHT = 580, 152
LEFT, RIGHT, TOP, BOTTOM = 40, 16, 12, 34
LEAST_ROOM = 0.01
"""The least room on the value axis above and below the ratios. Otherwise a change of 0.001 would fill the height."""
DATES_PX, MOST_LETTERS = 110, 48
"""The least distance in pixels of two dates on the axis, and the most characters of a GPU model's name."""


def draw_scores(scores: Sequence[GpuScore]) -> str:
    """Returns the HTML of one card per GPU model, in the order of `scores`."""
    return f'<div class="cards">{"".join(map(_card, scores))}</div>'


def describe(scores: Sequence[GpuScore]) -> str:
    """Returns words such as "H200: 0.98, 2.0 points slower than DeepGEMM, 0.4 points better since 2026-11-20"."""
    return "; ".join(
        f"{score.gpu_name}: {score.ratio:.2f}, {write_distance(score)}, {write_direction(score)}" for score in scores
    )


def _card(score: GpuScore) -> str:
    name = shorten(score.gpu_name, MOST_LETTERS) + (" (simulated)" if score.is_simulated else "")
    share = f"{score.ahead} of {count_text(score.series, 'operator')} at or over 1.00"
    return (
        f'<section class="card" aria-label="{escape(describe([score]))}"><h2>{escape(name)}</h2>'
        f'<p class="number"><b>{score.ratio:.2f}</b>'
        f'<span class="distance">{escape(write_distance(score))}; {_direction(score)}</span></p>'
        f'<p class="share">{share}; geometric mean of DeepGEMM\'s time / ours</p>{_line(score.line)}</section>'
    )


def _direction(score: GpuScore) -> str:
    words = re.sub(r"\d{4}-\d\d-\d\d", r"<time>\g<0></time>", escape(write_direction(score)))
    points = find_change(score)
    if points == 0:
        return words
    side, mark = ("better", "▲") if points > 0 else ("worse", "▼")
    return f'<strong class="{side}"><i aria-hidden="true">{mark}</i> {words}</strong>'


def _line(line: Sequence[LinePoint]) -> str:
    """Returns the history of a score as SVG; an empty text for a single point."""
    if len(line) < 2:
        return ""
    low, high = find_range([place.ratio for place in line])
    times = find_times(line)
    first, last = times[0], times[-1]
    span_s = max((last - first).total_seconds(), 1.0)

    def x(at: dt.datetime) -> float:
        return LEFT + (at - first).total_seconds() / span_s * (WIDTH - LEFT - RIGHT)

    def y(ratio: float) -> float:
        return TOP + (high - ratio) / (high - low) * (HEIGHT - TOP - BOTTOM)

    corners = " ".join(f"{x(at):.1f},{y(place.ratio):.1f}" for at, place in zip(times, line, strict=True))
    marks = "".join(
        f'<circle cx="{x(at):.1f}" cy="{y(place.ratio):.1f}" r="4" fill="{colours.KERNEL}">'
        f"<title>{escape(_hint(place))}</title></circle>"
        for at, place in zip(times, line, strict=True)
    )
    # The other label is on the far side of 1.0: beside it, both could not be read.
    far = low + 0.1 * (high - low) if 1.0 - low >= high - 1.0 else high - 0.1 * (high - low)
    levels = "".join(_level(level, y(level)) for level in sorted((far, 1.0)))
    return (
        f'<svg class="history" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" font-size="12" '
        'fill="currentColor" '
        f'role="img" aria-label="{escape(_describe_line(line))}">{levels}'
        f'<polyline fill="none" stroke="{colours.KERNEL}" stroke-width="2.5" points="{corners}"/>{marks}'
        f"{_dates(times, x)}</svg>"
    )


def find_times(line: Sequence[LinePoint]) -> list[dt.datetime]:
    """Returns the running maximum of the points' commit times, so that the line never turns back."""
    # After a rebase, a commit may be older than its parent. A line that turns back cannot be read.
    return list(itertools.accumulate((place.at for place in line), max))


def find_range(ratios: Sequence[float]) -> tuple[float, float]:
    """Returns the ends of the value axis, with room around the ratios and 1.00."""
    low, high = min(*ratios, 1.0), max(*ratios, 1.0)
    room = max(LEAST_ROOM, 0.1 * (high - low))
    return low - room, high + room


def _level(ratio: float, y: float) -> str:
    dash = "" if ratio == 1.0 else ' stroke-dasharray="2 4"'
    return (
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colours.LINE}"{dash}/>'
        f'<text x="{LEFT - 12}" y="{y + 4:.1f}" text-anchor="end">{ratio:.2f}</text>'
    )


def _dates(times: Sequence[dt.datetime], x: Callable[[dt.datetime], float]) -> str:
    written: list[tuple[float, str]] = []
    taken = -float(DATES_PX)
    for at in times:
        if x(at) - taken >= DATES_PX and (not written or day(at) != written[-1][1]):
            taken = x(at)
            written.append((taken, day(at)))
    last = x(times[-1])
    return "".join(
        f'<text class="date" x="{min(at, WIDTH - RIGHT - 34):.1f}" y="{HEIGHT - 6}" text-anchor="middle">{words}</text>'
        for at, words in written
        if at >= LEFT - 1 and at <= last
    )


def _hint(place: LinePoint) -> str:
    return (
        f"{place.ratio:.3f} over {count_text(place.series, 'operator')}\n"
        f"{day(place.at)} {short_sha(place.sha)} {place.subject}"
    )


def _describe_line(line: Sequence[LinePoint]) -> str:
    first, last = line[0], line[-1]
    return f"From {first.ratio:.2f} on {day(first.at)} to {last.ratio:.2f} on {day(last.at)}"
