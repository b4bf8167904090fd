"""Is a suspected change real, how large is it, and which build made it? Replays in, the next question or an answer out.

A replay times two builds of one series interleaved on one GPU in the same minutes, so that whatever the node does
happens to both. Pure: who runs replays, and what they cost in a night, is known elsewhere.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from worker.detect import Floats, Policy

State = Literal["open", "believed", "confirmed", "refuted", "undecided"]
PRIOR_LAUNCHES = 6
"""What the launches of past nights weigh in a replay's noise, in replay launches."""

LEAST_NIGHTLY_LOG_ODDS = 6.0
"""How much less likely than the likeliest build the nights can make another the first bad one: replays rule out."""

WILD_NIGHT_LOG_ODDS = 3.2
"""The same for the build before and after it: one night gone wild is enough to make the wrong one of them likelier."""

SHOWN_DEVIATIONS = 2.5
"""A replay of so many may have found a change, and not one of the builds in question if it began before them."""

USUAL_SIZE = 0.02
"""How large changes usually are, for a check that has no size in mind."""


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
class Heard:
    """What replays said of one series: logarithms of bad over good, one a launch, for each pair (good, bad)."""

    differences: dict[tuple[int, int], list[float]] = field(default_factory=dict)
    _estimates: dict[tuple[int, int], Estimate] = field(default_factory=dict)
    _variance: float = 0.0

    def add(self, replayed: Replayed) -> int:
        """How many launches of it are usable."""
        times = zip(replayed.good_us, replayed.bad_us, strict=False)
        told = [math.log(bad) - math.log(good) for good, bad in times if 0.0 < good < np.inf and 0.0 < bad < np.inf]
        if told:
            self.differences.setdefault((replayed.good, replayed.bad), []).extend(told)
            self._estimates.clear()
        return len(told)

    def estimates(self, launch_variance: float) -> dict[tuple[int, int], Estimate]:
        """Of each pair, all with one variance: that of past nights, and of all launches heard so far."""
        if not self._estimates:
            self._variance = variance(self.differences.values(), launch_variance)
            self._estimates = {pair: _estimate(told, self._variance) for pair, told in self.differences.items()}
        return self._estimates

    def shown_since(self, oldest: int, launch_variance: float) -> int | None:
        """The first good build of the replays that showed something and reach past build `oldest`: a change behind it
        must not be shut out."""
        shown = (
            good
            for (good, bad), found in self.estimates(launch_variance).items()
            if bad >= oldest and abs(found.deviations) >= SHOWN_DEVIATIONS
        )
        return min(shown, default=None)

    def pair_variance(self, launch_variance: float) -> float:
        """Of one launch of both builds."""
        self.estimates(launch_variance)
        return self._variance or _past(launch_variance)

    def across(self, builds: NDArray[np.int64], launch_variance: float) -> tuple[Floats, Floats, Floats]:
        """For each build k, of the replays with k's change between their two builds: size x precision, precision,
        launches."""
        weighed, precisions, launches = np.zeros((3, len(builds)))
        for (good, bad), found in self.estimates(launch_variance).items():
            if bad < builds[0] or (good < builds[0] - 1 and abs(found.deviations) >= SHOWN_DEVIATIONS):
                continue
            between = slice(*np.searchsorted(builds, [good + 1, bad + 1]))
            weighed[between] += found.size / found.error**2
            precisions[between] += found.error**-2
            launches[between] += found.launches
        return weighed, precisions, launches


@dataclass(frozen=True)
class Nightly:
    """What the nights say of a change at each of some builds: a size, as the sum of precisions and of size x precision.

    Where they say nothing (a night on a new machine) both are zero.
    """

    weighed: Floats
    precisions: Floats


