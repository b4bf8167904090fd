"""Draws the last values of a series as a small line for a cell of a table. Pure: numbers in, SVG out."""

from collections.abc import Sequence

WIDTH, HEIGHT, MARGIN = 64, 14, 2
LEAST_RANGE = 0.06
"""The height of the drawing is at least this share of the middle value: noise of 1 % would else look like a step."""


def sparkline(values: Sequence[float]) -> str:
    """Returns the empty string for fewer than two values: there is nothing to see."""
    if len(values) < 2:
        return ""
    middle = (min(values) + max(values)) / 2
    height = max(max(values) - min(values), LEAST_RANGE * middle, 1e-9)
    low = middle - height / 2
    step = (WIDTH - 2 * MARGIN) / (len(values) - 1)
    points = " ".join(
        f"{MARGIN + i * step:.0f},{HEIGHT - MARGIN - (value - low) / height * (HEIGHT - 2 * MARGIN):.1f}"
        for i, value in enumerate(values)
    )
    return (
        f'<svg class="spark" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'preserveAspectRatio="none" aria-hidden="true"><polyline fill="none" stroke="currentColor" '
        f'stroke-width="1.2" vector-effect="non-scaling-stroke" points="{points}"/></svg>'
    )
