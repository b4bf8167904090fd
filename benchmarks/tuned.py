"""Measures, from recordings, what a tuned table is worth on other GPUs and problems, and how long a lookup takes.

    python -m benchmarks.tuned [RECORDING...] [--report-only]

The regret of a config is how much longer it takes than the best config of another sweep; 0 if the two are tied. Winners
are carried to the same problem on another GPU. They are also carried to a problem that the table lacks, from the
problem that `tilewatch.tuned` would use instead; for this each problem is left out once."""

import argparse
import itertools
import math
import random
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import bounds
from benchmarks.bounds import Figure
from tilewatch import tuned
from tilewatch.configs import config_key
from tilewatch.kernels.recording import recording_file
from tilewatch.kernels.results import Params

FOLDER = Path(__file__).resolve().parent.parent / "recordings"
RECORDINGS = sorted((*FOLDER.glob("*.jsonl.gz"), *FOLDER.glob("tuned/*.jsonl.gz")))
LOOKUPS = 20_000


@dataclass(frozen=True)
class Swept:
    """One measured sweep: the time of each config, and the configs that are as good as the winner."""

    gpu_uuid: str
    gpu_model: str
    source_sha256: str
    winner: Params
    best: frozenset[str]
    times_us: Mapping[str, float]

    def find_regret(self, carried: Params) -> float | None:
        """Returns the regret of a config from another sweep. Returns None if the config has no time here, because it is
        not in this space, does not compile or gives wrong results."""
        key = config_key(carried)
        if key in self.best:
            return 0.0
        return self.times_us[key] / self.times_us[config_key(self.winner)] - 1 if key in self.times_us else None


Sweeps = Mapping[tuple[str, str], Swept]
"""Sweeps by kernel and problem."""


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("recordings", nargs="*", type=Path, default=RECORDINGS)
    bounds.add_options(asked)
    options = asked.parse_args()
    recorded = [read_sweeps(recording_file.read(file).rows) for file in options.recordings]
    figures = itertools.chain(_measure_carried(recorded), _measure_unseen(recorded), _measure_lookups())
    sys.exit(bounds.report(figures, report_only=options.report_only, write=options.write))


def read_sweeps(rows: Sequence[Mapping[str, Any]]) -> Sweeps:
    """Returns the newest sweep of each kernel and problem of a recording."""
    sweeps = {row["id"]: row for row in rows if row["row"] == "sweep"}
    times: dict[Any, dict[str, float]] = {each: {} for each in sweeps}
    for row in rows:
        if row["row"] == "trial" and row["status"] == "timed":
            times[row["sweep"]][config_key(row["config"])] = statistics.median(row["samples_us"])
    winners = {row["run"]: row["config"] for row in rows if row["row"] == "measurement" and row["role"] == "kernel"}
    found: dict[tuple[str, str], Swept] = {}
    for run in sorted((row for row in rows if row["row"] == "run"), key=lambda row: str(row["finished_at"])):
        if (winner := winners.get(run["key"])) is None:
            continue
        sweep = sweeps[run["sweep"]]
        found[sweep["kernel"], sweep["problem"]] = Swept(
            run["gpu_uuid"],
            sweep["gpu_model"]["slug"],
            sweep["source_sha256"],
            winner,
            frozenset(config_key(config) for config in (winner, *run["tie"])),
            times[sweep["id"]],
        )
    return found


def list_carried(of: Sweeps, to: Sweeps) -> Iterator[tuple[Swept, Swept]]:
    """Yields pairs of sweeps of the same kernel, problem and source on two GPUs. A table of another source would be
    refused."""
    for key, one in of.items():
        other = to.get(key)
        if other is not None and one.gpu_uuid != other.gpu_uuid and one.source_sha256 == other.source_sha256:
            yield one, other


def list_unseen(sweeps: Sweeps, most_doublings: float) -> Iterator[tuple[bool, float | None]]:
    """Yields, for each problem, what happens if the table lacks it: whether other problems lie on both sides of each of
    its sizes, and the regret of the config that the table gives instead. Problems that get the fallback are left
    out."""
    for (kernel, problem), left_out in sweeps.items():
        others = {name: each for (of, name), each in sweeps.items() if of == kernel and name != problem}
        table = tuned.Table([tuned.Row(name, each.winner) for name, each in others.items()], {}, most_doublings)
        parts = tuned.split_problem(problem)
        choice = table.find(*parts)
        if choice.source == "nearest":
            yield (
                _is_between(parts, [tuned.split_problem(name) for name in others]),
                left_out.find_regret(choice.config),
            )


