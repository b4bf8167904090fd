"""The detector's two results: a confirmed change, and the verdict of a series after a night. Values, no decisions."""

from dataclasses import dataclass
from typing import Literal

VerdictName = Literal["regression", "improvement", "unchanged", "undecided"]


@dataclass(frozen=True)
class ConfirmedChange:
    """Build `first_bad` changed the series by `size` (0.031 is 3.1 % slower), with the standard error `error`.

    Where no single build made the change, those after `last_good` up to `first_bad` did; else that is None.
    """

    series: int
    first_bad: int
    size: float
    error: float
    last_good: int | None = None


@dataclass(frozen=True)
class SeriesVerdict:
    """Sizes and noise are relative; `smallest` is the smallest change that one night would show.

    They are None where the history is too short, and `first_bad` where no build is suspected.
    """

    verdict: VerdictName
    change: float | None
    low: float | None
    high: float | None
    first_bad: int | None
    noise: float | None
    smallest: float | None
    history_points: int
    policy: str
    reason: str
