"""Computes what a detector that knows a world's parameters would find: evidence for which bounds can be reached at all.

    nice python -m benchmarks.judge_ideal [--worlds 3] [--seed 7000] [--worth 100 300 1000]

It knows what no judge knows: the noise of each series on each night, how often series change and how large changes
are. Everything that is not code is subtracted without error: a node's noise, other machines and toolchains, modes,
drift, and the level before the change. Noise is normal, with the Fisher information of the world's Student's t. It
computes the exact probability of a change at each build of the last 24 nights, over all sizes, and replays while that
times `worth` is at least the launches. It reports at the odds and the size at which the judge does.
"""

import argparse
import math
from dataclasses import dataclass, field

import numpy as np

from benchmarks import bounds
from benchmarks.judge import KINDS, LIFE, NIGHTS, CodeAlert, PlayedWorld, make_world, score_worlds
from benchmarks.judge_worlds import LAUNCHES, ROUNDS, SAMPLES, SERIES, SHAPES, WARM_UP_NIGHTS, Floats, World
from tilewatch.worker.detection.policy import Policy

POLICY = Policy()
SCORED = [kind for kind in (*KINDS, *LIFE) if kind.name in ("mix of everything", "life: all of it")]
HEAVY_INFORMATION = (4 + 1) / (4 + 3) * 2
"""The Fisher information of the place of a Student's t with 4 degrees of freedom, against a normal's as wide."""
SIBLING_SHARE = 0.5
"""How probable a change is at the build that changed another shape of the kernel."""


@dataclass
class IdealSeries:
    """Sums over nights since, and over replays across, each build: size / variance and 1 / variance."""

    sizes: Floats
    log_size_odds: Floats
    priors: Floats  # of a change at each build
    weighed: Floats
    precisions: Floats
    good: int = WARM_UP_NIGHTS - 1
    asked: dict[int, int] = field(default_factory=dict)

    def logs(self, first: int, night: int) -> Floats:
        """The log-probability of a change at each of the builds from `first`, against none; but for a constant."""
        at = slice(first, night + 1)
        likely = self.sizes * self.weighed[at, None] - self.sizes**2 * self.precisions[at, None] / 2
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.priors[at]) + np.logaddexp.reduce(likely + self.log_size_odds, axis=1))

    def size(self, build: int) -> float:
        likely = self.sizes * self.weighed[build] - self.sizes**2 * self.precisions[build] / 2 + self.log_size_odds
        share = np.exp(likely - likely.max())
        return float((share * self.sizes).sum() / share.sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=3, help="worlds of each kind, without and with code")
    parser.add_argument("--seed", type=int, default=7000, help="the first world's seed")
    parser.add_argument("--worth", type=float, nargs="+", default=[100.0, 300.0, 1000.0])
    options = parser.parse_args()
    print(bounds.describe_run())
    titles = ("precision", "recall", "exact F1", "p90", "5% <=2", "replays")
    print(f"{'world':24}{'code':6}{'worth':>6}" + "".join(f"{each:>11}" for each in titles))
    for kind in SCORED:
        for code in (False, True):
            for worth in options.worth:
                seeds = range(options.seed, options.seed + options.worlds)
                score = score_worlds([play(make_world(kind, seed, code), worth) for seed in seeds])
                numbers = (
                    score.precision,
                    score.recall,
                    score.exact_f1,
                    score.delay_p90,
                    score.large_soon,
                    score.replays,
                )
                cells = "".join("          -" if each is None else f"{each:11.3f}" for each in numbers)
                print(f"{kind.name:24}{'yes' if code else 'no':6}{worth:6.0f}{cells}", flush=True)


