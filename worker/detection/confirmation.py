"""Decides which replay to run next to confirm a suspected change, and to find its build and its size."""

import math
from dataclasses import dataclass

import numpy as np

from tilewatch.worker.detection.candidate import Candidate, State, likeliest_build, odds, posterior, probability_of
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.replay_evidence import Estimate, ReplayQuestion

TELLING_DEVIATIONS = 3.3
"""A replay shows on which side of a change a build is if the change is at least this many of its standard errors."""


@dataclass(frozen=True)
class Decision:
    """The next state of a candidate, and `question`, the next replay; None if the state is final."""

    state: State
    question: ReplayQuestion | None = None


@dataclass(frozen=True)
class Ramp:
    """A change in several steps, made by the builds after `last_good` up to `first_bad`."""

    last_good: int
    first_bad: int
    estimate: Estimate


def find_ramp(candidate: Candidate, policy: Policy) -> Ramp | None:
    """Returns the builds over which a series changed in several steps; None without clear evidence of several steps."""
    by_code = candidate.nightly.by_code
    # Without the rule about code, ramps ended at builds with unchanged code (benchmarks/judge.py, seeds 2000 to 2002,
    # 2026-11-23).
    if len(candidate.builds) < 3 or by_code.max() > 0.0 or not np.isfinite(by_code).all():
        return None
    estimates = candidate.replays.estimates(candidate.launch_variance)
    pairs = sorted((head, each) for (base, head), each in estimates.items() if base == candidate.base)
    if not pairs or pairs[-1][0] != candidate.head:
        return None
    whole = pairs[-1][1]
    spent = sum(each.launches for _, each in pairs[:-1])
    half = (TELLING_DEVIATIONS * candidate.pair_deviation / max(abs(whole.size), policy.min_change)) ** 2
    # A build half-way up a ramp is as far from the level before as from the level after, however often it is replayed.
    # Fewer than twice the launches that a bisection needs are too few to tell.
    if spent < max(2.0 * math.log2(len(candidate.builds)) * half, policy.most_launches / 2):
        return None
    before, complete = candidate.base, candidate.head
    for head, each in pairs:
        if abs(each.deviations) >= 2.0:
            break
        before = head
    for head, each in reversed(pairs):
        if abs(each.size - whole.size) >= 2.0 * math.hypot(each.error, whole.error):
            break
        complete = head
    return Ramp(before, complete, whole) if before < complete else None


def next_question(candidate: Candidate, policy: Policy) -> ReplayQuestion | None:
    """Sets a candidate's next state and returns the next replay; None if the state is final."""
    decision = decide(candidate, policy)
    candidate.state = decision.state
    return decision.question


def decide(candidate: Candidate, policy: Policy) -> Decision:
    """Returns a candidate's next state and the next replay."""
    # Replays may have moved the likeliest build to one that no replay has tested.
    untested = candidate.state == "believed" and candidate.estimate is None
    decision = Decision("open" if untested else candidate.state)
    if decision.state == "open":
        decision = _decide_open(candidate, policy)
    if decision.state == "believed":
        decision = _decide_believed(candidate, policy)
    return decision


def is_believable(candidate: Candidate, policy: Policy) -> bool:
    """Returns whether a change is large enough, likely enough and located well enough to be reported."""
    estimate = candidate.estimate
    if estimate is None or candidate.state not in ("believed", "confirmed"):
        return False
    is_one_build = candidate.stuck or likeliest_build(candidate)[1] >= policy.located
    is_located = is_one_build or find_ramp(candidate, policy) is not None
    is_large = abs(estimate.deviations) >= policy.believed_deviations and abs(estimate.size) >= policy.min_change
    return is_located and is_large and _has_odds(candidate, policy)


def is_worth(candidate: Candidate, log_odds_: float, launches: int, policy: Policy) -> bool:
    """Returns whether a change is likely and recent enough to spend this number of launches on it."""
    return _worth(candidate, policy) * probability_of(log_odds_) >= launches


def could_be_worth(log_odds_: float, policy: Policy) -> bool:
    """Returns whether a change with these log-odds may be likely enough for a replay."""
    return policy.worth_launches * probability_of(log_odds_) >= policy.first_launches


