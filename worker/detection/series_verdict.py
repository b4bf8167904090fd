"""What is known of a series tonight, as a verdict: after its newest night and the replays that were given so far."""

import numpy as np

from tilewatch.worker.detection.candidate import Candidate, first_bad
from tilewatch.worker.detection.series_state import SeriesState
from tilewatch.worker.detection.verdict import Alert, Answer, Verdict


def verdict(all_known: SeriesState, series: int, case: Candidate | None) -> Verdict:
    """`case` is the suspicion that is not settled, if there is one."""
    known, policy = all_known.series[series], all_known.policy
    column, nights = known.column, all_known.nights
    here = nights.times[int(nights.starts[column]) :, column] if nights.builds else np.empty(0)
    seen = max(int(np.isfinite(here).sum()) - 1, 0)
    found = all_known.evidence
    if found is None or not np.isfinite(found.nightly.precisions[:, column]).any():
        needed = f"{seen} of the {policy.min_history} earlier nights needed on this machine"
        reason = f"{needed} and toolchain"
        return Verdict("undecided", None, None, None, None, None, None, seen, policy.name, reason)
    noise = float(all_known.noise[column])
    smallest = max(3.0 * noise, policy.min_change)
    if known.told is not None:
        return _confirmed(known.told, noise, smallest, seen, policy.name)
    build = nights.builds[-1] if case is None else first_bad(case)[0]
    age = max(1, len(nights.builds) - int(np.searchsorted(nights.builds, build)))
    row = min(age, len(found.log_odds)) - 1  # replays may speak of a build that nights are not asked about any more
    change, error = nights.size(column, age, known.known_since), found.nightly.precisions[row, column] ** -0.5
    time, baseline = nights.moves(column, age)
    low, high, change = (float(np.expm1(each)) for each in (change - 1.96 * error, change + 1.96 * error, change))
    said = f"{change:+.1%} against {noise:.2%} noise of a night"
    both = f"{said} (the time moved {time:+.1%}, the baseline {baseline:+.1%})"
    if case is None:
        return Verdict("unchanged", change, low, high, None, noise, smallest, seen, policy.name, both)
    reason = f"looks like a change, which no replay has confirmed: {both}"
    return Verdict("undecided", change, low, high, build, noise, smallest, seen, policy.name, reason)


def _confirmed(told: Alert, noise: float, smallest: float, seen: int, policy: str) -> Verdict:
    low, high = told.size - 1.96 * told.error, told.size + 1.96 * told.error
    answer: Answer = "regression" if told.size > 0 else "improvement"
    reason = f"replays of old and new code differ by {told.size:+.1%} ({low:+.1%} to {high:+.1%})"
    return Verdict(answer, told.size, low, high, told.first_bad, noise, smallest, seen, policy, reason)