@dataclass
class Case:
    """A suspicion on its way to an answer: somewhere in (good, bad] a build changed the series by about `size`.

    `prior` are the log-odds before nights and replays were looked at. A case without a `size` is a check: nothing was
    seen, but something may have hidden behind a new machine or toolchain. `companions` share the case's cause, so that
    the first bad build of one is that of all.
    """

    series: int
    good: int
    bad: int
    size: float | None
    nightly: Nightly
    launch_variance: float
    prior: float
    heard: Heard = field(default_factory=Heard)
    fresh_since: int | None = None  # the first build that can still be told soon; None where no night shows anything
    state: State = "open"
    companions: tuple["Case", ...] = ()
    least_deviations: float | None = None  # of its own replays; the policy's, unless others already speak for it
    enough: float | None = None  # log-odds to believe it; the policy's, unless others already speak for it
    launches: int = 0
    silent: set[tuple[int, int]] = field(default_factory=set)  # pairs that were asked for and gave nothing
    stuck: bool = False  # no replay is left that could tell its builds apart

    @property
    def builds(self) -> NDArray[np.int64]:
        return np.arange(self.good + 1, self.bad + 1)

    @property
    def pair_deviation(self) -> float:
        """Of one launch of both builds."""
        return math.sqrt(self.heard.pair_variance(self.launch_variance))

    @property
    def estimate(self) -> Estimate | None:
        """From every replay across the likeliest first bad build."""
        weighed, precisions, launches = self.said
        best = int(np.argmax(posterior(self)))
        if precisions[best] == 0.0:
            return None
        return Estimate(weighed[best] / precisions[best], float(precisions[best] ** -0.5), int(launches[best]))

    @property
    def said(self) -> tuple[Floats, Floats, Floats]:
        """Of the replays across each build: size x precision, precision, launches."""
        return self.heard.across(self.builds, self.launch_variance)

    def hear(self, replayed: Replayed) -> None:
        usable = self.heard.add(replayed)
        self.launches += usable
        if not usable:
            self.silent.add((replayed.good, replayed.bad))


def variance(differences: Iterable[Sequence[float]], launch_variance: float) -> float:
    """Of one launch of both builds; it knows past nights, because four launches know their own badly."""
    spread, free = PRIOR_LAUNCHES * _past(launch_variance), float(PRIOR_LAUNCHES)
    for told in differences:
        centre = median(told)
        spread += sum((each - centre) ** 2 for each in told)
        free += len(told) - 1
    return spread / free


def estimate(differences: Sequence[float], launch_variance: float) -> Estimate:
    """Of launches of one pair alone."""
    return _estimate(differences, variance([differences], launch_variance))


def _estimate(differences: Sequence[float], pair_variance: float) -> Estimate:
    """A mean that forgives wild launches."""
    count = len(differences)
    centre = median(differences)
    reach = 2.0 * math.sqrt(pair_variance)
    for _ in range(5):
        centre += sum(min(max(each - centre, -reach), reach) for each in differences) / count
    return Estimate(centre, math.sqrt(pair_variance / count), count)


def _past(launch_variance: float) -> float:
    return 2.0 * launch_variance + 1e-8  # two builds; and 0.01 % for launches that repeat to the last digit


def log_odds(nightly: Nightly, weighed: Floats, precisions: Floats, policy: Policy) -> Floats:
    """For a change against none, at each build: of the nights, as far as nights are believed, and of the replays.

    At the size that suits both best, but never far from what the nights show: else a tenth of a level that moved for
    another reason would always be left to suspect.
    """
    total = nightly.precisions + precisions
    best = (nightly.weighed + weighed) / np.where(total > 0.0, total, 1.0)
    shown = nightly.weighed / np.where(nightly.precisions > 0.0, nightly.precisions, 1.0)
    low, high = np.minimum(0.5 * shown, 1.2 * shown), np.maximum(0.5 * shown, 1.2 * shown)
    seen = nightly.precisions > 0.0
    size = np.where(seen, np.clip(best, low, high), best)
    size = np.where(seen, np.copysign(np.maximum(np.abs(size), policy.least_size), size), size)
    nights = size * nightly.weighed - size**2 * nightly.precisions / 2
    replays = size * weighed - size**2 * precisions / 2
    # The better something is known, the more sizes it might have had: one of them suits by chance.
    sizes = np.where(seen, (policy.any_size * size) ** 2 * total, USUAL_SIZE**2 * precisions)
    any_size = np.log1p(sizes) / 2
    found = np.minimum(nights, policy.nightly_log_odds) + replays - any_size
    return np.where(~seen | (np.abs(shown) >= 0.7 * policy.min_change), found, -np.inf)


def odds(case: Case, policy: Policy) -> float:
    """Log-odds that some build of the range changed the series, all that is known put together."""
    weighed, precisions, _ = case.said
    told = log_odds(case.nightly, weighed, precisions, policy)
    return case.prior + float(np.logaddexp.reduce(told))


def odds_together(cases: Sequence[Case], prior: float, policy: Policy) -> float:
    """Log-odds that one build changed all these series by the same size."""
    said = [case.said for case in cases]
    nightly = Nightly(
        np.sum([case.nightly.weighed for case in cases], axis=0),
        np.sum([case.nightly.precisions for case in cases], axis=0),
    )
    weighed, precisions = np.sum([each[0] for each in said], axis=0), np.sum([each[1] for each in said], axis=0)
    return prior + float(np.logaddexp.reduce(log_odds(nightly, weighed, precisions, policy)))


