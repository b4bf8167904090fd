"""Measures how small a change `tilewatch compare --margin 0.1%` finds on this machine's GPU.

    python -m benchmarks.gpu.small_changes [--seconds S] [--keep FILE] [--write FILE]

Planted: a repository of two commits with the kernels of benchmarks/gpu/planted. In the second one each loop has 0.15 %
more steps, so each kernel takes 0.15 % longer. The command itself compares them.

A/A: the smallest nightly problem of each of 40 library kernels, with one cubin on both sides. The command does not time
equal code, so its parts are called here: the same bench and the same rules, each pair judged as if compared alone.
--seconds limits this part. --keep writes the launches of both parts."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import bounds
from benchmarks.bounds import Figure
from benchmarks.library import compile_ahead
from tilewatch.kernels import device
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.comparing.gpu_bench import open_bench
from tilewatch.kernels.comparing.timing_order import Key, Timing, TimingRun
from tilewatch.kernels.comparing.verdict import Design
from tilewatch.kernels.compiling import store
from tilewatch.kernels.library import FOLDER
from tilewatch.kernels.measuring.pair_bench import PairWork, ReplaySide
from tilewatch.kernels.results import Plan

PLANTED_FOLDER = Path(__file__).parent / "planted"
SETTING = "MORE_STEPS_OF_8000 = 0"
PLANTED_STEPS = 12
PLANTED = PLANTED_STEPS / 8000
MARGIN, LAUNCHES = 0.001, 400
AA_PAIRS = 40

Row = Mapping[str, Any]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--seconds", type=float, default=900.0, help="start no launch of the A/A part after so long")
    asked.add_argument("--keep", type=Path, metavar="FILE", help="write the launches to this JSON file")
    bounds.add_options(asked)
    options = asked.parse_args()
    sys.exit(
        bounds.report(measure(options.seconds, options.keep), report_only=options.report_only, write=options.write)
    )


def measure(seconds: float, keep: Path | None) -> Iterator[Figure]:
    kept: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="tilewatch-small-") as scratch:
        yield from _find_planted(Path(scratch), kept)
        yield from _compare_same(Path(scratch), seconds, kept)
    if keep is not None:
        keep.write_text(json.dumps(kept))


def _find_planted(scratch: Path, kept: list[Row]) -> Iterator[Figure]:
    """Compares the two commits with the command, and yields how many kernels are called slower."""
    repository = scratch / "repository"
    shutil.copytree(PLANTED_FOLDER, repository / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    file = repository / "kernels" / "loops.py"
    source = file.read_text()
    assert SETTING in source
    subprocess.run(["git", "init", "--quiet"], cwd=repository, check=True)
    for steps in (0, PLANTED_STEPS):
        file.write_text(source.replace(SETTING, f"MORE_STEPS_OF_8000 = {steps}"))
        _commit(repository, f"Take {steps} more steps")
    command = [sys.executable, "-m", "tilewatch.worker.cli.main", "compare", "HEAD~1..HEAD", "--library", "kernels"]
    command += ["--configs", "sweep", "--margin", f"{MARGIN:.1%}", "--launches", str(LAUNCHES), "--json"]
    environment = {**os.environ, "TILEWATCH_HOME": str(scratch / "home")}
    done = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=False)
    if not done.stdout.startswith("{"):
        yield bounds.not_measured("planted +0.15 %", f"compare ended with {done.returncode}: {done.stderr[-400:]}")
        return
    answer = json.loads(done.stdout)
    rows = [row for row in answer["outcomes"] if row["verdict"] is not None]
    for row in rows:
        print(f"  {row['kernel']} {row['problem']}: {row['sentence']}", flush=True)
        kept.append({name: row[name] for name in ("kernel", "problem", "base_us", "head_us")} | {"planted": PLANTED})
    found = [row["verdict"]["kind"] == "slower" for row in rows]
    what = f"planted +{PLANTED:.2%}: found with its sign"
    yield bounds.measure(what, 100 * sum(found) / max(1, len(found)), cases=len(found), text=_count(found))
    gpu_s = answer["gpu_s"] / max(1, len(rows))
    yield bounds.measure(f"planted +{PLANTED:.2%}: GPU time per kernel and problem", gpu_s, cases=len(rows))
    covered = [row["verdict"]["low"] <= PLANTED <= row["verdict"]["high"] for row in rows]
    yield Figure(f"planted +{PLANTED:.2%}: 95 % intervals that cover it", _count(covered))


def _compare_same(scratch: Path, seconds: float, kept: list[Row]) -> Iterator[Figure]:
    """Compares cubins with themselves, and yields how many are called slower or faster."""
    gpu = device.find_gpu()
    assert gpu.model is not None
    url = store.folder(scratch / "cubins")
    plans = _choose_smallest(catalog.read(FOLDER, arch=gpu.model.arch))
    works = []
    for plan, cubins, _ in compile_ahead(FOLDER, plans, url):
        side = ReplaySide(FOLDER, cubins[0])
        works.append(PairWork(plan.kernel, plan.problem, side, side))
    design = Design(operators=1, most_launches=LAUNCHES, margin=MARGIN)
    stop_at = time.monotonic() + seconds

    def show(key: Key, timing: Timing) -> None:
        verdict = timing.judge(design)
        if timing.failure or (verdict and verdict.is_final):
            print(f"  {' '.join(key)}: {timing.failure or verdict}", flush=True)

    run = TimingRun(works, design, show)
    bench = open_bench(gpu, url)
    try:
        run.run(bench, lambda: time.monotonic() > stop_at)
    finally:
        bench.close()
    timed = {key: timing for key, timing in run.timings.items() if timing.base_us}
    kept += [
        {"kernel": key[0], "problem": key[1], "base_us": each.base_us, "head_us": each.head_us, "planted": 0.0}
        for key, each in timed.items()
    ]
    for key, timing in run.timings.items():
        if timing.failure:
            yield bounds.not_measured(f"A/A of {key[0]} {key[1]}", timing.failure)
    verdicts = [verdict for each in timed.values() if (verdict := each.judge(design)) is not None]
    called = [each.kind in ("slower", "faster") for each in verdicts]
    what = "A/A on the GPU at a margin of 0.1 %: called slower or faster"
    yield bounds.measure(what, 100 * sum(called) / max(1, len(called)), cases=len(called), text=_count(called))
    yield Figure("A/A on the GPU: not slower than 0.1 %", _count([each.kind == "not slower" for each in verdicts]))
    yield Figure(
        "A/A on the GPU: 95 % intervals that cover 0", _count([each.low <= 0 <= each.high for each in verdicts])
    )
    launches = sorted(each.launches for each in verdicts)
    yield Figure("A/A on the GPU: launches, median and most", f"{launches[len(launches) // 2]}, {launches[-1]}")
    yield Figure("A/A on the GPU: GPU time per pair", f"{bench.gpu_s / max(1, len(timed)):.0f} s")


def _choose_smallest(plans: Sequence[Plan]) -> list[Plan]:
    """Returns the smallest problem of each kernel, with three configs of which one surely compiles."""
    smallest: dict[str, Plan] = {}
    for plan in sorted(plans, key=lambda plan: plan.bytes):
        smallest.setdefault(plan.kernel, plan)
    return [replace(plan, trials=plan.trials[:3], drawn=0) for plan in list(smallest.values())[:AA_PAIRS]]


def _commit(repository: Path, subject: str) -> None:
    subprocess.run(["git", "add", "."], cwd=repository, check=True)
    identity = ["-c", "user.name=Bench", "-c", "user.email=bench@example.org"]
    subprocess.run(["git", *identity, "commit", "--quiet", "-m", subject], cwd=repository, check=True)


def _count(hits: Sequence[bool]) -> str:
    return f"{sum(hits)} of {len(hits)}"


if __name__ == "__main__":
    main()
