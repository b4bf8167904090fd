"""Makes axes for several kinds of figures. Pure."""

import math
from collections.abc import Sequence
from typing import Any

LOG_NUMBERS = {"type": "log", "dtick": "D2", "tickformat": ",~r", "zeroline": False}
"""A log axis with ticks at 1, 2 and 5 of each decade, as whole numbers. Plotly's default writes 500 as a small 5."""
WIDE = 5.0
"""If the largest number is at least this many times the smallest, LOG_NUMBERS has two or more ticks between them."""
TICKS = 5
"""The approximate number of ticks between two numbers."""


def log_numbers(values: Sequence[float]) -> dict[str, Any]:
    """Returns LOG_NUMBERS, or a log axis with round ticks if that has at most one tick for these values over 0."""
    low, high = min(values, default=1.0), max(values, default=WIDE)
    return LOG_NUMBERS if high >= WIDE * low else {**LOG_NUMBERS, "tickvals": round_between(low, high)}


def round_between(low: float, high: float) -> list[float]:
    """Returns about TICKS round numbers from `low` to `high`. If both are equal, returns that number."""
    if low == high:
        return [low]
    rough = (high - low) / TICKS
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * each for each in (1, 2, 5, 10) if power * each >= rough * (1 - 1e-9))
    return [step * count for count in range(math.ceil(low / step), math.floor(high / step) + 1)]