def next_launches(candidate: Candidate, policy: Policy) -> int:
    """Returns the number of launches for the next replay. A smaller suspected change needs more launches."""
    estimate = candidate.estimate
    suspected = estimate.size if candidate.size is None and estimate is not None else candidate.size
    if suspected is None:
        return policy.first_launches
    size = max(abs(suspected), policy.min_change)
    # The mean of n launches shows the size at sqrt(n) size / deviation standard deviations: here sqrt(1.5).
    wanted = math.ceil(min(1.5 * (candidate.pair_deviation / size) ** 2, policy.least_launches))
    return max(wanted, policy.first_launches)


def _has_odds(candidate: Candidate, policy: Policy) -> bool:
    return odds(candidate, policy) >= policy.believed_log_odds


def _decide_believed(candidate: Candidate, policy: Policy) -> Decision:
    """Returns the next state and replay of a candidate in the state "believed"."""
    question = _locate(candidate, policy)
    if question is not None:
        return Decision("believed", question)
    launches = _launches_to_size(candidate, policy)
    if launches:
        return Decision("believed", ReplayQuestion(candidate.series, candidate.base, candidate.head, launches))
    if _has_odds(candidate, policy) or candidate.launches >= policy.most_launches:
        return Decision("confirmed")
    # The range as a whole was believed, and the one build that is left is not likely enough.
    return _decide_open(candidate, policy)


def _decide_open(candidate: Candidate, policy: Policy) -> Decision:
    """Returns the next state and replay of a candidate in the state "open"."""
    estimate = candidate.estimate
    if estimate is not None:
        is_sure = abs(estimate.deviations) >= policy.believed_deviations
        is_large = is_sure and abs(estimate.size) >= policy.min_change
        if is_large and _has_odds(candidate, policy):
            return Decision("believed")
    if (candidate.base, candidate.head) in candidate.unanswered:
        return Decision("undecided")
    launches = next_launches(candidate, policy)
    is_first_probe = candidate.size is None and estimate is None
    if not is_first_probe and not is_worth(candidate, odds(candidate, policy), launches, policy):
        return Decision("refuted")
    if candidate.launches >= policy.most_launches:
        return Decision("undecided")
    return Decision("open", ReplayQuestion(candidate.series, candidate.base, candidate.head, launches))


def _launches_to_size(candidate: Candidate, policy: Policy) -> int:
    estimate = candidate.estimate
    assert estimate is not None, "a candidate is believed on replays"
    if (candidate.base, candidate.head) in candidate.unanswered:
        return 0
    wanted = math.ceil(estimate.launches * (estimate.error / policy.size_error) ** 2)
    return max(0, min(policy.sizing_launches, max(wanted, policy.least_launches)) - estimate.launches)


def _locate(candidate: Candidate, policy: Policy) -> ReplayQuestion | None:
    """Returns the next replay of a bisection over a candidate's builds; None if no replay is needed or useful."""
    likely = posterior(candidate)
    estimate, differences = candidate.estimate, candidate.replays.differences
    assert estimate is not None, "a candidate is believed on replays"
    if likely.max() >= policy.located or find_ramp(candidate, policy) is not None:
        return None
    # A replay of `base` against build number i of the range shows whether the first bad build is among the first i.
    from_half = np.abs(np.cumsum(likely)[:-1] - 0.5)
    pairs = [(candidate.base, int(head)) for head in candidate.builds[:-1]]
    useless = [pair in candidate.unanswered or len(differences.get(pair, ())) >= policy.most_launches for pair in pairs]
    from_half[np.asarray(useless, dtype=bool)] = np.inf
    candidate.stuck = all(useless) or bool(candidate.unanswered)
    if all(useless) or from_half.min() > 0.5 - (1.0 - policy.located) / 4:
        return None
    middle = candidate.base + 1 + int(np.argmin(from_half))
    size = max(abs(estimate.size), policy.min_change)
    wanted = math.ceil(min((TELLING_DEVIATIONS * candidate.pair_deviation / size) ** 2, policy.least_launches))
    return ReplayQuestion(candidate.series, candidate.base, middle, max(wanted, 3))


def _worth(candidate: Candidate, policy: Policy) -> float:
    """Returns the value of reporting a change, as a number of launches. Recent changes have more value."""
    if candidate.fresh_since is None:
        return policy.worth_launches
    fresh = float(posterior(candidate)[candidate.builds >= candidate.fresh_since].sum())
    return fresh * policy.worth_launches + (1.0 - fresh) * policy.late_worth_launches
