"""Computes how likely a change of one series is, and which build probably made it."""

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
"""Nights put no build's log-odds further than this below the likeliest build's. Only replays rule out a build."""

WILD_NIGHT_LOG_ODDS = 3.2
"""Replaces MOST_NIGHTLY_LOG_ODDS for the likeliest build's two neighbours, as one wild night may mislead."""

USUAL_SIZE = 0.02
"""The standard deviation of the relative sizes of changes (2 %)."""

_ERFC = np.frompyfunc(math.erfc, 1, 1)


@dataclass(frozen=True)
class NightEvidence:
    """The evidence from nightly times for a change at each build. Zeros mean no evidence."""

    weighed: Floats  # the change's size / variance
    precisions: Floats  # 1 / variance
    by_code: Floats = field(default_factory=lambda: np.zeros(1))  # added to log-odds; -inf if the code is unchanged


@dataclass
class Candidate:
    """A suspected change of a series. Any build after `base`, up to `head`, may have made the change."""

    series: int
    base: int
    head: int
    size: float | None  # suspected log(time after / time before); None without a suspicion from nightly times
    nightly: NightEvidence
    launch_variance: float
    prior: float  # the log-odds of a change, before nights and replays are counted
    replays: ReplayEvidence = field(default_factory=ReplayEvidence)
    fresh_since: int | None = None  # a change from this build on is reported soon; None: its age does not matter
    state: State = "open"
    launches: int = 0
    unanswered: set[tuple[int, int]] = field(default_factory=set)  # pairs of builds whose question got no launch
    code_share: float | None = None  # how probable it is, before nights and replays, that new code at `head` changed it
    stuck: bool = False  # no replay is left that could separate its builds

    @property
    def builds(self) -> NDArray[np.int64]:
        return np.arange(self.base + 1, self.head + 1)

    @property
    def has_builds(self) -> bool:
        """Returns whether any of the candidate's builds may have changed the machine code."""
        return bool(np.isfinite(self.nightly.by_code).any())

    @property
    def pair_deviation(self) -> float:
        """Returns the standard deviation of log(head time / base time) in one launch."""
        return math.sqrt(self.replays.pair_variance(self.launch_variance))

    @property
    def estimate(self) -> Estimate | None:
        """Returns the change that replays show at the likeliest build; None if no replay tested this build."""
        weighed, precisions, launches = self.replayed
        best = int(np.argmax(posterior(self)))
        if precisions[best] == 0.0:
            return None
        return Estimate(weighed[best] / precisions[best], float(precisions[best] ** -0.5), int(launches[best]))

    @property
    def replayed(self) -> tuple[Floats, Floats, Floats]:
        """Returns three arrays with an entry per build: sums of size / variance, sums of 1 / variance, and launches."""
        return self.replays.across(self.builds, self.launch_variance)  # over replays with base < build <= head

    def expect_of_code(self, share: float) -> None:
        """Sets `code_share`, the prior probability that new code changed this series, and adapts `prior`."""
        assert self.code_share is not None, "the series has new code at `head`"
        self.prior += math.log(share / self.code_share)
        self.code_share = share

    def add_answer(self, answer: ReplayAnswer) -> None:
        usable = self.replays.add(answer)
        self.launches += usable
        if not usable:
            self.unanswered.add((answer.base, answer.head))


def log_odds(nightly: NightEvidence, weighed: Floats, precisions: Floats, policy: Policy) -> Floats:
    """Returns for each build the log-odds that this build changed the series, without the prior.

    They are the logarithm of the mixture sequential probability ratio L (Robbins 1970). Sizes of changes are assumed
    normal with standard deviation t. With x = sum of size / variance and p = sum of 1 / variance:
    log L = t^2 x^2 / (2 (1 + t^2 p)) - log(1 + t^2 p) / 2."""
    shown = nightly.weighed / np.where(nightly.precisions > 0.0, nightly.precisions, 1.0)
    of_nights = np.where(np.abs(shown) >= policy.min_change, nightly.weighed, 0.0)  # smaller moves are drift
    # The alternative: something other than code moved the times of nights, with odds exp(-nightly_log_odds).
    moved_otherwise = shown * of_nights / 2 - policy.nightly_log_odds
    of_both = _mixture(of_nights + weighed, nightly.precisions + precisions, policy)
    of_replays = _mixture(weighed, precisions, policy)
    return np.asarray(np.maximum(of_both, moved_otherwise + of_replays) - np.maximum(0.0, moved_otherwise))


