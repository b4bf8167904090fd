"""Prints the tables of README.md and docs/develop/kernel-times.md from the recordings that come with Tilewatch.

    python -m benchmarks.recorded [winners | ratios | h100 | values] [--report-only]

`winners` shows the search spaces of one problem. `ratios` shows every kernel and baseline with its worst problem, and
`h100` shows that for an H100. `values` shows, for each value of a kernel's axes, how near a config with it ever came to
the winner of its sweep. A value far from 1 can leave the space. Without a name, the figures that have a bound are
printed.

A ratio is the baseline's time divided by ours, the median of paired rounds: over 1 means that ours is faster.
tests/benchmarks/test_recorded.py compares the documents with these tables."""

import argparse
import functools
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import bounds, nights
from benchmarks.bounds import Figure
from benchmarks.nights import OURS, RECORDINGS
from tilewatch.kernels.recording import recording_file
from tilewatch.kernels.statistics import median_interval, ratio_interval

H200 = (RECORDINGS / "h200-80093d04.jsonl.gz",)
"""Recordings of the whole suite on an H200: one night. If a later recording is added, its kernels replace those of the
night."""

H100 = (RECORDINGS / "h100-f727a301.jsonl.gz",)
"""A night of the whole suite on an H100."""

STORY = RECORDINGS / "story" / "h200.jsonl.gz"
BEFORE = tuple(RECORDINGS / f"{name}.jsonl.gz" for name in ("h200", "h200-2857088b"))
SHOWN_PROBLEM = "320x32576x7168"
SHOWN_KERNELS = ("gemm_fp8", "gemm_fp8_scaled", "gemm_nt_fp8")
TWO_LAUNCHES, ONE_TOKEN = ("attention_decode_parts", "attention_decode_join"), "1x32x8x32768x128"
DELTA, GRADIENT = "attention_backward_delta", "attention_backward_causal"


@dataclass(frozen=True)
class Recorded:
    """One run: its sweep, the winner's time, and the winner's ratio to each baseline that was measured."""

    kernel: str
    problem: str
    space_size: int
    winner_us: float
    winner_samples_us: Sequence[float]
    ratios: Mapping[str, float]
    trials_us: Sequence[float]
    """Median time of each config that was timed."""

    @property
    def group(self) -> str:
        return nights.name_group(self.kernel, self.problem)


@dataclass(frozen=True)
class BaselineRatios:
    """The ratios of all problems of a kernel to one baseline."""

    kernel: str
    baseline: str
    ratios: Mapping[str, float]

    @property
    def mean(self) -> float:
        return statistics.geometric_mean(self.ratios.values())

    @property
    def worst(self) -> tuple[str, float]:
        return min(self.ratios.items(), key=lambda each: each[1])


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("table", nargs="?", choices=tuple(TABLES))
    bounds.add_options(asked)
    options = asked.parse_args()
    if options.table is None:
        sys.exit(bounds.report(_list_figures(), report_only=options.report_only, write=options.write))
    print(TABLES[options.table]())


def format_winners() -> str:
    rows = [
        (
            f"`{run.kernel}`",
            str(run.space_size),
            f"{statistics.median(run.trials_us):.0f}",
            f"{run.winner_us:.1f}",
            _format_ratio(run.ratios.get("deepgemm")),
            _format_ratio(run.ratios.get("cublaslt")),
        )
        for name in SHOWN_KERNELS
        for run in read_suite(H200)
        if (run.kernel, run.problem.partition("-")[0]) == (name, SHOWN_PROBLEM)
    ]
    head = (
        "kernel",
        "configs",
        "the config in the middle, us",
        "the winner, us",
        "DeepGEMM / winner",
        "cuBLASLt / winner",
    )
    return _format_table(head, rows)


def format_ratios() -> str:
    return _format_ratios(read_suite(H200), "h200")


def format_h100() -> str:
    return _format_ratios(read_suite(H100), "h100")


def _format_ratios(runs: Sequence[Recorded], gpu_model: str) -> str:
    """Returns a table with a row for each kernel and baseline. The error of a mean is how far a night on another card
    differs."""
    errors = nights.measure_means([each for each in nights.read_nights() if each.gpu_model == gpu_model])
    rows = []
    for each in list_baseline_ratios(runs):
        problem, worst = each.worst
        bound = bounds.find_bound(f"H200: {each.kernel} against {each.baseline}")
        error = errors.get((each.kernel, each.baseline))
        rows.append(
            (
                each.kernel,
                each.baseline,
                _format_ratio(each.mean) if error is None else f"{each.mean:.3f}±{each.mean * error:.3f}",
                f"{_format_ratio(worst)} ({problem})",
                "" if bound is None else _judge_bound(bound.limit, each.mean, error),
            )
        )
    return _format_table(("kernel", "baseline", "mean", "worst", "wanted mean"), rows)


