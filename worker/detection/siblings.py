"""Finds the other series that a confirmed change may have hit: its kernel's other shapes, and the kernel elsewhere."""

from collections.abc import Container
from dataclasses import replace

import numpy as np

from tilewatch.worker.detection.candidate import Candidate, NightEvidence, is_worth, odds
from tilewatch.worker.detection.confirmation import next_launches
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.scope_state import ScopeState
from tilewatch.worker.detection.verdict import ConfirmedChange


def find_siblings(state: ScopeState, change: ConfirmedChange, taken: Container[int], policy: Policy) -> list[Candidate]:
    """Candidates for the build of a confirmed change; `taken` are the series that have a candidate already."""
    if state.evidence is None:
        return []
    builds = state.nights.builds
    age = len(builds) - int(np.searchsorted(builds, change.first_bad))
    if not 0 < age <= len(state.evidence.log_odds):
        return []
    origin = state.series[change.series].node_kernel
    shapes = [series for series in state.series.values() if series.node_kernel == origin]
    several = sum(series.level_since == change.first_bad for series in shapes) > 1
    opened: list[Candidate] = []
    for key, series in state.series.items():
        is_confirmed = series.level_since >= change.first_bad
        if series.node_kernel.kernel != origin.kernel or key in taken or is_confirmed:
            continue
        if not state.nights.measured[series.column]:
            continue
        log_odds = float(state.evidence.log_odds[age - 1, series.column])
        agrees = state.evidence.nightly.weighed[age - 1, series.column] * change.size > 0.0
        on_node = series.node_kernel == origin
        if not np.isfinite(log_odds) or not (agrees or (several and on_node)):
            continue
        candidate = state.open_candidate(key, age, 0.0)
        if not candidate.good < change.first_bad <= candidate.bad:
            continue
        candidate = _of_one_build(candidate, change.first_bad)
        candidate.size = change.size
        prior = policy.sibling_log_odds if on_node else policy.elsewhere_log_odds
        candidate.expect(prior)
        if is_worth(candidate, odds(candidate, policy), next_launches(candidate, policy), policy):
            opened.append(candidate)
    return opened


def _of_one_build(candidate: Candidate, build: int) -> Candidate:
    at = slice(build - candidate.good - 1, build - candidate.good)
    nights = candidate.nightly
    nightly = NightEvidence(nights.weighed[at], nights.precisions[at], nights.by_code[at])
    return replace(candidate, good=build - 1, bad=build, nightly=nightly)
