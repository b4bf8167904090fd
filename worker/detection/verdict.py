"""What the judge says of a confirmed change, and what is known of a series on a night. Values, no decisions."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["code", "environment"]
Answer = Literal["regression", "improvement", "unchanged", "undecided"]


@dataclass(frozen=True)
class Alert:
    """`size` is relative: 0.031 is 3.1 % slower. `kind` "code" is a claim about the build `first_bad`."""

    series: int
    first_bad: int
    size: float
    error: float
    kind: Kind


@dataclass(frozen=True)
class Verdict:
    """What is known of a series tonight. Sizes and noise are relative; `smallest` is what one night would show."""

    verdict: Answer
    change: float | None
    low: float | None
    high: float | None
    first_bad: int | None
    noise: float | None
    smallest: float | None
    history_points: int
    policy: str
    reason: str