def _judge_bound(wanted: float, mean: float, error: float | None) -> str:
    """Returns the wanted mean as text, with a remark if the error of the mean leaves open whether it is reached."""
    return f"{wanted:.2f}" if error is None or abs(mean - wanted) > mean * error else f"{wanted:.2f}, open"


def format_values() -> str:
    """Returns a table of the values of each kernel's axes. It shows the least quotient, over all problems, of the best
    time with this value and the best time of the sweep."""
    nearest: dict[tuple[str, str, int], float] = {}
    rows = _read_rows(H200[0])
    for sweep in (row for row in rows if row["row"] == "sweep"):
        trials = [row for row in rows if row["row"] == "trial" and row["sweep"] == sweep["id"]]
        times_us = [(row["config"], statistics.median(row["samples_us"])) for row in trials if row["status"] == "timed"]
        best_us = min((time_us for _, time_us in times_us), default=0.0)
        for config, time_us in times_us:
            for axis, value in config.items():
                place = (sweep["kernel"], axis, value)
                nearest[place] = min(nearest.get(place, time_us / best_us), time_us / best_us)
    several = Counter((kernel, axis) for kernel, axis, _ in nearest)
    found = sorted(each for each in nearest.items() if several[each[0][:2]] > 1)
    head = ("kernel", "axis", "value", "nearest to a winner")
    return _format_table(
        head, [(f"`{kernel}`", axis, str(value), f"{ratio:.3f}") for (kernel, axis, value), ratio in found]
    )


TABLES = {
    "winners": format_winners,
    "ratios": format_ratios,
    "h100": format_h100,
    "values": format_values,
}


@functools.cache
def _read_rows(file: Path) -> Sequence[Mapping[str, Any]]:
    """Returns the rows of a recording. The file is read once for all tables."""
    return recording_file.read(file).rows


def read_runs(file: Path) -> list[Recorded]:
    """Returns every run that measured a winner, in the order of the file."""
    rows = _read_rows(file)
    sweeps = {row["id"]: row for row in rows if row["row"] == "sweep"}
    runs = {row["key"]: sweeps[row["sweep"]] for row in rows if row["row"] == "run"}
    measured: dict[str, dict[str, Sequence[float]]] = {key: {} for key in runs}
    trials_us: dict[Any, list[float]] = {}
    winners: dict[str, Sequence[float]] = {}
    for row in rows:
        if row["row"] == "measurement" and row["role"] == "kernel":
            winners[row["run"]] = row["samples_us"]
        elif row["row"] == "measurement" and row["samples_us"]:
            measured[row["run"]][row["implementation"]] = row["samples_us"]
        elif row["row"] == "trial" and row["status"] == "timed":
            trials_us.setdefault(row["sweep"], []).append(statistics.median(row["samples_us"]))
    found = []
    for key, ours in winners.items():
        ratios = {name: ratio_interval(ours, theirs) for name, theirs in measured[key].items()}
        found.append(
            Recorded(
                runs[key]["kernel"],
                runs[key]["problem"],
                runs[key]["space_size"],
                median_interval(ours).median,
                ours,
                {name: ratio.median for name, ratio in ratios.items() if ratio is not None},
                trials_us[runs[key]["id"]],
            )
        )
    return found


def read_suite(files: Sequence[Path]) -> list[Recorded]:
    """Returns the runs of the whole suite. All problems of a kernel come from the last file that has the kernel."""
    runs: dict[str, list[Recorded]] = {}
    for file in files:
        found: dict[str, list[Recorded]] = {}
        for run in read_runs(file):
            found.setdefault(run.kernel, []).append(run)
        runs |= found
    return [run for of_kernel in runs.values() for run in of_kernel]