def _is_between(parts: tuple[tuned.Part, ...], others: Sequence[tuple[tuned.Part, ...]]) -> bool:
    alike = [other for other in others if tuned.measure_distance(parts, other) is not None]
    sizes = [(part, [other[at] for other in alike]) for at, part in enumerate(parts) if isinstance(part, int)]
    return all(min(found) <= size <= max(found) for size, found in sizes)  # type: ignore[type-var]  # numbers, as in parts


def _measure_carried(recorded: Sequence[Sweeps]) -> Iterator[Figure]:
    pairs = [pair for of, to in itertools.permutations(recorded, 2) for pair in list_carried(of, to)]
    for what, chosen in (
        ("another GPU of the model", [p for p in pairs if p[0].gpu_model == p[1].gpu_model]),
        ("another GPU model", [p for p in pairs if p[0].gpu_model != p[1].gpu_model]),
    ):
        yield from _report_regrets(f"winner carried to {what}", [to.find_regret(of.winner) for of, to in chosen])


def _measure_unseen(recorded: Sequence[Sweeps]) -> Iterator[Figure]:
    for what, most_doublings in (
        (f"within {tuned.MOST_DOUBLINGS:g} doubling", tuned.MOST_DOUBLINGS),
        ("any", math.inf),
    ):
        found = [each for sweeps in recorded for each in list_unseen(sweeps, most_doublings)]
        between = [regret for is_between, regret in found if is_between]
        yield from _report_regrets(f"nearest problem, {what}, between measured ones", between)
        yield from _report_regrets(f"nearest problem, {what}", [regret for _, regret in found])


def _report_regrets(what: str, regrets: Sequence[float | None]) -> Iterator[Figure]:
    timed = [100 * regret for regret in regrets if regret is not None]
    if not timed:
        yield bounds.not_measured(f"{what}: regret p95", "no recording of such")
        return
    p50, p95 = np.percentile(timed, [50, 95])
    without = len(regrets) - len(timed)
    lacking = f", {without} without a time" if without else ""
    yield Figure(f"{what}: regret p50, worst of {len(timed)}{lacking}", f"{p50:.1f} %, {max(timed):.1f} %")
    if bounds.find_bound(f"{what}: regret p95") is None:
        yield Figure(f"{what}: regret p95", f"{p95:.1f} %")
    else:
        yield bounds.measure(f"{what}: regret p95", float(p95), cases=len(timed))


def _measure_lookups() -> Iterator[Figure]:
    chance = random.Random("lookups")  # noqa: S311 - made-up problems, not secrets
    weights = [(4096, 7168), (2112, 7168), (24576, 1536), (32768, 512), (7168, 16384)]
    measured = [(m, n, k) for n, k in weights for m in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)]
    table = tuned.Table([tuned.Row("x".join(map(str, problem)), {"tile_m": 64}) for problem in measured], {})
    asked = [chance.choice(measured) for _ in range(LOOKUPS)]
    yield bounds.measure("lookup of a measured problem, p95", _time_lookups(table, asked), cases=len(asked))
    unseen = list(dict.fromkeys((chance.randrange(1, 4096), *chance.choice(weights)) for _ in range(5_000)))
    first = _time_lookups(table, unseen)
    yield bounds.measure("lookup of another problem for the first time, p95", first, cases=len(unseen))
    again = [chance.choice(unseen) for _ in range(LOOKUPS)]
    yield bounds.measure("lookup of it from then on, p95", _time_lookups(table, again), cases=len(again))


def _time_lookups(table: tuned.Table, asked: Sequence[tuple[int, ...]]) -> float:
    """Returns the 95th percentile of a lookup's time in microseconds. Reading the clock is included."""
    taken = []
    for problem in asked:
        started = time.perf_counter_ns()
        table.find(*problem)
        taken.append(time.perf_counter_ns() - started)
    return float(np.percentile(taken, 95)) / 1000


if __name__ == "__main__":
    main()
