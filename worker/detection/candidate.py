"""Puts nights and replays of a candidate together: how likely a change is, at which build, and what launches are worth.

For one series. confirmation.py decides what is asked next.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.reading import Floats
from tilewatch.worker.detection.replay_evidence import Estimate, ReplayAnswer, ReplayEvidence

State = Literal["open", "believed", "confirmed", "refuted", "undecided"]

MOST_NIGHTLY_LOG_ODDS = 6.0
"""Nights make a build at most this much (log) less likely than the likeliest one: it takes replays to rule it out."""

WILD_NIGHT_LOG_ODDS = 3.2
"""Nights make the two neighbours of the likeliest build at most this much (log) less likely: one wild night is enough
to make the wrong one of them likelier."""

USUAL_SIZE = 0.02
"""The standard deviation of the sizes of changes (2 %)."""

TELLING_DEVIATIONS = 3.3
"""A replay whose standard error is the size of a change over this tells a build before it from one after it."""

_ERFC = np.frompyfunc(math.erfc, 1, 1)


@dataclass(frozen=True)
class NightEvidence:
    """The size that nights show of a change at each build, as size / variance (`weighed`) and 1 / variance.

    Both are zero where nights show nothing, as the first night on a new machine does. `by_code` is what the code of the
    series adds to the log-odds of each build: minus infinity for one that did not change it.
    """

    weighed: Floats
    precisions: Floats
    by_code: Floats = field(default_factory=lambda: np.zeros(1))


@dataclass
class Candidate:
    """Some build in (good, bad] may have changed the series by about `size`.

    `prior` are the log-odds before nights and replays. A candidate without a `size` is a probe: nights show nothing,
    but a new machine or toolchain may have hidden a change.
    """

    series: int
    good: int
    bad: int
    size: float | None
    nightly: NightEvidence
    launch_variance: float
    prior: float
    replays: ReplayEvidence = field(default_factory=ReplayEvidence)
    fresh_since: int | None = None  # the first build that can still be reported soon; None: its age does not matter
    state: State = "open"
    launches: int = 0
    unanswered: set[tuple[int, int]] = field(default_factory=set)  # pairs whose question got no launch
    code_share: float | None = None  # the probability that its new code changed it, before nights and its own replays
    stuck: bool = False  # no replay is left that could separate its builds

    @property
    def builds(self) -> NDArray[np.int64]:
        return np.arange(self.good + 1, self.bad + 1)

    @property
    def has_builds(self) -> bool:
        """Returns whether any of its builds may have changed the code."""
        return bool(np.isfinite(self.nightly.by_code).any())

    @property
    def pair_deviation(self) -> float:
        """Standard deviation of log(bad / good) of one launch of both builds."""
        return math.sqrt(self.replays.pair_variance(self.launch_variance))

    @property
    def estimate(self) -> Estimate | None:
        """Returns the size of the change, from all replays across the likeliest first bad build; None if no replay was
        across it."""
        weighed, precisions, launches = self.replayed
        best = int(np.argmax(posterior(self)))
        if precisions[best] == 0.0:
            return None
        return Estimate(weighed[best] / precisions[best], float(precisions[best] ** -0.5), int(launches[best]))

    @property
    def replayed(self) -> tuple[Floats, Floats, Floats]:
        """Sums the replays across each build: size / variance, 1 / variance, and launches."""
        return self.replays.across(self.builds, self.launch_variance)

    def expect_of_code(self, share: float) -> None:
        """Updates how likely new code at this build changed the series, after replays of other series with new code
        there."""
        assert self.code_share is not None, "its newest build has new code"
        self.prior += math.log(share / self.code_share)
        self.code_share = share

    def add_answer(self, answer: ReplayAnswer) -> None:
        usable = self.replays.add(answer)
        self.launches += usable
        if not usable:
            self.unanswered.add((answer.good, answer.bad))


@dataclass(frozen=True)
class Ramp:
    """Builds after `last_good` up to `first_bad` made a change together."""

    last_good: int
    first_bad: int
    estimate: Estimate


def find_ramp(candidate: Candidate, policy: Policy) -> Ramp | None:
    """Returns the builds over which a series changed step by step; None if it changed at one build, or while too few
    launches were spent to say: looking for one first bad build must have taken twice the launches that halving the
    builds takes for one step.

    A build half-way up a ramp is as far from before as from after, and no number of launches decides it. Where the ramp
    begins and ends is read off the replays that differ from nothing, or from all of it, by two standard errors. Fewer
    than three builds are not a ramp, nor are builds of which code tells some from others: there the range ended at
    builds that had not changed the series' code (benchmarks/judge.py, seeds 2000 to 2002, 2026-11-23).
    """
    by_code = candidate.nightly.by_code
    if len(candidate.builds) < 3 or by_code.max() > 0.0 or not np.isfinite(by_code).all():
        return None
    estimates = candidate.replays.estimates(candidate.launch_variance)
    pairs = sorted((bad, each) for (good, bad), each in estimates.items() if good == candidate.good)
    if len(pairs) < 2 or pairs[-1][0] != candidate.bad:
        return None
    whole = pairs[-1][1]
    spent = sum(each.launches for _, each in pairs[:-1])
    half = (TELLING_DEVIATIONS * candidate.pair_deviation / max(abs(whole.size), policy.min_change)) ** 2
    if spent < max(2.0 * math.log2(len(candidate.builds)) * half, policy.most_launches / 2):
        return None
    before, complete = candidate.good, candidate.bad
    for bad, each in pairs:
        if abs(each.deviations) >= 2.0:
            break
        before = bad
    for bad, each in reversed(pairs):
        if abs(each.size - whole.size) >= 2.0 * math.hypot(each.error, whole.error):
            break
        complete = bad
    return Ramp(before, complete, whole) if before < complete else None


def log_odds(nightly: NightEvidence, weighed: Floats, precisions: Floats, policy: Policy) -> Floats:
    """For a change against none, at each build; without the prior.

    The mixture sequential probability ratio (Robbins 1970): with x = sum of size / variance, p = sum of 1 / variance
    and sizes of deviation t, log L(x, p) = t^2 x^2 / (2 (1 + t^2 p)) - log(1 + t^2 p) / 2. Nights may also have moved
    for another reason, whether there is a change or not, which is exp(-`nightly_log_odds`) as likely.
    """
    shown = nightly.weighed / np.where(nightly.precisions > 0.0, nightly.precisions, 1.0)
    of_nights = np.where(np.abs(shown) >= policy.min_change, nightly.weighed, 0.0)  # less is a level that strays
    moved_otherwise = shown * of_nights / 2 - policy.nightly_log_odds
    of_both = _mixture(of_nights + weighed, nightly.precisions + precisions, policy)
    of_replays = _mixture(weighed, precisions, policy)
    return np.asarray(np.maximum(of_both, moved_otherwise + of_replays) - np.maximum(0.0, moved_otherwise))


def _mixture(weighed: Floats, precisions: Floats, policy: Policy) -> Floats:
    """log L over sizes of `min_change` and more: L over all sizes, times how probable those are after what was
    measured, over how probable they were before."""
    spread = 1.0 + USUAL_SIZE**2 * precisions
    size, error = USUAL_SIZE**2 * weighed / spread, USUAL_SIZE / np.sqrt(spread)
    of_all = USUAL_SIZE**2 * weighed**2 / (2.0 * spread) - np.log(spread) / 2.0
    relevant = (_upper_tail((policy.min_change - size) / error) + _upper_tail((policy.min_change + size) / error)) / 2
    with np.errstate(divide="ignore"):
        return np.asarray(of_all + np.log(relevant / _upper_tail(policy.min_change / USUAL_SIZE)))


def _upper_tail(deviations: Floats | float) -> Floats:
    """Returns the probability that a normal variable is larger."""
    return np.asarray(_ERFC(np.asarray(deviations) / math.sqrt(2.0)), dtype=np.float64) / 2.0


def odds(candidate: Candidate, policy: Policy) -> float:
    """Log-odds that some build of the range changed the series."""
    weighed, precisions, _ = candidate.replayed
    by_build = log_odds(candidate.nightly, weighed, precisions, policy) + candidate.nightly.by_code
    return candidate.prior + float(np.logaddexp.reduce(by_build))


def likeliest_build(candidate: Candidate) -> tuple[int, float]:
    """Returns the likeliest first bad build and its probability."""
    likely = posterior(candidate)
    best = int(np.argmax(likely))
    return candidate.good + 1 + best, float(likely[best])


def posterior(candidate: Candidate) -> Floats:
    """Returns the probability of each build of the range to be the first bad one."""
    logs = _location(candidate) + candidate.nightly.by_code
    likely = np.exp(logs - logs.max())
    return np.asarray(likely / likely.sum())


def _location(candidate: Candidate) -> Floats:
    """Log-likelihood of each build as the first bad one, each at the size that suits nights and replays best.

    That size is known from the replays, which costs log(1 + t^2 p) / 2 as in `log_odds`: replays that show nothing make
    a build less likely, not only no likelier.
    """
    weighed, precisions, _ = candidate.replayed
    nightly = candidate.nightly
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
    unlikely = np.where(near, WILD_NIGHT_LOG_ODDS, MOST_NIGHTLY_LOG_ODDS)
    without_nights = nights[best] - unlikely + weighed**2 / 2 / np.where(precisions > 0.0, precisions, 1.0)
    return np.asarray(np.maximum(both, without_nights) - np.log(1.0 + USUAL_SIZE**2 * precisions) / 2.0)


def is_worth(candidate: Candidate, log_odds_: float, launches: int, policy: Policy) -> bool:
    """Returns whether probability x worth of the change, in launches, is at least `launches`."""
    return _worth(candidate, policy) * probability_of(log_odds_) >= launches


def could_be_worth(log_odds_: float, policy: Policy) -> bool:
    """Returns an upper bound of `is_worth` that is cheap to compute: it rules most possible changes out."""
    return policy.worth_launches * probability_of(log_odds_) >= policy.first_launches


def probability_of(log_odds_: float) -> float:
    return 1.0 / (1.0 + math.exp(min(-log_odds_, 500.0)))


def _worth(candidate: Candidate, policy: Policy) -> float:
    """Returns what reporting this change is worth, in replay launches: a fresh one more, while its author
    remembers it."""
    if candidate.fresh_since is None:
        return policy.worth_launches
    fresh = float(posterior(candidate)[candidate.builds >= candidate.fresh_since].sum())
    return fresh * policy.worth_launches + (1.0 - fresh) * policy.late_worth_launches
