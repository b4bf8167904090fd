"""Makes log axes and round tick numbers for Plotly's figures."""

import math
from collections.abc import Sequence
from typing import Any

LOG_NUMBERS = {"type": "log", "dtick": "D2", "tickformat": ",~r", "zeroline": False}
"""A log axis with ticks at 1, 2 and 5 of each decade, written as whole numbers. Plotly's default writes 500 as "5"."""
WIDE = 5.0
"""If the largest number is at least this multiple of the smallest, LOG_NUMBERS has two or more ticks between them."""
TICKS = 5
"""The approximate number of ticks that `round_between` returns."""


def log_numbers(values: Sequence[float]) -> dict[str, Any]:
    """Returns a log axis for Plotly, with round ticks if the values are close together."""
    low, high = min(values, default=1.0), max(values, default=WIDE)
    return LOG_NUMBERS if high >= WIDE * low else {**LOG_NUMBERS, "tickvals": round_between(low, high)}


def round_between(low: float, high: float) -> list[float]:
    """Returns about TICKS round numbers from `low` to `high`."""
    if low == high:
        return [low]
    rough = (high - low) / TICKS
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * each for each in (1, 2, 5, 10) if power * each >= rough * (1 - 1e-9))
    return [step * count for count in range(math.ceil(low / step), math.floor(high / step) + 1)]
