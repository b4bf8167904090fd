"""Bounds the probability that a config which was not tried is faster than a sweep's winner.

The configs outside the short list are tried in random order, without replacement. So the fastest of them is untried
with probability u, the untried share, whatever the times are. A full look is a search that tried all configs. If k of n
earlier full looks found a config that beats the short list by x, the probability q that this search will find one is at
most (k + 1) / (n + 1), as looks are exchangeable (Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World",
2005, section 2.2). While no tried config does, an untried one does with probability q u / (1 - q (1 - u)) (Bayes)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

TIE = 0.003  # largest lead over the short list that is a tie, so that one of the list's winners is tried every night


@dataclass(frozen=True)
class Certificate:
    """Bounds how likely an untried config is faster than a run's winner. The configs counted as tried are those of all
    runs with the same machine code, compiler and driver. `first_run` is the id of the first of these runs.

    `space` is the number of all configs: `tried` plus `untried`. `full_look` is the first day on which no config was
    untried, or None. `ahead` is the largest share by which a config beat the short list, `ahead_before` the largest
    before the last run. `looks` is the number of series with a full look. The probability that an untried config is
    over 1 % faster than the winner is at most `chance_1`. For over 3 %, it is at most `chance_3`."""

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
    """Returns the share by which the fastest config is faster than the fastest of the short list; 0 if both are the
    same config. Also returns 0 if tonight did not time the whole list and a config outside it led in an earlier run."""
    timed = {config: time_us for config, time_us in times_us.items() if time_us is not None}
    of_list = [timed[config] for config in listed if config in timed]
    is_known = ahead_before <= TIE or times_us.keys() >= set(listed)
    return 1 - min(timed.values()) / min(of_list) if of_list and is_known else 0.0


def bound_chance(better_by: float, untried: float, ahead: float, looks: Sequence[float]) -> float:
    """Returns an upper bound of the probability that an untried config beats the winner by more than the share
    `better_by`. `untried` is the untried share outside the short list. `looks` has the lead of each full look."""
    beaten = (1 + sum(each > better_by for each in looks)) / (1 + len(looks))
    if ahead > better_by:
        return untried
    return min(untried, beaten * untried / (1 - beaten * (1 - untried))) if untried else 0.0