def worth(cases: Sequence[Case], log_odds_: float, launches: int, policy: Policy) -> bool:
    """Whether so many launches more may be spent on a suspicion of these series: the likelier it is, and the sooner it
    could be told, the more."""
    value = max(_value(case, policy) for case in cases)
    return value / (1.0 + float(np.exp(min(-log_odds_, 500.0)))) >= launches


def _value(case: Case, policy: Policy) -> float:
    """Of telling the change, in launches: somebody still remembers what was committed last."""
    if case.fresh_since is None:
        return policy.reasoned_worth_launches
    fresh = float(posterior(case)[case.builds >= case.fresh_since].sum())
    return fresh * policy.worth_launches + (1.0 - fresh) * policy.late_worth_launches


def next_launches(case: Case, policy: Policy) -> int:
    """Few enough to end early, and enough to tell something of a change of the suspected size."""
    found = case.estimate
    if case.size is None and found is None:
        return policy.check_launches
    suspected = found.size if case.size is None and found is not None else case.size
    size = abs(suspected or 0.0)
    wanted = int(np.ceil(1.5 * (case.pair_deviation / max(size, policy.min_change)) ** 2))
    return min(max(wanted, policy.first_launches), policy.step_launches)


def believable(case: Case, policy: Policy) -> bool:
    """Whether what was located and sized is still a change worth telling: with more launches some shrink to nothing."""
    found = case.estimate
    if found is None or case.state not in ("believed", "confirmed"):
        return False
    least = case.least_deviations or policy.told_deviations
    likely = case.stuck or first_bad(case)[1] >= policy.told_located
    sure = odds(case, policy) >= (case.enough or policy.believed_log_odds)
    return likely and sure and abs(found.deviations) >= least and abs(found.size) >= policy.told_change


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
        if odds(case, policy) < (case.enough or policy.believed_log_odds) and case.launches < policy.most_launches:
            # It was believed for many builds together, and the one that is left has not earned it.
            case.state = "open"
            return step(case, policy)
    return None


def first_bad(case: Case) -> tuple[int, float]:
    """The likeliest first bad build and its probability."""
    likely = posterior(case)
    best = int(np.argmax(likely))
    return case.good + 1 + best, float(likely[best])


def posterior(case: Case) -> Floats:
    """How likely each build of the range is the first bad one, by nights and replays of all that share the cause."""
    logs = np.zeros(case.bad - case.good)
    for each in (case, *case.companions):
        if (each.good, each.bad) == (case.good, case.bad):
            logs += _location(each)
    likely = np.exp(logs - logs.max())
    return np.asarray(likely / likely.sum())


def _location(case: Case) -> Floats:
    """Log-likelihood of each build, at the size that suits nights and replays best were it the first bad one."""
    weighed, precisions, _ = case.said
    nightly = case.nightly
    total = nightly.precisions + precisions
    size = (nightly.weighed + weighed) / np.where(total > 0.0, total, 1.0)
    shown = nightly.weighed / np.where(nightly.precisions > 0.0, nightly.precisions, 1.0)
    replayed = weighed / np.where(precisions > 0.0, precisions, 1.0)
    # A night counts for a few deviations at most: replays that show more of the same do not contradict it.
    more = (shown * replayed > 0.0) & (np.abs(replayed) > np.abs(shown)) & (nightly.precisions > 0.0)
    size, of_nights = np.where(more, replayed, size), np.where(more, shown, size)
    nights = of_nights * nightly.weighed - of_nights**2 * nightly.precisions / 2
    both = nights + size * weighed - size**2 * precisions / 2
    best = int(np.argmax(both))
    near = np.abs(np.arange(len(both)) - best) <= 1
    unlikely = np.where(near, WILD_NIGHT_LOG_ODDS, LEAST_NIGHTLY_LOG_ODDS)
    without = nights[best] - unlikely + weighed**2 / 2 / np.where(precisions > 0.0, precisions, 1.0)
    return np.asarray(np.maximum(both, without))


def _confirm(case: Case, policy: Policy) -> int:
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


def _to_size(case: Case, policy: Policy) -> int:
    found = case.estimate
    assert found is not None, "a case is believed on replays"
    if found.error <= policy.size_error or found.launches >= policy.sizing_launches:
        return 0
    wanted = int(np.ceil(found.launches * (found.error / policy.size_error) ** 2))
    return min(policy.sizing_launches, wanted) - found.launches


def _locate(case: Case, policy: Policy) -> Ask | None:
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
