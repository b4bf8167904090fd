"""Gives the verdict on a series after its newest night and its replays so far."""

import numpy as np

from tilewatch.worker.detection.candidate import Candidate, likeliest_build
from tilewatch.worker.detection.replay_evidence import find_interval
from tilewatch.worker.detection.scope_state import ScopeState
from tilewatch.worker.detection.verdict import ConfirmedChange, SeriesVerdict

MOST_LOG_CHANGE = 700.0
"""The largest logarithm of a change that is used: exp of a larger one overflows (found by Hypothesis, 2026-11-22)."""


def give_verdict(state: ScopeState, key: int, candidate: Candidate | None) -> SeriesVerdict:
    """Returns the verdict on a series. A suspected change that no replay has confirmed is "undecided"."""
    series, policy, nights, evidence = state.series[key], state.policy, state.nights, state.evidence
    column = series.column
    here = nights.times[int(nights.starts[column]) :, column] if nights.builds else np.empty(0)
    history = max(int(np.isfinite(here).sum()) - 1, 0)
    if evidence is None or not np.isfinite(evidence.nightly.precisions[:, column]).any():
        reason = f"{history} of the {policy.min_history} earlier nights needed on this machine and toolchain"
        return SeriesVerdict("undecided", None, None, None, None, None, None, history, policy.name, reason)
    noise = float(state.noise[column])
    smallest = max(3.0 * noise, policy.min_change)
    if series.confirmed is not None:
        return _of_confirmed(series.confirmed, noise, smallest, history, policy.name)
    build = nights.builds[-1] if candidate is None else likeliest_build(candidate)[0]
    age = len(nights.builds) - int(np.searchsorted(nights.builds, build))
    row = min(age, len(evidence.log_odds)) - 1  # replays may name a build older than the nights that are searched
    precisions = evidence.nightly.precisions[:, column]
    precision = precisions[row] if np.isfinite(precisions[row]) else np.nanmin(precisions)  # too short a history there
    change, error = nights.size(column, age, series.history_since), precision**-0.5
    logarithms = (*find_interval(change, error), change, *nights.moves(column, age, series.history_since))
    low, high, change, time, baseline = np.expm1(np.minimum(logarithms, MOST_LOG_CHANGE)).tolist()
    moves = f"(the time moved {time:+.1%}, the baseline {baseline:+.1%})"
    reason = f"{change:+.1%} against {noise:.2%} noise of a night {moves}"
    if candidate is None:
        return SeriesVerdict("unchanged", change, low, high, None, noise, smallest, history, policy.name, reason)
    reason = f"looks like a change, which no replay has confirmed: {reason}"
    return SeriesVerdict("undecided", change, low, high, build, noise, smallest, history, policy.name, reason)


def _of_confirmed(
    change: ConfirmedChange, noise: float, smallest: float, history: int, policy_name: str
) -> SeriesVerdict:
    low, high = change.interval
    reason = f"replays of old and new code differ by {change.size:+.1%} ({low:+.1%} to {high:+.1%})"
    numbers = (change.size, low, high, change.first_bad, noise, smallest, history)
    return SeriesVerdict(change.direction, *numbers, policy_name, reason)
