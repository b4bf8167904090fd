"""Defines the two results of the detector: a confirmed change, and the verdict of a series after a night."""

from dataclasses import dataclass, replace
from typing import Literal

from tilewatch.worker.detection.replay_evidence import find_interval

VerdictName = Literal["regression", "improvement", "unchanged", "undecided"]


@dataclass(frozen=True)
class ConfirmedChange:
    """A change of a series at build `first_bad` by the relative `size` (0.031 is 3.1 % slower), with its standard
    error. If several builds made it, these are the builds after `last_good`; otherwise `last_good` is None."""

    series: int
    first_bad: int
    size: float
    error: float
    last_good: int | None = None

    @property
    def direction(self) -> Literal["regression", "improvement"]:
        return "regression" if self.size > 0 else "improvement"

    @property
    def interval(self) -> tuple[float, float]:
        return find_interval(self.size, self.error)


@dataclass(frozen=True)
class SeriesVerdict:
    """The verdict on a series after a night. Sizes and noise are relative, and None if the history is too short.
    `smallest` is the smallest change that one night would show. `first_bad` is None if no build is suspected."""

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

    def with_change(self, change: ConfirmedChange) -> "SeriesVerdict":
        """Returns this verdict with the direction, the size and the 95 % interval of a confirmed change."""
        low, high = change.interval
        return replace(self, verdict=change.direction, change=change.size, low=low, high=high)
