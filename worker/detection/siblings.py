"""Which other series a confirmed change is asked about: its kernel's other shapes, and the same kernel elsewhere."""

from collections.abc import Container
from dataclasses import replace

import numpy as np

from tilewatch.worker.detection.candidate import Candidate, Nightly, odds, worth
from tilewatch.worker.detection.confirmation import next_launches
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.series_state import SeriesState
from tilewatch.worker.detection.verdict import Alert


def siblings(all_known: SeriesState, alert: Alert, taken: Container[int], policy: Policy) -> list[Candidate]:
    """A commit that changed a kernel changes its other shapes and GPUs too. `taken` are asked about already."""
    if all_known.evidence is None:
        return []
    built = all_known.nights.builds
    age = len(built) - int(np.searchsorted(built, alert.first_bad))
    if not 0 < age <= len(all_known.evidence.log_odds):
        return []
    place = all_known.series[alert.series].place
    on_node = [known for known in all_known.series.values() if known.place == place]
    several = sum(known.known_since == alert.first_bad for known in on_node) > 1
    opened: list[Candidate] = []
    for key in all_known.keys:
        known = all_known.series[key]
        asked = key in taken or known.known_since >= alert.first_bad or not all_known.nights.measured[known.column]
        if known.place.kernel != place.kernel or asked:
            continue
        said = float(all_known.evidence.log_odds[age - 1, known.column])
        agrees = all_known.evidence.nightly.weighed[age - 1, known.column] * alert.size > 0.0
        if not np.isfinite(said) or not (agrees or (several and known.place == place)):
            continue
        case = _only(all_known.case(key, age, 0.0), alert.first_bad)
        case.size = alert.size
        if known.place != place:
            case.prior, case.least_deviations = policy.elsewhere_log_odds, policy.sibling_deviations
        elif several:
            case.prior, case.least_deviations = policy.several_log_odds, policy.several_deviations
            case.enough = policy.several_believed_log_odds
        else:
            case.prior, case.least_deviations = policy.sibling_log_odds, policy.sibling_deviations
        if worth([case], odds(case, policy), next_launches(case, policy), policy):
            opened.append(case)
    return opened


def _only(case: Candidate, build: int) -> Candidate:
    """The same suspicion, of one build alone."""
    at = build - case.good - 1
    nightly = Nightly(case.nightly.weighed[at : at + 1], case.nightly.precisions[at : at + 1])
    return replace(case, good=build - 1, bad=build, nightly=nightly)
