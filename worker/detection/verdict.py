"""Defines the two results of the detector: a confirmed change, and the verdict on a series."""

from dataclasses import dataclass, replace
from typing import Literal

from tilewatch.worker.detection.replay_evidence import find_interval

VerdictName = Literal["regression", "improvement", "unchanged", "undecided"]


@dataclass(frozen=True)
class ConfirmedChange:
    """A change of a series at build `first_bad`. A `size` of 0.031 means 3.1 % slower."""

    series: int
    first_bad: int
    size: float
    error: float
    last_good: int | None = None  # the builds after it made the change together; None if one build did

    @property
    def direction(self) -> Literal["regression", "improvement"]:
        return "regression" if self.size > 0 else "improvement"

    @property
    def interval(self) -> tuple[float, float]:
        return find_interval(self.size, self.error)


@dataclass(frozen=True)
class SeriesVerdict:
    """The verdict on a series after a night. Sizes and noise are relative, and None if the history is too short."""

    verdict: VerdictName
    change: float | None
    low: float | None
    high: float | None
    first_bad: int | None  # None if no build is suspected
    noise: float | None
    smallest: float | None  # the smallest change that one night would show
    history_points: int
    policy: str
    reason: str

    def with_change(self, change: ConfirmedChange) -> "SeriesVerdict":
        """Returns a copy of the verdict with the direction, size and 95 % interval of a confirmed change."""
        low, high = change.interval
        return replace(self, verdict=change.direction, change=change.size, low=low, high=high)