def play(world: World, worth: float) -> PlayedWorld:
    chance = np.random.default_rng(world.replay_seed)
    launch_variance, night_variance = _list_variances(world)
    priors = _list_priors(world)
    size, up = np.log(np.geomspace(*world.kind.sizes, 24)), (0.75, 0.25)
    sizes = np.concatenate([np.log1p(np.exp(size)), np.log1p(-np.exp(size))])
    odds = np.log(np.repeat(up, len(size)) / len(size))
    known = np.zeros(SERIES)  # the level that was last reported
    states = [IdealSeries(sizes, odds, priors[i], *np.zeros((2, NIGHTS))) for i in range(SERIES)]
    alerts: list[CodeAlert] = []
    replays = 0
    for night in range(WARM_UP_NIGHTS, NIGHTS):
        for i in np.flatnonzero(~world.missing[night]):
            state = states[i]
            seen = world.code[i, night] - known[i] + chance.normal() * math.sqrt(night_variance[night, i])
            state.weighed[state.good + 1 : night + 1] += seen / night_variance[night, i]
            state.precisions[state.good + 1 : night + 1] += 1.0 / night_variance[night, i]
        open_ = list(np.flatnonzero(~world.missing[night]))
        while open_:
            i = int(open_.pop())
            spent, first_bad = _ask(world, states[i], i, night, worth, 2.0 * launch_variance[night, i], chance)
            replays += spent
            if first_bad is None:
                continue
            alerts.append(CodeAlert(i, first_bad, 100 * math.expm1(states[i].size(first_bad)), night))
            known[i] = world.code[i, first_bad]
            states[i] = _restart(world, states[i], i, first_bad, night, night_variance[:, i], known[i], chance)
            first = i // SHAPES * SHAPES
            for other in range(first, first + SHAPES):
                usual = states[other].priors[first_bad]
                if other != i and states[other].good < first_bad and 0.0 < usual < SIBLING_SHARE:
                    states[other].priors[first_bad] = SIBLING_SHARE
                    if not world.missing[night, other]:
                        open_.append(np.int64(other))
    points = int((~world.missing[WARM_UP_NIGHTS:]).sum())
    changes = {change: world.measured_since(change) for change in world.changes}
    return PlayedWorld(changes, tuple(alerts), 0, points, LAUNCHES * points, replays)


def _ask(
    world: World,
    state: IdealSeries,
    series: int,
    night: int,
    worth: float,
    pair_variance: float,
    chance: np.random.Generator,
) -> tuple[int, int | None]:
    """The launches of tonight, and the build that is reported; None where none is."""
    first, spent = max(state.good + 1, night - POLICY.after_nights + 1), 0
    while first <= night:
        logs = state.logs(first, night)
        total = float(np.logaddexp.reduce(logs))
        if total < -20.0:
            break
        likely = np.exp(logs - total)
        best = first + int(likely.argmax())
        size = state.size(best)
        is_located = likely.max() >= POLICY.located
        if total >= POLICY.believed_log_odds and is_located:
            return spent, best if abs(size) >= POLICY.min_change else None
        probability = 1.0 / (1.0 + math.exp(-total))
        launches = int(np.clip(math.ceil(1.5 * pair_variance / size**2), 1, 24))
        if probability * worth < launches + spent / 4:
            break
        good, bad = first - 1, night
        if total >= POLICY.believed_log_odds:
            bad = first + int(np.argmin(np.abs(np.cumsum(likely)[:-1] - 0.5)))
        mean = world.code[series, bad] - world.code[series, good]
        seen = mean + chance.normal() * math.sqrt(pair_variance / launches)
        state.weighed[good + 1 : bad + 1] += seen * launches / pair_variance
        state.precisions[good + 1 : bad + 1] += launches / pair_variance
        spent += launches
    return spent, None


def _restart(
    world: World,
    state: IdealSeries,
    series: int,
    first_bad: int,
    night: int,
    variances: Floats,
    level: float,
    chance: np.random.Generator,
) -> IdealSeries:
    """The nights since the reported change are looked at anew, against the level it has led to."""
    restarted = IdealSeries(state.sizes, state.log_size_odds, state.priors, *np.zeros((2, NIGHTS)), good=first_bad)
    for each in range(first_bad + 1, night + 1):
        if world.missing[each, series]:
            continue
        seen = world.code[series, each] - level + chance.normal() * math.sqrt(variances[each])
        restarted.weighed[first_bad + 1 : each + 1] += seen / variances[each]
        restarted.precisions[first_bad + 1 : each + 1] += 1.0 / variances[each]
    return restarted


def _list_variances(world: World) -> tuple[Floats, Floats]:
    """Of one launch and of a night, nights x series."""
    own, launch, round_, sample = (world.noise[name] for name in ("own", "launch", "round_", "sample"))
    scaled = world.noise_scale**2 * (launch**2 + round_**2 / ROUNDS)
    of_launch = (scaled + sample**2 / (ROUNDS * SAMPLES)) / HEAVY_INFORMATION
    return of_launch, (world.noise_scale * own) ** 2 / HEAVY_INFORMATION + of_launch / LAUNCHES


def _list_priors(world: World) -> Floats:
    """How often each build changes each series: as often as it does here, among the builds that may."""
    may = np.zeros((SERIES, NIGHTS), dtype=bool)
    may[:, WARM_UP_NIGHTS:] = True
    if world.shows_code:
        may[:, 1:] &= np.diff(world.code_numbers, axis=1) != 0
    return np.where(may, len(world.changes) / may.sum(), 0.0)


if __name__ == "__main__":
    main()