def list_baseline_ratios(runs: Sequence[Recorded]) -> list[BaselineRatios]:
    """Returns the ratios to each baseline of each kernel (and type), in the order of the runs."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for run in runs:
        for baseline, ratio in run.ratios.items():
            if baseline not in OURS:
                found.setdefault((run.group, baseline), {})[run.problem] = ratio
    return [BaselineRatios(kernel, baseline, ratios) for (kernel, baseline), ratios in found.items()]


def list_fastest(runs: Sequence[Recorded], group: str, baselines: Sequence[str]) -> list[float]:
    """Returns, for each problem of a group, the time of the fastest of these baselines divided by ours."""
    return [min(run.ratios[baseline] for baseline in baselines) for run in runs if run.group == group]


def _list_figures() -> Iterator[Figure]:
    for gpu, runs in (("H200", read_suite(H200)), ("H100", read_suite(H100))):
        for each in list_baseline_ratios(runs):
            what = f"{gpu}: {each.kernel} against {each.baseline}"
            if bounds.find_bound(what) is not None:
                yield bounds.measure(what, each.mean, cases=len(each.ratios))
        faster = list_fastest(runs, "gemm_nt bfloat16", ("cublas", "deepgemm"))
        what = f"{gpu}: gemm_nt bfloat16 against the faster of cublas and deepgemm"
        yield bounds.measure(what, statistics.geometric_mean(faster), cases=len(faster))
        what = f"{gpu}: attention of one new token, {ONE_TOKEN}, in two launches against attention_cudnn"
        yield bounds.measure(what, compare_two_launches(runs), cases=1)
        if gradients := compare_gradients(runs):  # in two launches since 4533d99
            what = f"{gpu}: {GRADIENT} and {DELTA} against attention_cudnn_backward"
            yield bounds.measure(what, statistics.geometric_mean(gradients), cases=len(gradients))
    replays = [row for row in _read_rows(STORY) if row["row"] == "replay"]
    launches = sum(len(row["good_us"]) for row in replays)
    gpu_s = sum(row["gpu_s"] for row in replays)
    for row in replays:
        size = statistics.median(row["bad_us"]) / statistics.median(row["good_us"]) - 1
        what = f"{STORY.parent.name}, replay of commit {row['bad']['commit']['position']}: size; GPU"
        yield Figure(what, f"{100 * size:+.1f} %; {row['gpu_s']:.1f} s")
    yield Figure(f"GPU seconds of a replay's launch, {launches} launches", f"{gpu_s / launches:.2f} s")
    nights = [run for run in read_runs(BEFORE[0]) if (run.kernel, run.problem) == ("gemm_fp8", SHOWN_PROBLEM)]
    what = f"{len(nights)} nights of gemm_fp8 {SHOWN_PROBLEM}"
    yield Figure(f"{what}: samples of a night, deviation", _percent(max(map(_deviation, nights))))
    yield Figure(f"{what}: medians apart", _percent(_span([night.winner_us for night in nights])))
    yield Figure(f"{what}: ratios apart", _percent(_span([night.ratios["deepgemm"] for night in nights])))


def compare_two_launches(runs: Sequence[Recorded]) -> float:
    """Returns cuDNN's time divided by the sum of our two launches, for the fastest number of parts. cuDNN was measured
    beside our kernel of one launch."""
    (one,) = (run for run in runs if run.kernel == "attention_decode" and run.problem == ONE_TOKEN)
    times_us: dict[str, float] = {}
    for run in runs:
        if run.kernel in TWO_LAUNCHES and run.problem.startswith(f"{ONE_TOKEN}-"):
            times_us[run.problem] = times_us.get(run.problem, 0.0) + run.winner_us
    return one.winner_us * one.ratios["attention_cudnn"] / min(times_us.values())


def compare_gradients(runs: Sequence[Recorded]) -> list[float]:
    """Returns, for the gradient of each problem, cuDNN's time divided by the sum of our two launches. cuDNN was
    measured beside the second launch."""
    delta_us = {run.problem: run.winner_us for run in runs if run.kernel == DELTA}
    return [
        run.winner_us * run.ratios["attention_cudnn_backward"] / (run.winner_us + delta_us[run.problem])
        for run in runs
        if run.kernel == GRADIENT and run.problem in delta_us
    ]


def _deviation(run: Recorded) -> float:
    """Returns the standard deviation of a run as a share of its median. It is estimated as 1.4826 times the median of
    absolute deviations."""
    apart_us = [abs(sample_us - run.winner_us) for sample_us in run.winner_samples_us]
    return 1.4826 * statistics.median(apart_us) / run.winner_us


def _span(values: Sequence[float]) -> float:
    return max(values) / min(values) - 1


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _format_ratio(ratio: float | None) -> str:
    """Returns a ratio as text, with more digits if it is far under 1. Returns "" for a baseline that was not
    measured."""
    if ratio is None:
        return ""
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.3f}"


def _format_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


if __name__ == "__main__":
    main()
