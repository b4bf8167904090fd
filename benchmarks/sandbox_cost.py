"""Measures how much more CPU time the compiler takes for a search space in the sandbox than without it.

    python -m benchmarks.sandbox_cost [--kernel softmax] [--pairs 9] [--report-only]

A pair compiles the space twice into new folders, with the sandbox and with TILEWATCH_SANDBOX=off, in random order. CPU
time of all processes is counted, because other work on the machine changes it least. `python -m benchmarks.gpu.sweep`
compares sweeps on a GPU if it is run with and without the sandbox."""

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from benchmarks import bounds
from benchmarks.bounds import Figure
from tilewatch.kernels.children import sandbox

SIDES = ("on", "off")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--kernel", default="softmax")
    asked.add_argument("--pairs", type=int, default=9)
    asked.add_argument("--seed", type=int, default=1)
    bounds.add_options(asked)
    options = asked.parse_args()
    if sandbox.find_level() is not sandbox.Level.FULL:
        raise SystemExit(f"the sandbox keeps a child only from {sandbox.find_level().value} here")
    figures = measure(options.kernel, options.pairs, random.Random(options.seed))  # noqa: S311 - an order of pairs
    sys.exit(bounds.report(figures, report_only=options.report_only, write=options.write))


def measure(kernel: str, pairs: int, chance: random.Random) -> Iterator[Figure]:
    taken = []
    for _ in range(pairs):
        cpu_s = {side: measure_cpu_s(kernel, side) for side in chance.sample(SIDES, len(SIDES))}
        taken.append((cpu_s["on"], cpu_s["off"]))
    more_pct = [100 * (on / off - 1) for on, off in taken]
    yield Figure(f"CPU time of {kernel} without it", f"{statistics.median(off for _, off in taken):.1f} s")
    low, _, high = statistics.quantiles(more_pct, n=4)
    yield Figure("quartiles of more CPU time", f"{low:+.1f} % and {high:+.1f} %")
    yield bounds.measure("more CPU time in the sandbox", statistics.median(more_pct), cases=pairs)


def measure_cpu_s(kernel: str, side: str) -> float:
    """Returns the CPU seconds of a command that compiles the kernel's space, including those of its child processes."""
    with tempfile.TemporaryDirectory(prefix="tilewatch-sandbox-cost-") as folder:
        command = ("compile", kernel, "--arch", "sm_90", "--jobs", "1", "--cubins", folder, "--json")
        running = subprocess.Popen(
            [sys.executable, "-m", "tilewatch.kernels", *command],
            env={**os.environ, sandbox.SWITCH: side},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
    if running.returncode:
        raise SystemExit(f"{kernel} was not compiled with the sandbox {side}")
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
