"""Is a suspected change real, how large is it, and which build made it? Replays in, the next question or an answer out.

A replay times two builds of one series interleaved on one GPU in the same minutes, so that whatever the node does
happens to both. Pure: who runs replays, and what they cost in a night, is known elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from worker.detect import Floats, Policy

State = Literal["open", "believed", "confirmed", "refuted", "undecided"]

PRIOR_LAUNCHES = 6
"""What the launches of past nights weigh in a replay's noise, in replay launches."""


@dataclass(frozen=True)
class Ask:
    """Replay build `good` beside build `bad`: `launches` fresh processes, one median of each per launch."""

    series: int
    good: int
    bad: int
    launches: int


@dataclass(frozen=True)
class Replayed:
    series: int
    good: int
    bad: int
    good_us: tuple[float, ...]
    bad_us: tuple[float, ...]


@dataclass(frozen=True)
class Estimate:
    """How much slower the bad build is than the good one (relative), its standard error, and from how many launches."""

    size: float
    error: float
    launches: int

    @property
    def deviations(self) -> float:
        return self.size / self.error


@dataclass
class Case:
    """A suspicion on its way to an answer: somewhere in (good, bad] a build changed the series by about `size`.

    `log_weights` says how well the nights fit each build of that range as the first bad one. A case without a `size`
    is a check: nothing was seen, but something may have hidden behind a new machine or toolchain.
    """

    series: int
    good: int
    bad: int
    size: float | None
    log_weights: Floats
    launch_variance: float
    group: int | None = None
    state: State = "open"
    differences: dict[tuple[int, int], list[float]] = field(default_factory=dict)

    @property
    def estimate(self) -> Estimate | None:
        return self.between(self.good, self.bad)

    def between(self, good: int, bad: int) -> Estimate | None:
        differences = self.differences.get((good, bad))
        return estimate(differences, self.launch_variance) if differences else None

    def hear(self, replayed: Replayed) -> None:
        pairs = zip(replayed.good_us, replayed.bad_us, strict=False)
        told = [float(np.log(bad / good)) for good, bad in pairs if 0.0 < good < np.inf and 0.0 < bad < np.inf]
        self.differences.setdefault((replayed.good, replayed.bad), []).extend(told)


def estimate(differences: Sequence[float], launch_variance: float) -> Estimate:
    """A mean that forgives wild launches; its error knows past nights, because four launches know their own badly."""
    values = np.asarray(differences)
    count = len(values)
    prior = 2.0 * launch_variance + 1e-8  # two builds; and 0.01 % for launches that repeat to the last digit
    centre = float(np.median(values))
    spread = float(((values - centre) ** 2).sum())
    variance = (PRIOR_LAUNCHES * prior + spread) / (PRIOR_LAUNCHES + count - 1)
    reach = 2.0 * np.sqrt(variance)
    for _ in range(5):
        centre += float(np.clip(values - centre, -reach, reach).mean())
    return Estimate(centre, float(np.sqrt(variance / count)), count)


def log_odds(found: Estimate, suspected: float) -> float:
    """For a change of 0.6 of the suspected size up to all of it, against none: suspicions overstate."""
    low, high = sorted((0.6 * suspected, suspected))
    size = float(np.clip(found.size, low, high))
    return size * (2 * found.size - size) / (2 * found.error**2)


def step(case: Case, policy: Policy) -> Ask | None:
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
    return None


def believe_together(cases: Sequence[Case], policy: Policy) -> None:
    """A change of a whole kernel is believed on the replays of all its shapes, of which none alone need be enough.

    Not on those of one: without the surest of them the others must still say so.
    """
    found = [(case, each) for case in cases if case.state in ("open", "believed") and (each := case.estimate)]
    if len(found) < 2 or not any(case.state == "open" for case, _ in found):
        return
    ordered = sorted(found, key=lambda pair: abs(pair[1].deviations))
    if abs(_pooled(ordered)) < policy.believed_deviations or abs(_pooled(ordered[:-1])) < 3.0:
        return
    size = float(np.average([e.size for _, e in found], weights=[e.error**-2 for _, e in found]))
    for case, each in found:
        own = each.size / size > 0.4 and abs(each.deviations) > 1.3
        if case.state == "open" and own and abs(size) >= policy.min_change:
            case.state = "believed"


def first_bad(case: Case) -> tuple[int, float]:
    """The likeliest first bad build and its probability."""
    likely = _posterior(case)
    best = int(np.argmax(likely))
    return case.good + 1 + best, float(likely[best])


def _confirm(case: Case, policy: Policy) -> int:
    """How many more launches are wanted; 0 when the case left the state "open"."""
    found = case.estimate
    if found is None:
        return policy.first_launches
    suspected = case.size if case.size is not None else found.size
    agrees = found.size * suspected > 0
    asked = policy.believed_deviations * (1.0 + policy.few_launches / found.launches)
    if agrees and abs(found.deviations) >= asked and abs(found.size) >= policy.min_change:
        case.state = "believed"
        return 0
    enough = policy.refuted_log_odds + policy.growing_log_odds * (found.launches - policy.first_launches)
    hopeless = log_odds(found, suspected) <= enough
    if case.size is None:
        hopeless = abs(found.deviations) < 2.0 or abs(found.size) < policy.min_change / 2
    if hopeless:
        case.state = "refuted"
        return 0
    if found.launches >= policy.most_launches:
        case.state = "undecided"
        return 0
    return min(policy.most_launches - found.launches, max(policy.first_launches, found.launches // 2))


def _to_size(case: Case, policy: Policy) -> int:
    found = case.estimate
    assert found is not None, "a case is believed on replays"
    if found.error <= policy.size_error or found.launches >= policy.most_launches:
        return 0
    wanted = int(np.ceil(found.launches * (found.error / policy.size_error) ** 2))
    return min(policy.most_launches, wanted) - found.launches


def _locate(case: Case, policy: Policy) -> Ask | None:
    """Replay the build that splits what is left in two equal halves, until one build has nearly all."""
    likely = _posterior(case)
    tried = {bad for good, bad in case.differences if good == case.good and bad != case.bad}
    if likely.max() >= policy.located or len(tried) >= policy.bisections:
        return None
    below = np.cumsum(likely)[:-1]
    middle = case.good + 1 + int(np.argmin(np.abs(below - 0.5)))
    found, whole = case.between(case.good, middle), case.estimate
    assert whole is not None, "a case is believed on replays"
    if found is not None and found.launches >= policy.most_launches:
        return None
    deviation = whole.error * np.sqrt(whole.launches)
    launches = int(np.ceil((3.3 * deviation / whole.size) ** 2))
    return Ask(case.series, case.good, middle, min(max(launches, 3), policy.most_launches // 2))


def _posterior(case: Case) -> Floats:
    weights = case.log_weights.copy()
    whole = case.estimate
    builds = np.arange(case.good + 1, case.bad + 1)
    for good, bad in case.differences:
        found = case.between(good, bad)
        if bad == case.bad or whole is None or found is None:
            continue
        variance = found.error**2 + whole.error**2
        expected = np.where(builds <= bad, whole.size, 0.0)
        weights -= (found.size - expected) ** 2 / (2 * variance)
    likely = np.exp(weights - weights.max())
    return np.asarray(likely / likely.sum())


def _pooled(found: Sequence[tuple[Case, Estimate]]) -> float:
    return float(sum(each.deviations for _, each in found) / np.sqrt(len(found)))
