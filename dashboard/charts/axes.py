"""Axes that several figures share. Pure."""

import math
from collections.abc import Sequence
from typing import Any

LOG_NUMBERS = {"type": "log", "dtick": "D2", "tickformat": ",~r", "zeroline": False}
"""1, 2 and 5 of each decade, each as a whole number: Plotly alone writes 0.5 and 500 as a small 5."""
WIDE = 5.0
"""Of numbers whose largest is this many times the smallest, at least two are 1, 2 or 5 of a decade."""
TICKS = 5
"""About so many between two numbers."""


def log_numbers(values: Sequence[float]) -> dict[str, Any]:
    """LOG_NUMBERS, with round numbers as ticks where these values would have one tick or none; `values` are over 0."""
    low, high = min(values, default=1.0), max(values, default=WIDE)
    return LOG_NUMBERS if high >= WIDE * low else {**LOG_NUMBERS, "tickvals": round_between(low, high)}


def round_between(low: float, high: float) -> list[float]:
    """Some round numbers from `low` to `high`; these themselves where they are one number."""
    if low == high:
        return [low]
    rough = (high - low) / TICKS
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * each for each in (1, 2, 5, 10) if power * each >= rough * (1 - 1e-9))
    return [step * count for count in range(math.ceil(low / step), math.floor(high / step) + 1)]
