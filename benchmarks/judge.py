"""Scores the judge: what it finds in made-up worlds, compared with the changes hidden in them.

    python -m benchmarks.judge [--worlds N] [--seed 2000] [--only mix] [--code both] [--jobs 2] [--report-only]

Prints one line per kind of world, once with and once without the machine code of each series known to the judge. A line
has false alarms per 1,000 points, precision, recall, F1 of the exact first bad build, delay, the changes of 5 % or more
that were reported within 2 nights, size error, replay launches against nightly launches, and alerts for a commit that
did not change the code of the series.

A warm-up of 30 nights holds no change and is not scored. Each world is played by a process of its own, `--jobs` at a
time. No database is needed. docs/develop/measurements.md has the figures."""

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import bounds
from benchmarks.bounds import Figure
from benchmarks.judge_life import LifeWorld, life_kinds
from benchmarks.judge_worlds import LAUNCHES, SERIES, WARM_UP_NIGHTS, Change, Kind, World
from tilewatch import processes
from tilewatch.worker.detection.detector import Detector
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.reading import Reading
from tilewatch.worker.detection.replay_evidence import ReplayAnswer, ReplayQuestion
from tilewatch.worker.detection.scope_state import NodeKernel

NIGHTS = 160
FOUND_WITHIN_NIGHTS = 20
SOON_NIGHTS = 2
LARGE = 0.05
NEAR_BUILDS = 3
"""Most builds between a change and the build that an alert names, if the alert counts as being about the change. The
exact build is scored separately."""
ROUNDS_A_NIGHT = 24

KINDS = (
    Kind("nothing, no nuisances", "typical", nuisances=False),
    Kind("nothing, all nuisances", None, nuisances=True),
    Kind("mix of everything", None, nuisances=True, changed=0.5, whole_kernels=0.3),
    Kind("steps, quiet", "quiet", nuisances=False, changed=0.5),
    Kind("steps, typical", "typical", nuisances=False, changed=0.5),
    Kind("steps, noisy", "noisy", nuisances=False, changed=0.5),
    Kind("1 % in typical", "typical", nuisances=False, changed=0.4, sizes=(0.01, 0.01)),
    Kind("0.5 % in quiet", "quiet", nuisances=False, changed=0.4, sizes=(0.005, 0.005)),
    Kind("2 % in noisy", "noisy", nuisances=False, changed=0.4, sizes=(0.02, 0.02)),
    Kind("kernel 0.5 % in typical", "typical", nuisances=False, changed=0.5, sizes=(0.005, 0.005), whole_kernels=1.0),
    Kind("kernel 1 % in typical", "typical", nuisances=False, changed=0.5, sizes=(0.01, 0.01), whole_kernels=1.0),
    Kind("ramps", "typical", nuisances=True, changed=0.4, sizes=(0.02, 0.08), ramp_nights=20),
)


LIFE = dict(life_kinds())


SCORED = ("false_per_1000", "precision", "recall", "exact_f1", "delay_p90", "large_soon", "replays")
"""Names of the scores of a line that may have a bound."""


@dataclass(frozen=True)
class CodeAlert:
    """One alert about code, and the night that raised it."""

    series: int
    first_bad: int
    pct: float
    night: int


@dataclass(frozen=True)
class PlayedWorld:
    """A world after all its nights were judged. It has each change with the first night that then measured its series.
    `unchanged` counts alerts for a commit that did not change the code; `cpu_s` is the CPU time of making and judging
    the world."""

    changes: dict[Change, int]
    alerts: tuple[CodeAlert, ...]
    unchanged: int
    points: int
    nightly_launches: int
    replay_launches: int
    cpu_s: float = 0.0


@dataclass(frozen=True)
class Score:
    """Scores of one kind of world. A score is None if the worlds have no changes, or if none was found."""

    false_per_1000: float
    precision: float | None
    recall: float | None
    exact_f1: float | None
    delay_p50: float | None
    delay_p90: float | None
    soon: float | None
    large_soon: float | None
    size_error: float | None
    replays: float
    unchanged: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, help="worlds of each kind; as many as bounds.toml asks for by default")
    parser.add_argument("--seed", type=int, default=2000, help="the first world's seed")
    parser.add_argument("--only", default="", help="only kinds whose name holds this")
    parser.add_argument("--code", choices=("both", "known", "unknown"), default="both")
    parser.add_argument("--jobs", type=int, default=processes.count_cores(), help="worlds at a time")
    bounds.add_options(parser)
    options = parser.parse_args()
    sys.exit(bounds.report(_measure(options), report_only=options.report_only, write=options.write))