def _mixture(weighed: Floats, precisions: Floats, policy: Policy) -> Floats:
    """Returns log L (see `log_odds`) for changes of at least `min_change`."""
    spread = 1.0 + USUAL_SIZE**2 * precisions
    size, error = USUAL_SIZE**2 * weighed / spread, USUAL_SIZE / np.sqrt(spread)
    of_all = USUAL_SIZE**2 * weighed**2 / (2.0 * spread) - np.log(spread) / 2.0
    relevant = (_upper_tail((policy.min_change - size) / error) + _upper_tail((policy.min_change + size) / error)) / 2
    with np.errstate(divide="ignore"):
        return np.asarray(of_all + np.log(relevant / _upper_tail(policy.min_change / USUAL_SIZE)))


def _upper_tail(deviations: Floats | float) -> Floats:
    """Returns the probability that a standard normal variable is larger than `deviations`."""
    return np.asarray(_ERFC(np.asarray(deviations) / math.sqrt(2.0)), dtype=np.float64) / 2.0


def odds(candidate: Candidate, policy: Policy) -> float:
    """Returns the log-odds that one of the candidate's builds changed the series."""
    weighed, precisions, _ = candidate.replayed
    by_build = log_odds(candidate.nightly, weighed, precisions, policy) + candidate.nightly.by_code
    return candidate.prior + float(np.logaddexp.reduce(by_build))


def likeliest_build(candidate: Candidate) -> tuple[int, float]:
    """Returns the build that most probably made the change, and this probability."""
    likely = posterior(candidate)
    best = int(np.argmax(likely))
    return candidate.base + 1 + best, float(likely[best])


def posterior(candidate: Candidate) -> Floats:
    """Returns for each build the probability that it made the change."""
    logs = _location(candidate) + candidate.nightly.by_code
    likely = np.exp(logs - logs.max())
    return np.asarray(likely / likely.sum())


def _location(candidate: Candidate) -> Floats:
    """Returns for each build the log-likelihood of a change at this build, with the best-fitting size."""
    weighed, precisions, _ = candidate.replayed
    nightly = candidate.nightly
    total = nightly.precisions + precisions
    size = (nightly.weighed + weighed) / np.where(total > 0.0, total, 1.0)
    shown = nightly.weighed / np.where(nightly.precisions > 0.0, nightly.precisions, 1.0)
    replayed = weighed / np.where(precisions > 0.0, precisions, 1.0)
    # Nights show only a part of a large change: replays that show a larger one of the same sign do not contradict them.
    more = (shown * replayed > 0.0) & (np.abs(replayed) > np.abs(shown)) & (nightly.precisions > 0.0)
    size, of_nights = np.where(more, replayed, size), np.where(more, shown, size)
    nights = of_nights * nightly.weighed - of_nights**2 * nightly.precisions / 2
    both = nights + size * weighed - size**2 * precisions / 2
    best = int(np.argmax(both))
    near = np.abs(np.arange(len(both)) - best) <= 1
    unlikely = np.where(near, WILD_NIGHT_LOG_ODDS, MOST_NIGHTLY_LOG_ODDS)
    without_nights = nights[best] - unlikely + weighed**2 / 2 / np.where(precisions > 0.0, precisions, 1.0)
    # As in log_odds, log(1 + t^2 p) / 2 is subtracted, so replays without a change count against a build.
    return np.asarray(np.maximum(both, without_nights) - np.log(1.0 + USUAL_SIZE**2 * precisions) / 2.0)


def probability_of(log_odds_: float) -> float:
    return 1.0 / (1.0 + math.exp(min(-log_odds_, 500.0)))
