"""Takes the figures of docs/develop/measurements.md by the benchmarks of benchmarks/bounds.toml, one after the other.

    python -m tools.figures [NAME...]   # what this machine can run without a GPU, and the list of advisories
    python -m tools.figures --gpu       # what needs an NVIDIA GPU
    python -m tools.figures --check     # runs nothing

Each result is a file of benchmarks/results, and the page is made of them. Ends with 1 where a benchmark failed, where a
result is older than the code that it measures, or where the page differs from the results.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from benchmarks.bounds import RESULTS, ROOT, read_result, read_results
from tools import measurements
from tools.benchmark_runs import Run, read_runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="*", help="only these results; all that can be taken here by default")
    parser.add_argument("--gpu", action="store_true", help="those that need an NVIDIA GPU")
    parser.add_argument("--check", action="store_true", help="run nothing: say what is old or differs")
    options = parser.parse_args()
    runs = choose(read_runs(), options.name, gpu=options.gpu)
    failed = [] if options.check else list(take(runs, with_advisories=not options.gpu and not options.name))
    if not options.check:
        measurements.main()
    problems = [*(f"{name}: it failed" for name in failed), *list_old(runs), *list_different()]
    print("\n".join(problems) or "every figure is of the code that is here")
    sys.exit(1 if problems else 0)


def choose(runs: Sequence[Run], names: Sequence[str], *, gpu: bool) -> list[Run]:
    """Returns the runs with these names. Without names, returns those that need a GPU if `gpu` is True, else those that
    need none. Ends the program for an unknown name."""
    known = {run.name: run for run in runs}
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"there is no result {unknown[0]}; known: {', '.join(known)}")
    return [known[name] for name in names] or [run for run in runs if run.gpu == gpu]


def take(runs: Sequence[Run], *, with_advisories: bool) -> Iterator[str]:
    """Runs the benchmarks and yields the names of those that failed. A figure that misses its bound is no failure."""
    if with_advisories and _run("advisories", ["-m", "tools.advisories"]):
        yield "advisories"
    for run in runs:
        if missing := [path for path in run.needs if not (ROOT / path).exists()]:
            print(f"{run.name} was not run: there is no {', '.join(missing)} here", flush=True)
            continue
        file = RESULTS / f"{run.name}.json"
        if _run(run.name, [*run.arguments, "--report-only", "--write", str(file.relative_to(ROOT))]):
            yield run.name


def _run(name: str, arguments: Sequence[str]) -> int:
    print(f"== {name}", flush=True)
    began = time.monotonic()
    code = subprocess.run([sys.executable, *arguments], cwd=ROOT, check=False).returncode
    print(f"== {name}: {time.monotonic() - began:.0f} s, exit code {code}", flush=True)
    return code


def list_old(runs: Sequence[Run]) -> Iterator[str]:
    """Yields a line for each result that is old: what the benchmark measures has changed since."""
    for run in runs:
        file = RESULTS / f"{run.name}.json"
        if not file.exists():
            yield f"{run.name}: it was never taken"
            continue
        commit = read_result(file).commit.partition(" ")[0]
        asked = ["git", "-C", str(ROOT), "diff", "--quiet", commit, "--", *run.measures]
        if subprocess.run(asked, capture_output=True, check=False).returncode:
            yield f"{run.name}: {', '.join(run.measures)} changed since {commit}"


def list_different() -> Iterator[str]:
    for name, page in measurements.write_pages(read_results().values()).items():
        if (measurements.FOLDER / name).read_text(encoding="utf-8") != page:
            yield f"{name}: it differs from the results"


if __name__ == "__main__":
    main()