def _measure(options: argparse.Namespace) -> Iterator[Figure]:
    """Prints a line with all scores for each kind of world. Yields only the figures that have a bound."""
    names = (
        "false/1000",
        "precision",
        "recall",
        "exact F1",
        "p50",
        "p90",
        "<=2",
        "5% <=2",
        "size err",
        "replays",
        "same",
    )
    print(f"{'world':34}code" + "".join(f"{each:>11}" for each in names))
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # matrices of 40 columns: more threads took 1.6 times the CPU (2026-11-23)
    # Only a spawned process loads BLAS again.
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        played = {
            (kind, code): [
                pool.submit(play, kind, options.seed + number, code)
                for number in range(options.worlds or count_worlds(kind))
            ]
            for kind in (*KINDS, *LIFE)
            for code in (False, True)
            if options.only in kind.name and options.code != ("unknown" if code else "known")
        }
        cpu_s: list[float] = []
        for (kind, code), futures in played.items():
            worlds = [each.result() for each in futures]
            cpu_s += [each.cpu_s for each in worlds]
            score = score_worlds(worlds)
            print(f"{kind.name:34}{'yes' if code else 'no ':4}" + _line(score), flush=True)
            yield from _list_figures(kind, code, score, len(worlds))
    if cpu_s:
        yield Figure("CPU minutes of a world, the mean", f"{np.mean(cpu_s) / 60:.2f}")
        yield Figure("CPU minutes of a world, the longest", f"{max(cpu_s) / 60:.2f}")


def count_worlds(kind: Kind) -> int:
    """Returns the number of worlds of a kind that its bounds ask for."""
    names = (f"{kind.name}, code known: {each}" for each in (*SCORED, "alerts for unchanged code"))
    return max(bound.cases for name in names if (bound := bounds.find_bound(name)) is not None)


def play(kind: Kind, seed: int, code: bool = False, policy: Policy | None = None, nights: int = NIGHTS) -> PlayedWorld:
    """Judges every night of one world, with the default policy if none is given."""
    began_s = time.process_time()
    world = make_world(kind, seed, code, nights)
    series = {i: NodeKernel(int(world.node[i]), int(world.kernel[i])) for i in range(SERIES)}
    detector = Detector(series, LAUNCHES, policy)
    alerts: list[CodeAlert] = []
    points = replays = 0
    for night in range(nights):
        readings = {each["id"]: read_point(night, each) for each in world.night(night)["points"]}
        scored = night >= WARM_UP_NIGHTS
        points += len(readings) * scored
        answer = detector.add_night(night, readings)
        for round_ in range(ROUNDS_A_NIGHT + 1):
            alerts += [
                CodeAlert(each.series, each.first_bad, 100 * each.size, night) for each in answer.changes if scored
            ]
            if not answer.questions or round_ == ROUNDS_A_NIGHT:
                break
            replays += sum(each.launches for each in answer.questions) * scored
            answer = detector.add_answers([replay(world, night, each) for each in answer.questions])
    numbers = world.code_numbers
    unchanged = sum(numbers[each.series, each.first_bad] == numbers[each.series, each.first_bad - 1] for each in alerts)
    changes = {change: world.measured_since(change) for change in world.changes}
    cpu_s = time.process_time() - began_s
    return PlayedWorld(changes, tuple(alerts), int(unchanged), points, LAUNCHES * points, replays, cpu_s)


def make_world(kind: Kind, seed: int, code: bool, nights: int = NIGHTS) -> World:
    chance = np.random.default_rng(seed)
    world = LifeWorld(kind, nights, chance, situations=LIFE[kind]) if kind in LIFE else World(kind, nights, chance)
    world.shows_code = code
    return world


