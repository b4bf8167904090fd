"""A suspicion on its way to an answer: how likely it is, of which build, and what more launches of it are worth.

Nights and replays are put together here, for one series or for several that share a cause. Numbers in, numbers out;
what is asked next is confirm.py's.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tilewatch.worker.detection.modes import LaunchNoise
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.reading import Floats
from tilewatch.worker.detection.replay_evidence import Estimate, Replayed, ReplayEvidence

State = Literal["open", "believed", "confirmed", "refuted", "undecided"]

LEAST_NIGHTLY_LOG_ODDS = 6.0
"""How much less likely than the likeliest build the nights can make another the first bad one: replays rule out."""

WILD_NIGHT_LOG_ODDS = 3.2
"""The same for the build before and after it: one night gone wild is enough to make the wrong one of them likelier."""

USUAL_SIZE = 0.02
"""How large changes usually are, for a check that has no size in mind."""


@dataclass(frozen=True)
class Nightly:
    """What the nights say of a change at each of some builds: a size, as the sum of precisions and of size x precision.

    Where they say nothing (a night on a new machine) both are zero.
    """

    weighed: Floats
    precisions: Floats


@dataclass
class Candidate:
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
    launch_noise: LaunchNoise
    prior: float
    heard: ReplayEvidence = field(default_factory=ReplayEvidence)
    fresh_since: int | None = None  # the first build that can still be told soon; None where no night shows anything
    state: State = "open"
    companions: tuple["Candidate", ...] = ()
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
        return math.sqrt(self.heard.pair_variance(self.launch_noise))

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
        return self.heard.across(self.builds, self.launch_noise)

    def hear(self, replayed: Replayed) -> None:
        usable = self.heard.add(replayed)
        self.launches += usable
        if not usable:
            self.silent.add((replayed.good, replayed.bad))


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


def odds(case: Candidate, policy: Policy) -> float:
    """Log-odds that some build of the range changed the series, all that is known put together."""
    weighed, precisions, _ = case.said
    told = log_odds(case.nightly, weighed, precisions, policy)
    return case.prior + float(np.logaddexp.reduce(told))


def odds_together(cases: Sequence[Candidate], prior: float, policy: Policy) -> float:
    """Log-odds that one build changed all these series by the same size."""
    said = [case.said for case in cases]
    nightly = Nightly(
        np.sum([case.nightly.weighed for case in cases], axis=0),
        np.sum([case.nightly.precisions for case in cases], axis=0),
    )
    weighed, precisions = np.sum([each[0] for each in said], axis=0), np.sum([each[1] for each in said], axis=0)
    return prior + float(np.logaddexp.reduce(log_odds(nightly, weighed, precisions, policy)))


def first_bad(case: Candidate) -> tuple[int, float]:
    """The likeliest first bad build and its probability."""
    likely = posterior(case)
    best = int(np.argmax(likely))
    return case.good + 1 + best, float(likely[best])


def posterior(case: Candidate) -> Floats:
    """How likely each build of the range is the first bad one, by nights and replays of all that share the cause."""
    logs = np.zeros(case.bad - case.good)
    for each in (case, *case.companions):
        if (each.good, each.bad) == (case.good, case.bad):
            logs += _location(each)
    likely = np.exp(logs - logs.max())
    return np.asarray(likely / likely.sum())


def _location(case: Candidate) -> Floats:
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


def worth(cases: Sequence[Candidate], log_odds_: float, launches: int, policy: Policy) -> bool:
    """Whether so many launches more may be spent on a suspicion of these series: the likelier it is, and the sooner it
    could be told, the more."""
    return max(_value(case, policy) for case in cases) * _probability(log_odds_) >= launches


def could_be_worth(log_odds_: float, policy: Policy) -> bool:
    """The same before a suspicion is looked at closely, were it as fresh as can be: of many, few are."""
    return policy.worth_launches * _probability(log_odds_) >= policy.first_launches


def _probability(log_odds_: float) -> float:
    return 1.0 / (1.0 + math.exp(min(-log_odds_, 500.0)))


def _value(case: Candidate, policy: Policy) -> float:
    """Of telling the change, in launches: somebody still remembers what was committed last."""
    if case.fresh_since is None:
        return policy.reasoned_worth_launches
    fresh = float(posterior(case)[case.builds >= case.fresh_since].sum())
    soon = policy.worth_launches if case.least_deviations is None else policy.sibling_worth_launches
    return fresh * soon + (1.0 - fresh) * policy.late_worth_launches
