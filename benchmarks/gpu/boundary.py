"""Compares sweeps before and after a change of how results are timed and checked: right configs, winners, ratios, time.

    python -m benchmarks.gpu.boundary take OLD FOLDER [KERNEL ...] [--seconds S] [--again] [--cubins FOLDER]
    python -m benchmarks.gpu.boundary judge FOLDER

OLD is a checkout of a commit before the change (`git worktree add OLD e7265afa`). Since the change on 2026-11-28,
results are compared on two input sets and by two measures. `take` compiles OLD's library once, on half of the cores,
because an old product cannot read a newer library. It measures each problem of the nightly suite with both products in
turns, and continues where it stopped. With --again the old one measures each problem twice, to show how far two runs of
one version differ. Each side's results are a file of FOLDER, one line per problem. `judge` needs no GPU.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import bounds
from benchmarks.bounds import Figure
from benchmarks.library import compile_ahead
from tilewatch import processes
from tilewatch.configs import config_key
from tilewatch.kernels import device
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.compiling import store
from tilewatch.kernels.statistics import ratio_interval

OLD, NEW, AGAIN = "old", "new", "again"
MOST_PCT = 0.3

Row = Mapping[str, Any]
Results = Mapping[tuple[str, str], Row]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = asked.add_subparsers(dest="command", required=True)
    take = commands.add_parser("take")
    take.add_argument("old", type=Path)
    take.add_argument("folder", type=Path)
    take.add_argument("kernel", nargs="*", help="kernels; the nightly suite when none is named")
    take.add_argument("--seconds", type=float, default=float("inf"), help="start no further problem after these")
    take.add_argument("--again", action="store_true")
    take.add_argument("--cubins", type=Path, help="folder of cubins to go on from; FOLDER/cubins by default")
    judged = commands.add_parser("judge")
    judged.add_argument("folder", type=Path)
    bounds.add_options(judged)
    options = asked.parse_args()
    if options.command == "take":
        sys.exit(_take(options))
    found = {side: read(options.folder / f"{side}.jsonl") for side in (OLD, NEW, AGAIN)}
    sys.exit(
        bounds.report(judge(found[OLD], found[NEW], found[AGAIN]), report_only=options.report_only, write=options.write)
    )


def read(file: Path) -> dict[tuple[str, str], Row]:
    """Returns the rows of a side by kernel and problem; empty if there is no such file."""
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return {(row["kernel"], row["problem"]): row for row in rows}


def judge(old: Results, new: Results, again: Results) -> Iterator[Figure]:
    wanted = max((row["of"] for row in (*old.values(), *new.values())), default=0)
    both = [each for each in old if each in new and "failure" not in old[each] and "failure" not in new[each]]
    for kernel, problem in sorted({*old, *new} - set(both)):
        failures = [
            row.get("failure", "measured") for row in (old.get((kernel, problem)), new.get((kernel, problem))) if row
        ]
        yield bounds.not_measured(f"{kernel} {problem}", "; ".join(failures))
    yield bounds.measure(
        "problems measured by both",
        f"{len(both)} of {wanted}",
        wanted=f"{wanted or 'some'} of {wanted}",
        cases=len(both),
    )
    yield bounds.measure(
        "kernels measured apart from the library",
        sum(_is_parted(new[each]) for each in both),
        wanted=len(both),
        cases=len(both),
    )
    lost = [sentence for each in both for sentence in list_lost(old[each], new[each])]
    for sentence in lost:
        yield Figure(sentence, "")
    yield bounds.measure("configs that were right and are wrong now", len(lost), cases=len(both))
    yield from _compare("", {each: old[each] for each in both}, new)
    yield bounds.measure("wall time, new / old", _wall(both, new) / max(_wall(both, old), 1e-9), cases=len(both))
    if twice := {each: old[each] for each in both if each in again and "failure" not in again[each]}:
        for figure in _compare("old / old: ", twice, again):
            yield Figure(figure.what, figure.value)
        yield Figure("old / old: wall time", f"{_wall(list(twice), again) / _wall(list(twice), old):.3f}")


def _compare(prefix: str, old: Results, new: Results) -> Iterator[Figure]:
    same, moved = [], {}
    for each, before in old.items():
        after, name = new[each], f"{prefix}{each[0]} {each[1]}"
        winner = name_winner(before, after)
        same.append(winner != "ANOTHER WINNER")
        pcts = moved_pct(before, after)
        parts = ", ".join(f"{baseline} {pct:+.2f} %" for baseline, pct in pcts.items()) or "no baseline"
        yield Figure(f"{name}: {winner}; {parts}; wall {after['wall_s'] / before['wall_s']:.2f}", "")
        if pcts:
            moved[name] = next(iter(pcts.values()))
    yield bounds.measure(
        f"{prefix}winners that are the same or tied",
        f"{sum(same)} of {len(same)}",
        wanted=f"{len(same)} of {len(same)}",
        cases=len(same),
    )
    if not moved:
        yield bounds.not_measured(f"{prefix}ratios to first baseline", "no problem has one")
        return
    within = sum(abs(pct) <= MOST_PCT for pct in moved.values())
    yield bounds.measure(
        f"{prefix}ratios to first baseline within {MOST_PCT} %",
        f"{within} of {len(moved)}",
        wanted=f"{len(moved)} of {len(moved)}",
        cases=len(moved),
    )
    worst = max(moved, key=lambda each: abs(moved[each]))
    sizes = [abs(pct) for pct in moved.values()]
    yield Figure(
        f"{prefix}median and mean of their sizes", f"{statistics.median(sizes):.2f} %, {statistics.mean(sizes):.2f} %"
    )
    yield Figure(f"{prefix}mean with sign", f"{statistics.mean(moved.values()):+.2f} %")
    yield Figure(f"{prefix}largest: {worst}", f"{moved[worst]:+.2f} %")


def list_lost(old: Row, new: Row) -> list[str]:
    """Returns the configs that the old product timed and this one calls wrong, with the reason."""
    right = {config_key(trial["config"]) for trial in old["trials"] if trial["status"] == "timed"}
    return [
        f"{new['kernel']} {new['problem']} {config_key(trial['config'])}: {trial['failure']}"
        for trial in new["trials"]
        if trial["status"] == "wrong" and config_key(trial["config"]) in right
    ]


def name_winner(old: Row, new: Row) -> str:
    """Returns "same winner", "tied" or "ANOTHER WINNER". Winners are tied if one sweep could not tell them apart
    (RacePolicy.tie)."""
    winners = [config_key(side["winner"]) if side["winner"] else "" for side in (old, new)]
    ties = [{config_key(each) for each in side["tie"]} for side in (old, new)]
    if winners[0] == winners[1]:
        return "same winner"
    return "tied" if winners[0] in ties[1] or winners[1] in ties[0] else "ANOTHER WINNER"


def moved_pct(old: Row, new: Row) -> dict[str, float]:
    """Returns by how much the ratio of each baseline over ours changed, in the order in which the kernel names them."""
    before, after = _ratios(old), _ratios(new)
    return {baseline: (after[baseline] / ratio - 1) * 100 for baseline, ratio in before.items() if baseline in after}


def _ratios(row: Row) -> dict[str, float]:
    ours, *baselines = row["measurements"] or [None]
    intervals = {each["implementation"]: ratio_interval(ours["samples_us"], each["samples_us"]) for each in baselines}
    return {baseline: interval.median for baseline, interval in intervals.items() if interval is not None}


def _is_parted(row: Row) -> bool:
    return bool(row["measurements"] and row["measurements"][0]["detail"].get("library_runs_apart"))


def _wall(which: Sequence[tuple[str, str]], rows: Results) -> float:
    return sum(float(rows[each]["wall_s"]) for each in which)


def _take(options: argparse.Namespace) -> int:
    ends = time.monotonic() + options.seconds
    here = device.find_gpu()
    assert here.model is not None
    library, arch = options.old.absolute() / "kernels" / "library", here.model.arch
    folder: Path = options.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    url = store.folder((options.cubins or folder / "cubins").absolute())
    names = (OLD, NEW, AGAIN) if options.again else (OLD, NEW)
    done = [set(read(folder / f"{name}.jsonl")) for name in names]
    suite = [plan for kernel in options.kernel or [None] for plan in catalog.read(library, arch=arch, kernel=kernel)]
    plans = [plan for plan in suite if not all((plan.kernel, plan.problem) in each for each in done)]
    sides = {name: start(bounds.ROOT if name == NEW else options.old.absolute()) for name in names}
    jobs = max(1, processes.count_cores() // 2)
    try:
        for number, (plan, cubins, _) in enumerate(compile_ahead(library, plans, url, jobs=jobs)):
            if time.monotonic() > ends:
                print(f"{len(plans) - number} of {len(suite)} problems are left: run it again", flush=True)
                break
            place = plan.kernel, plan.problem
            question = {
                "library": str(library),
                "kernel": plan.kernel,
                "problem": plan.problem,
                "arch": arch,
                "gpu_index": here.index,
                "store": url,
                "baselines": plan.baselines,
                "cubins": [asdict(each) for each in cubins],
            }
            for name in names if number % 2 else reversed(names):
                if place in done[names.index(name)]:
                    continue
                row = {"kernel": plan.kernel, "problem": plan.problem, "of": len(suite), **ask(sides[name], question)}
                with (folder / f"{name}.jsonl").open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(f"{name:5} {plan.kernel} {plan.problem}: {row.get('failure') or row['wall_s']}", flush=True)
    finally:
        for side in sides.values():
            side.communicate()
    return 0


def start(checkout: Path) -> subprocess.Popen[str]:
    """Starts a side: the product of that checkout, in this process's environment."""
    path = processes.python_path(checkout / "src")
    environment = {**os.environ, "PYTHONPATH": path}
    program = Path(__file__).with_name("boundary_side.py")
    # -P: the product must not find the modules in the program's folder first.
    return subprocess.Popen(
        [sys.executable, "-P", str(program)],
        cwd=checkout,
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def ask(side: subprocess.Popen[str], question: Mapping[str, object]) -> dict[str, Any]:
    assert side.stdin is not None
    assert side.stdout is not None
    side.stdin.write(json.dumps(question) + "\n")
    side.stdin.flush()
    line = side.stdout.readline()
    if not line:
        raise SystemExit(f"a side ended with exit code {side.wait()}")
    answer: dict[str, Any] = json.loads(line)
    return answer


if __name__ == "__main__":
    main()