def read_point(night: int, point: dict[str, Any]) -> Reading:
    kernel_us, baseline_us = (tuple(map(tuple, point[name])) for name in ("cand", "base"))
    return Reading(night, point["machine"], point["env"], kernel_us, baseline_us, point.get("code"))


def replay(world: World, night: int, asked: ReplayQuestion) -> ReplayAnswer:
    base_us, head_us = world.replay(night, asked.series, (asked.base, asked.head), asked.launches)
    return ReplayAnswer(asked.series, asked.base, asked.head, base_us, head_us)


def score_worlds(worlds: Sequence[PlayedWorld]) -> Score:
    points = sum(each.points for each in worlds)
    alerts = sum(len(each.alerts) for each in worlds)
    changes = [change for each in worlds for change in each.changes]
    matched = [_match(each) for each in worlds]
    true_alerts = sum(true for true, _ in matched)
    found = [pair for _, pairs in matched for pair in pairs]
    delays = [delay for _, _, delay in found]
    exact = sum(alert.first_bad == change.build for change, alert, _ in found)
    errors = [abs(alert.pct - 100 * float(np.expm1(change.size))) for change, alert, _ in found if change.nights == 1]
    large = sum(_is_large(change) for change in changes)
    large_soon = sum(_is_large(change) and delay <= SOON_NIGHTS for change, _, delay in found)
    return Score(
        false_per_1000=1000 * (alerts - true_alerts) / points,
        precision=true_alerts / alerts if alerts and changes else None,
        recall=len(found) / len(changes) if changes else None,
        exact_f1=2 * exact / (alerts + len(changes)) if changes else None,
        delay_p50=float(np.quantile(delays, 0.5)) if delays else None,
        delay_p90=float(np.quantile(delays, 0.9)) if delays else None,
        soon=sum(each <= SOON_NIGHTS for each in delays) / len(changes) if changes else None,
        large_soon=large_soon / large if large else None,
        size_error=float(np.mean(errors)) if errors else None,
        replays=sum(each.replay_launches for each in worlds) / sum(each.nightly_launches for each in worlds),
        unchanged=sum(each.unchanged for each in worlds),
    )


def _is_large(change: Change) -> bool:
    return abs(float(np.expm1(change.size))) >= LARGE


def _line(score: Score) -> str:
    digits = {"delay_p50": 0, "delay_p90": 0, "size_error": 2, "unchanged": 0}
    cells = ("-" if value is None else f"{value:.{digits.get(name, 3)}f}" for name, value in vars(score).items())
    return "".join(f"{each:>11}" for each in cells)


def _list_figures(kind: Kind, code: bool, score: Score, worlds: int) -> Iterator[Figure]:
    """Yields the scores of a line that have a bound. A score that is None (nothing changed, or nothing was found)
    misses its bound."""
    about = f"{kind.name}, code {'known' if code else 'not known'}"
    for name in SCORED:
        value, what = getattr(score, name), f"{about}: {name}"
        if bounds.find_bound(what) is not None:
            yield bounds.measure(what, value, cases=worlds) if value is not None else bounds.not_measured(what, "none")
    if code:
        yield bounds.measure(f"{about}: alerts for unchanged code", score.unchanged, cases=worlds)


def _match(world: PlayedWorld) -> tuple[int, list[tuple[Change, CodeAlert, int]]]:
    """Returns the number of alerts that are about a change. Also returns each change that was found in time, with its
    first alert and the nights between the first measurement of the change and that alert."""
    true_alerts = 0
    first: dict[Change, CodeAlert] = {}
    for alert in world.alerts:
        near = [change for change in world.changes if _is_about(alert, change)]
        if not near:
            continue
        true_alerts += 1
        change = min(near, key=lambda each: abs(each.build - alert.first_bad))
        if alert.night <= change.build + FOUND_WITHIN_NIGHTS + change.nights - 1:
            first.setdefault(change, alert)
    return true_alerts, [(change, alert, alert.night - world.changes[change]) for change, alert in first.items()]


def _is_about(alert: CodeAlert, change: Change) -> bool:
    near = change.build - NEAR_BUILDS <= alert.first_bad <= change.build + NEAR_BUILDS + change.nights - 1
    return alert.series == change.series and near and alert.pct * change.size > 0 and alert.night >= change.build


if __name__ == "__main__":
    main()
