"""Finds, in recorded sweeps, the config to write into the tile table, and what the table's own config costs.

    python -m benchmarks.tile_table [RECORDING] [--report-only]

For each kernel and GPU model it prints the configs whose times over all problems are nearest to the winners' times: the
geometric mean and the worst of a config's time divided by the winner's, in the newest sweep of each problem. It prints
the same for the config that the table had at that time."""

import argparse
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import bounds
from benchmarks.bounds import Figure
from tilewatch.configs import config_key, config_text
from tilewatch.kernels.recording import recording_file
from tilewatch.kernels.results import Params

ROOT = Path(__file__).resolve().parent.parent
SHOWN = 3


@dataclass(frozen=True)
class Swept:
    """One sweep: the median time in microseconds by the key of a config, the configs by key, and the tile table's
    config."""

    problem: str
    times_us: Mapping[str, float]
    configs: Mapping[str, Params]
    table: Params | None


@dataclass(frozen=True)
class Choice:
    """One config for all problems of a kernel, and how much slower it is than the winner of each problem."""

    config: Params
    mean: float
    worst: float


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("recording", nargs="?", type=Path, default=ROOT / "recordings" / "h200.jsonl.gz")
    bounds.add_options(asked)
    options = asked.parse_args()
    sys.exit(bounds.report(_measure(options.recording), report_only=options.report_only, write=options.write))


def _measure(recording: Path) -> Iterator[Figure]:
    for (kernel, gpu), sweeps in swept(recording_file.read(recording).rows).items():
        of = f"{kernel} on {gpu}, {len(sweeps)} problems"
        for choice in ranked(sweeps)[:SHOWN]:
            yield Figure(f"{of}: a best config, mean; worst", f"{choice.mean:.3f}; {choice.worst:.3f}")
            print(f"    {_settings(choice.config)}")
        named = [
            sweep.times_us[config_key(sweep.table)] / min(sweep.times_us.values())
            for sweep in sweeps
            if sweep.table is not None and config_key(sweep.table) in sweep.times_us
        ]
        if named:
            what, mean = f"{of}: the table's config, worst {max(named):.3f}; mean", statistics.geometric_mean(named)
            if bounds.find_bound(what) is not None:
                yield bounds.measure(what, mean, cases=len(named))
            else:
                yield Figure(what, f"{mean:.3f}")


def swept(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], list[Swept]]:
    """Returns, for each kernel and GPU model, the newest sweep of each problem. Sweeps that timed nothing are left
    out."""
    trials: dict[Any, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["row"] == "trial" and row["status"] == "timed":
            trials.setdefault(row["sweep"], []).append(row)
    newest: dict[tuple[str, str, str], Swept] = {}
    sweeps = [row for row in rows if row["row"] == "sweep" and row["id"] in trials]
    for row in sorted(sweeps, key=lambda row: str(row["commit"]["committed_at"])):
        of_it = {config_key(trial["config"]): trial for trial in trials[row["id"]]}
        newest[row["kernel"], row["gpu_model"]["slug"], row["problem"]] = Swept(
            row["problem"],
            {key: statistics.median(trial["samples_us"]) for key, trial in of_it.items()},
            {key: trial["config"] for key, trial in of_it.items()},
            row["space"].get("tile_table"),
        )
    found: dict[tuple[str, str], list[Swept]] = {}
    for (kernel, gpu, _), sweep in newest.items():
        found.setdefault((kernel, gpu), []).append(sweep)
    return found


def ranked(sweeps: Sequence[Swept]) -> list[Choice]:
    """Returns the configs that were timed on all problems. The one that is least slower than the winners comes
    first."""
    everywhere = set.intersection(*(set(sweep.times_us) for sweep in sweeps))
    return sorted((_choice(key, sweeps) for key in everywhere), key=lambda choice: (choice.mean, choice.worst))


def _choice(key: str, sweeps: Sequence[Swept]) -> Choice:
    regrets = [sweep.times_us[key] / min(sweep.times_us.values()) for sweep in sweeps]
    return Choice(sweeps[0].configs[key], statistics.geometric_mean(regrets), max(regrets))


def _settings(config: Params) -> str:
    return config_text(dict(sorted(config.items())))


if __name__ == "__main__":
    main()
