"""Draws the scoreboard as a PNG, for mails and slides."""

import io
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from tilewatch.dashboard.charts import colours
from tilewatch.dashboard.charts.scoreboard import find_range, find_times
from tilewatch.dashboard.frames.scoreboard import GpuScore, write_direction, write_distance
from tilewatch.dashboard.text import day
from tilewatch.text import count_text

WIDTH, HEIGHT = 1240, 600
"""The width and height in pixels of the card of one GPU model."""
LEFT, RIGHT, TOP, FOOT = 110, 60, 320, 90
PAPER, INK = "#ffffff", "#1c2430"


def draw_picture(scores: Sequence[GpuScore]) -> bytes:
    """Returns a PNG with one card per GPU model. Needs at least one score."""
    picture = Image.new("RGB", (WIDTH, HEIGHT * len(scores)), PAPER)
    draw = ImageDraw.Draw(picture)
    for number, score in enumerate(scores):
        _draw_card(draw, score, number * HEIGHT)
    out = io.BytesIO()
    picture.save(out, "PNG")
    return out.getvalue()


def _draw_card(draw: ImageDraw.ImageDraw, score: GpuScore, top: int) -> None:
    def write(x: float, y: float, words: str, size: int, anchor: str = "ls") -> None:
        draw.text((x, top + y), words, fill=INK, font=ImageFont.load_default(size), anchor=anchor)

    write(50, 70, f"{score.gpu_name}{' (simulated)' if score.is_simulated else ''}", 38)
    write(50, 170, f"{score.ratio:.2f}", 96)
    write(280, 170, f"{write_distance(score)}, {write_direction(score)}", 30)
    write(50, 230, f"{score.ahead} of {count_text(score.series, 'operator')} at or over 1.00", 28)
    write(50, 270, "geometric mean of DeepGEMM's time / ours", 24)
    if len(score.line) < 2:
        return
    ratios = [place.ratio for place in score.line]
    low, high = find_range(ratios)
    times = find_times(score.line)
    first, last = times[0], times[-1]
    span_s = max((last - first).total_seconds(), 1.0)

    def at(place: int) -> tuple[float, float]:
        x = LEFT + (times[place] - first).total_seconds() / span_s * (WIDTH - LEFT - RIGHT)
        return x, top + height_of(ratios[place])

    def height_of(ratio: float) -> float:
        return TOP + (high - ratio) / (high - low) * (HEIGHT - TOP - FOOT)

    for level in sorted({min(*ratios, 1.0), 1.0}):
        y = height_of(level)
        draw.line([(LEFT, top + y), (WIDTH - RIGHT, top + y)], fill=colours.LINE, width=2 if level == 1.0 else 1)
        write(LEFT - 12, y + 8, f"{level:.2f}", 24, "rs")
    corners = [at(place) for place in range(len(score.line))]
    draw.line(corners, fill=colours.KERNEL, width=5, joint="curve")
    for x, y in corners:
        draw.ellipse([(x - 8, y - 8), (x + 8, y + 8)], fill=colours.KERNEL)
    write(LEFT, HEIGHT - 40, day(first), 24)
    write(WIDTH - RIGHT, HEIGHT - 40, day(last), 24, "rs")
