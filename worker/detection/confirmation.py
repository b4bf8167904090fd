"""Decides which replay to ask for next about a candidate: is the change real, which build made it, how large is it?

A candidate goes from "open" to "believed" and "confirmed", or to "refuted" or "undecided".
"""

import math

import numpy as np

from tilewatch.worker.detection.candidate import (
    TELLING_DEVIATIONS,
    Candidate,
    find_ramp,
    is_worth,
    likeliest_build,
    odds,
    posterior,
)
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.replay_evidence import ReplayQuestion


def next_question(candidate: Candidate, policy: Policy) -> ReplayQuestion | None:
    """Returns the replay to ask for next, and sets the candidate's state. Returns None when nothing is left to ask; the
    state is then the result."""
    if candidate.state == "believed" and candidate.estimate is None:
        candidate.state = "open"  # replays moved the likeliest build to one that no replay has tested
    if candidate.state == "open":
        launches = _launches_to_believe(candidate, policy)
        if launches:
            return ReplayQuestion(candidate.series, candidate.base, candidate.head, launches)
    if candidate.state == "believed":
        question = _locate(candidate, policy)
        if question is not None:
            return question
        launches = _launches_to_size(candidate, policy)
        if launches:
            return ReplayQuestion(candidate.series, candidate.base, candidate.head, launches)
        candidate.state = "confirmed"
        if not _has_odds(candidate, policy) and candidate.launches < policy.most_launches:
            # The range as a whole was believed, and the one build that is left is not likely enough.
            candidate.state = "open"
            return next_question(candidate, policy)
    return None


def is_believable(candidate: Candidate, policy: Policy) -> bool:
    """Returns whether a change is located, large and likely enough to be reported. More launches may have shown it to
    be smaller than it looked when it was believed."""
    estimate = candidate.estimate
    if estimate is None or candidate.state not in ("believed", "confirmed"):
        return False
    is_one_build = candidate.stuck or likeliest_build(candidate)[1] >= policy.located
    is_located = is_one_build or find_ramp(candidate, policy) is not None
    is_large = abs(estimate.deviations) >= policy.believed_deviations and abs(estimate.size) >= policy.min_change
    return is_located and is_large and _has_odds(candidate, policy)


def next_launches(candidate: Candidate, policy: Policy) -> int:
    """Returns how many launches to ask for next: few enough to end early, enough to see a change of the suspected size.

    If one launch of both builds has deviation d, n launches show the size at sqrt(n) size / d deviations. n is chosen
    so that this is sqrt(1.5).
    """
    estimate = candidate.estimate
    if candidate.size is None and estimate is None:
        return policy.first_launches
    suspected = estimate.size if candidate.size is None and estimate is not None else candidate.size
    size = max(abs(suspected or 0.0), policy.min_change)
    wanted = math.ceil(min(1.5 * (candidate.pair_deviation / size) ** 2, policy.least_launches))
    return max(wanted, policy.first_launches)


def _has_odds(candidate: Candidate, policy: Policy) -> bool:
    return odds(candidate, policy) >= policy.believed_log_odds


def _launches_to_believe(candidate: Candidate, policy: Policy) -> int:
    """Returns how many more launches an open candidate needs. Returns 0 if it is no longer open, and sets its state."""
    estimate = candidate.estimate
    if estimate is not None:
        is_sure = abs(estimate.deviations) >= policy.believed_deviations
        is_large = is_sure and abs(estimate.size) >= policy.min_change
        if is_large and _has_odds(candidate, policy):
            candidate.state = "believed"
            return 0
    if (candidate.base, candidate.head) in candidate.unanswered:
        candidate.state = "undecided"
        return 0
    launches = next_launches(candidate, policy)
    is_first_probe = candidate.size is None and estimate is None
    if not is_first_probe and not is_worth(candidate, odds(candidate, policy), launches, policy):
        candidate.state = "refuted"
        return 0
    if candidate.launches >= policy.most_launches:
        candidate.state = "undecided"
        return 0
    return launches


def _launches_to_size(candidate: Candidate, policy: Policy) -> int:
    estimate = candidate.estimate
    assert estimate is not None, "a candidate is believed on replays"
    if (candidate.base, candidate.head) in candidate.unanswered:
        return 0
    wanted = math.ceil(estimate.launches * (estimate.error / policy.size_error) ** 2)
    return max(0, min(policy.sizing_launches, max(wanted, policy.least_launches)) - estimate.launches)


def _locate(candidate: Candidate, policy: Policy) -> ReplayQuestion | None:
    """Returns the replay that halves the range: half of the probability lies before its build. Returns None if one
    build has nearly all of the probability, if several made the change together, or if no replay is left to try."""
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
