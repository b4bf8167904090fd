"""How good are the verdicts? Made worlds through `tilewatch judge --stream`, scored against what was hidden in them.

    python -m benchmarks.judge [--worlds 3] [--seed 1000] [--only mix] [--processes 2]

Prints one line per kind of world: false alarms per 1,000 points, precision, recall, F1 of the exact first bad build,
delay, size error, replay launches against nightly launches, and seconds per 1,000 points. A warm-up of 30 nights holds
no change and is not scored. The detector was tuned on seeds under 1000; figures for docs/measurements.md use others.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.judge_worlds import LAUNCHES, WARM_UP_NIGHTS, Change, Kind, World

NIGHTS = 160
FOUND_WITHIN_NIGHTS = 20
NEAR_BUILDS = 3
"""An alert that names a build this near a change is about that change; the exact build is scored apart."""
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


@dataclass(frozen=True)
class CodeAlert:
    """One alert about code, and the night that raised it."""

    series: int
    first_bad: int
    pct: float
    night: int


@dataclass(frozen=True)
class PlayedWorld:
    """A world after all its nights were judged."""

    changes: tuple[Change, ...]
    alerts: tuple[CodeAlert, ...]
    points: int
    nightly_launches: int
    replay_launches: int
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=3, help="worlds of each kind")
    parser.add_argument("--seed", type=int, default=1000, help="the first world's seed")
    parser.add_argument("--only", default="", help="only kinds whose name holds this")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    heading = ("false/1000", "precision", "recall", "exact F1", "delay p50", "p90", "<=2", "<=5", "size err", "replays")
    print(f"{'world':26}" + "".join(f"{each:>11}" for each in heading) + f"{'s/1000':>8}")
    with ThreadPoolExecutor(options.processes) as pool:
        for kind in KINDS:
            if options.only in kind.name:
                played = list(pool.map(lambda i, k=kind: play(k, options.seed + i), range(options.worlds)))  # type: ignore[misc]
                print(f"{kind.name:26}" + _line(played), flush=True)


def play(kind: Kind, seed: int) -> PlayedWorld:
    world = World(kind, NIGHTS, np.random.default_rng(seed))
    alerts: list[CodeAlert] = []
    points = replays = nightly = 0
    judging_s = 0.0
    with subprocess.Popen(
        (sys.executable, "-m", "tilewatch.worker.cli.main", "judge", "--stream"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    ) as judge:

        def ask(line: dict[str, Any]) -> dict[str, Any]:
            nonlocal judging_s
            assert judge.stdin is not None
            assert judge.stdout is not None
            text = json.dumps(line) + "\n"
            started = time.perf_counter()
            judge.stdin.write(text)
            judge.stdin.flush()
            answer = judge.stdout.readline()
            judging_s += time.perf_counter() - started
            reply: dict[str, Any] = json.loads(answer)
            return reply

        assert judge.stdin is not None
        judge.stdin.write(json.dumps(world.header()) + "\n")
        for night in range(NIGHTS):
            fields = world.night(night)
            scored = night >= WARM_UP_NIGHTS
            answer = ask(fields)
            points += len(fields["points"]) * scored
            nightly += LAUNCHES * len(fields["points"]) * scored
            for round_ in range(ROUNDS_A_NIGHT + 1):
                alerts += [
                    CodeAlert(each["id"], each["night"], each["pct"], night)
                    for each in answer["alerts"]
                    if each["kind"] == "code" and scored
                ]
                if not answer["reruns"] or round_ == ROUNDS_A_NIGHT:
                    break
                replays += sum(each["launches"] for each in answer["reruns"]) * scored
                results = [world.replay(night, each) for each in answer["reruns"]]
                answer = ask({"type": "rerun", "results": results})
        judge.stdin.close()
    return PlayedWorld(world.changes, tuple(alerts), points, nightly, replays, judging_s)


def _line(worlds: Sequence[PlayedWorld]) -> str:
    points = sum(each.points for each in worlds)
    alerts = sum(len(each.alerts) for each in worlds)
    changes = sum(len(each.changes) for each in worlds)
    matched = [_match(each) for each in worlds]
    true_alerts = sum(true for true, _ in matched)
    found = [pair for _, pairs in matched for pair in pairs]
    delays = [alert.night - change.build for change, alert in found]
    exact = sum(alert.first_bad == change.build for change, alert in found)
    errors = [abs(alert.pct - 100 * float(np.expm1(change.size))) for change, alert in found if change.nights == 1]
    replays = sum(each.replay_launches for each in worlds) / sum(each.nightly_launches for each in worlds)
    cells = [f"{1000 * (alerts - true_alerts) / points:.3f}"]
    if changes:
        cells += [
            f"{true_alerts / alerts:.3f}" if alerts else "-",
            f"{len(found) / changes:.3f}",
            f"{2 * exact / (alerts + changes):.3f}",
            *(f"{np.quantile(delays, q):.0f}" if delays else "-" for q in (0.5, 0.9)),
            *(f"{sum(each <= within for each in delays) / changes:.2f}" for within in (2, 5)),
            f"{np.mean(errors):.2f}" if errors else "-",
        ]
    else:
        cells += ["-"] * 8
    seconds = 1000 * sum(each.seconds for each in worlds) / points
    return "".join(f"{each:>11}" for each in (*cells, f"{replays:.3f}")) + f"{seconds:8.2f}"


def _match(world: PlayedWorld) -> tuple[int, list[tuple[Change, CodeAlert]]]:
    """How many alerts are about a change, and for each change that was found in time the first of them."""
    true_alerts = 0
    first: dict[Change, CodeAlert] = {}
    for alert in world.alerts:
        for change in world.changes:
            near = change.build - NEAR_BUILDS <= alert.first_bad <= change.build + NEAR_BUILDS + change.nights - 1
            if alert.series == change.series and near and alert.pct * change.size > 0 and alert.night >= change.build:
                true_alerts += 1
                if alert.night <= change.build + FOUND_WITHIN_NIGHTS + change.nights - 1:
                    first.setdefault(change, alert)
                break
    return true_alerts, list(first.items())


if __name__ == "__main__":
    main()
