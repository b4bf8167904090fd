"""Bounds the probability that an untried config is faster than a sweep's winner.

Configs outside the short list are tried in random order, so the fastest of them is untried with probability u, the
share of untried configs. If k of n full looks (earlier searches of all configs) beat the short list by x, this search
will do so with a probability q of at most (k + 1) / (n + 1) (Vovk, Gammerman and Shafer, "Algorithmic Learning in a
Random World", 2005, section 2.2). As long as no tried config beats the short list, an untried config does so with
probability q u / (1 - q (1 - u)) (Bayes)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

TIE = 0.003  # largest lead over the short list that is a tie, so that one of the list's winners is tried every night


@dataclass(frozen=True)
class Certificate:
    """An upper bound of the probability that an untried config is faster than a run's winner."""

    space: int  # the number of all configs
    tried: int  # by all runs with the same machine code, compiler and driver
    untried: int
    first_run: int  # the id of the first of these runs
    full_look: str | None  # the first day on which no config was untried
    ahead: float  # the largest share by which a config beat the short list
    ahead_before: float  # the largest such share before the last run
    looks: int  # the number of series with a full look
    chance_1: float  # the largest probability that an untried config is over 1 % faster
    chance_3: float  # the largest probability that an untried config is over 3 % faster


def find_lead(times_us: Mapping[int, float | None], listed: Collection[int], ahead_before: float) -> float:
    """Returns how much faster the best config is than the best of the short list, as a share; 0 if unknown."""
    timed = {config: time_us for config, time_us in times_us.items() if time_us is not None}
    of_list = [timed[config] for config in listed if config in timed]
    # Unknown: tonight did not time the whole list, and a config outside it led in an earlier run.
    is_known = ahead_before <= TIE or times_us.keys() >= set(listed)
    return 1 - min(timed.values()) / min(of_list) if of_list and is_known else 0.0


def bound_chance(better_by: float, untried: float, ahead: float, looks: Sequence[float]) -> float:
    """Returns an upper bound of the probability that an untried config beats the winner by more than `better_by`."""
    beaten = (1 + sum(each > better_by for each in looks)) / (1 + len(looks))  # the q of this module's docstring
    if ahead > better_by:
        return untried
    return min(untried, beaten * untried / (1 - beaten * (1 - untried))) if untried else 0.0
