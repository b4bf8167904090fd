"""Bounds the chance that a config which was not tried beats a sweep's winner.

The configs outside the short list are tried in a random order, without replacement. So the fastest of them is among
those not tried with the chance u = untried / rest, whatever the times are. Nothing better is known without other full
looks. With them, the chance q that a space's fastest config beats its short list by x is at most (k + 1) / (n + 1), if
k of n full looks found one: looks count as exchangeable (Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random
World", 2005, section 2.2). While no draw has beaten the list by x, Bayes' rule then gives q u / (1 - q (1 - u)).
`python -m benchmarks.certificates` holds both against recorded sweeps.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Certificate:
    """What is known about the configs of a space that were not tried with the winner's compiler, driver and source.

    `space` counts all configs, `tried` the short list and the draws. `full_look` is the day on which none was left
    untried, None before. `ahead` is the largest share by which a draw beat the short list. `looks` counts the full
    looks of all series that the bounds use. A `chance_1` of 0.05 says: a config that was not tried is better by 1 %
    with a chance of at most 5 %; `chance_3` says the same of 3 %.
    """

    space: int
    tried: int
    untried: int
    full_look: str | None
    ahead: float
    looks: int
    chance_1: float
    chance_3: float


def certify(
    listed: int, rest: int, tried: int, full_look: str | None, ahead: float, looks: Sequence[float]
) -> Certificate:
    """Returns the certificate of a series that has tried so many of the `rest` configs outside the short list. `looks`
    holds the share by which each full look found the short list beaten."""
    untried = max(0, rest - tried)
    chances = [bound_chance(better_by, untried / rest if rest else 0.0, ahead, looks) for better_by in (0.01, 0.03)]
    return Certificate(
        listed + rest, listed + rest - untried, untried, full_look, round(ahead, 5), len(looks), *chances
    )


def bound_chance(better_by: float, untried: float, ahead: float, looks: Sequence[float]) -> float:
    """Returns the largest chance that a config which was not tried is better by a share. `untried` is the share of the
    configs outside the short list that were not tried."""
    beaten = (1 + sum(each > better_by for each in looks)) / (1 + len(looks))
    if ahead > better_by:
        return untried
    return min(untried, beaten * untried / (1 - beaten * (1 - untried))) if untried else 0.0
