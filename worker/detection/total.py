"""Gives the verdict on a total (a weighted sum of times) from the verdicts on its series."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import hypot, inf, isfinite, isinf

from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.replay_evidence import find_interval
from tilewatch.worker.detection.verdict import VerdictName

MOST_NAMED = 3
"""The number of series that the reason of a total's verdict names, the most changed first. Its page lists all."""

TO_STANDARD_ERROR = 2 * 1.96
"""A 95 % interval is this many standard errors wide."""


@dataclass(frozen=True)
class JudgedPart:
    """One series of a total, with its weighted time and its verdict. Numbers are None if the history is too short."""

    name: str
    time_us: float
    verdict: VerdictName
    change: float | None
    low: float | None
    high: float | None
    noise: float | None
    history_points: int


@dataclass(frozen=True)
class TotalVerdict:
    """The verdict on a total. `largest` is the index of the series with the largest effect; None without a change."""

    verdict: VerdictName
    change: float | None
    low: float | None
    high: float | None
    noise: float | None
    smallest: float | None
    history_points: int
    reason: str
    largest: int | None


def judge_total(parts: Sequence[JudgedPart], policy: Policy) -> TotalVerdict:
    """Returns the verdict on a total, from the weighted sum of its series' changes."""
    moved = {
        number: each.change
        for number, each in enumerate(parts)
        if each.change is not None and each.verdict in ("regression", "improvement")
    }
    before_us = [each.time_us / (1 + moved.get(number, 0.0)) for number, each in enumerate(parts)]
    shares = [time_us / sum(before_us) for time_us in before_us]
    moves = {number: shares[number] * change for number, change in moved.items()}
    size = sum(moves.values())
    low, high = find_interval(size, hypot(*(shares[number] * _error(parts[number]) for number in moves)))
    open_sizes = [shares[number] * _most(each) for number, each in enumerate(parts) if each.verdict == "undecided"]
    open_size, known = sum(open_sizes), sum(filter(isfinite, open_sizes))
    noise = _noise(parts, shares)
    numbers = (
        noise,
        None if noise is None else max(3 * noise, policy.min_change),
        min(p.history_points for p in parts),
    )
    named = _named(parts, moves)
    is_change = abs(size) >= policy.min_change and (low > 0 or high < 0)
    added = f"the changes of its parts add up to {size:+.1%} ({low:+.1%} to {high:+.1%})"
    if is_change and abs(size) > known:  # undecided series with an interval cannot undo it
        name: VerdictName = "regression" if size > 0 else "improvement"
        reason = f"{added}: {named}"
        largest = max(moves, key=lambda number: abs(moves[number]))
        return TotalVerdict(name, size, low, high, *numbers, reason, largest)
    if open_size >= policy.min_change:
        return TotalVerdict("undecided", *_night(parts, shares), *numbers, _open(parts, open_size), None)
    small = f"its parts together changed it by less than {policy.min_change:.1%}"
    reason = ": ".join(filter(None, (small if abs(size) < policy.min_change else f"{added}, maybe to none", named)))
    return TotalVerdict("unchanged", *_night(parts, shares), *numbers, reason, None)


def _error(part: JudgedPart) -> float:
    """Returns the standard error of a series' change; 0 if the change has no interval."""
    return 0.0 if part.low is None or part.high is None else (part.high - part.low) / TO_STANDARD_ERROR


def _most(part: JudgedPart) -> float:
    return inf if part.low is None or part.high is None else max(-part.low, part.high)


def _noise(parts: Sequence[JudgedPart], shares: Sequence[float]) -> float | None:
    """Returns the relative standard deviation of a total in one night; None if a series' noise is unknown."""
    noises = [share * each.noise for share, each in zip(shares, parts, strict=True) if each.noise is not None]
    return hypot(*noises) if len(noises) == len(parts) else None  # as if the series were independent


def _night(parts: Sequence[JudgedPart], shares: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """Returns (change, low, high) of a total tonight, as shares; all None if the change of a series is unknown."""
    changes = [share * each.change for share, each in zip(shares, parts, strict=True) if each.change is not None]
    if len(changes) < len(parts):
        return None, None, None
    error = hypot(*(share * _error(each) for share, each in zip(shares, parts, strict=True)))
    return sum(changes), *find_interval(sum(changes), error)


def _named(parts: Sequence[JudgedPart], moves: Mapping[int, float]) -> str:
    order = sorted(moves, key=lambda n: -abs(moves[n]))
    named = [f"{parts[n].name} by {parts[n].change:+.1%}, {moves[n]:+.2%} of the total" for n in order[:MOST_NAMED]]
    return "; ".join([*named, f"{len(order) - MOST_NAMED} more"] if len(order) > MOST_NAMED else named)


def _open(parts: Sequence[JudgedPart], open_size: float) -> str:
    undecided = [each for each in parts if each.verdict == "undecided"]
    share = sum(each.time_us for each in undecided) / sum(each.time_us for each in parts)
    may = "" if isinf(open_size) else f" and may have changed it by up to {open_size:.1%}"
    first = undecided[0].name + (f" and {len(undecided) - 1} more" if len(undecided) > 1 else "")
    return f"{len(undecided)} of its {len(parts)} parts are undecided, {share:.0%} of its time{may}: {first}"
