"""Is a suspected change real, how large is it, and which build made it? Replays in, the next question or an answer out.

Pure: what replays said is in heard.py, how likely it makes a change in case.py; who runs replays, and what they cost in
a night, is known elsewhere.
"""

import numpy as np

from tilewatch.worker.detection.candidate import Candidate, first_bad, odds, posterior, worth
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.replay_evidence import Ask


def step(case: Candidate, policy: Policy) -> Ask | None:
    """The next replay of a case, or None when it came to its end (its state says which)."""
    if case.state == "open":
        launches = _confirm(case, policy)
        if launches:
            return Ask(case.series, case.good, case.bad, launches)
    if case.state == "believed":
        ask = _locate(case, policy)
        if ask is not None:
            return ask
        launches = _to_size(case, policy)
        if launches:
            return Ask(case.series, case.good, case.bad, launches)
        case.state = "confirmed"
        if odds(case, policy) < (case.enough or policy.believed_log_odds) and case.launches < policy.most_launches:
            # It was believed for many builds together, and the one that is left has not earned it.
            case.state = "open"
            return step(case, policy)
    return None


def believable(case: Candidate, policy: Policy) -> bool:
    """Whether what was located and sized is still a change worth telling: with more launches some shrink to nothing."""
    found = case.estimate
    if found is None or case.state not in ("believed", "confirmed"):
        return False
    least = case.least_deviations or policy.told_deviations
    likely = case.stuck or first_bad(case)[1] >= policy.told_located
    sure = odds(case, policy) >= (case.enough or policy.believed_log_odds)
    return likely and sure and abs(found.deviations) >= least and abs(found.size) >= policy.told_change


def next_launches(case: Candidate, policy: Policy) -> int:
    """Few enough to end early, and enough to tell something of a change of the suspected size."""
    found = case.estimate
    if case.size is None and found is None:
        return policy.check_launches
    suspected = found.size if case.size is None and found is not None else case.size
    size = abs(suspected or 0.0)
    wanted = int(np.ceil(1.5 * (case.pair_deviation / max(size, policy.min_change)) ** 2))
    growing = case.launches // policy.step_share  # or a night's rounds end before its launches do
    return min(max(wanted, growing, policy.first_launches), policy.step_launches)


def _confirm(case: Candidate, policy: Policy) -> int:
    """How many more launches are wanted; 0 when the case left the state "open"."""
    found, so_far = case.estimate, odds(case, policy)
    if found is not None:
        few = 1.0 + policy.few_launches / found.launches
        least = case.least_deviations or policy.believed_deviations
        enough = case.enough or policy.believed_log_odds
        sure = abs(found.deviations) >= least * few and abs(found.size) >= policy.min_change
        if sure and so_far >= enough:
            case.state = "believed"
            return 0
        if abs(found.size) + 2.0 * found.error < policy.min_change:
            case.state = "refuted"
            return 0
    if (case.good, case.bad) in case.silent:
        case.state = "undecided"
        return 0
    launches = next_launches(case, policy)
    if not worth([case], so_far, launches, policy) and not (case.size is None and found is None):
        case.state = "refuted"
        return 0
    if case.launches >= policy.most_launches:
        case.state = "undecided"
        return 0
    return launches


def _to_size(case: Candidate, policy: Policy) -> int:
    found = case.estimate
    assert found is not None, "a case is believed on replays"
    if (case.good, case.bad) in case.silent:
        return 0
    wanted = int(np.ceil(found.launches * (found.error / policy.size_error) ** 2))
    return max(0, min(policy.sizing_launches, max(wanted, policy.told_launches)) - found.launches)


def _locate(case: Candidate, policy: Policy) -> Ask | None:
    """Replay the build that splits what is left in two equal halves, until one build has nearly all."""
    likely = posterior(case)
    found = case.estimate
    assert found is not None, "a case is believed on replays"
    tried = {bad for good, bad in case.heard.differences if good == case.good and bad != case.bad}
    if likely.max() >= policy.located or len(tried) >= policy.bisections:
        return None
    # Replaying build number i of the range beside the good one tells whether the first bad one is among the first i.
    below = np.abs(np.cumsum(likely)[:-1] - 0.5)
    asked = [len(case.heard.differences.get((case.good, bad), ())) for bad in case.builds[:-1]]
    useless = [(case.good, int(bad)) in case.silent for bad in case.builds[:-1]]
    below[np.asarray(useless, dtype=bool) | (np.asarray(asked) >= policy.most_launches)] = np.inf
    case.stuck = bool(np.isinf(below).all()) or bool(case.silent)
    if np.isinf(below).all() or below.min() > 0.5 - (1.0 - policy.located) / 4:
        return None
    middle = case.good + 1 + int(np.argmin(below))
    launches = int(np.ceil((3.3 * case.pair_deviation / found.size) ** 2))
    return Ask(case.series, case.good, middle, min(max(launches, 3), policy.step_launches))
