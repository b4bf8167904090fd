"""Bounds the chance that a config which was not tried beats a sweep's winner.

The configs outside the short list are tried in a random order, without replacement. So the fastest of them is among
those not tried with the chance u = untried / rest, whatever the times are. Nothing better is known without other full
looks. With them, the chance q that a space's fastest config beats its short list by x is at most (k + 1) / (n + 1), if
k of n full looks found one: looks count as exchangeable (Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random
World", 2005, section 2.2). While no draw has beaten the list by x, Bayes' rule then gives q u / (1 - q (1 - u)).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

TIE = 0.003  # largest lead over the short list that is a tie, so that one of the list's winners is tried every night


@dataclass(frozen=True)
class Certificate:
    """What is known about the configs of a space that were not tried in a state, which began with `first_run`.

    `space` counts all configs, `tried` the short list and the draws. `full_look` is the day on which none was left
    untried, None before. `ahead` is the largest share by which a draw beat the short list in a run, `ahead_before` that
    of earlier runs. `looks` counts the full looks of all series that the bounds use. A `chance_1` of 0.05 says: a
    config that was not tried is better by 1 % with a chance of at most 5 %; `chance_3` says the same of 3 %.
    """

    space: int
    tried: int
    untried: int
    first_run: int
    full_look: str | None
    ahead: float
    ahead_before: float
    looks: int
    chance_1: float
    chance_3: float


def find_lead(times_us: Mapping[int, float | None], listed: Collection[int], ahead_before: float) -> float:
    """Returns the share by which the fastest tried config beats the short list's; 0 if it is in the list. A night that
    tries only the list's winners again says nothing once a draw was ahead of them."""
    timed = {config: time_us for config, time_us in times_us.items() if time_us is not None}
    of_list = [timed[config] for config in listed if config in timed]
    is_known = ahead_before <= TIE or times_us.keys() >= set(listed)
    return 1 - min(timed.values()) / min(of_list) if of_list and is_known else 0.0


def bound_chance(better_by: float, untried: float, ahead: float, looks: Sequence[float]) -> float:
    """Returns the largest chance that a config which was not tried is better by a share. `untried` is the share of the
    configs outside the short list that were not tried."""
    beaten = (1 + sum(each > better_by for each in looks)) / (1 + len(looks))
    if ahead > better_by:
        return untried
    return min(untried, beaten * untried / (1 - beaten * (1 - untried))) if untried else 0.0
