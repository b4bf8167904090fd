"""Counts how many public cuTile kernels watch files reach: recorded from host code, and compiled for each architecture.

python -m benchmarks.watch_coverage --tilegym CLONE --cutile CLONE [--arch sm_90]

The clones are of github.com/NVIDIA/TileGym and github.com/NVIDIA/cutile-python. Each one's commit is copied, and the
watch files of benchmarks/watch_files are laid over it. Every operator and problem is recorded, and each kernel compiled
until one config does. No GPU is needed, PyTorch is (its CPU build): without it much host code cannot be traced.
It ends with 1 where a bound is missed.
"""

import argparse
import importlib.util
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import bounds
from benchmarks.watch_coverage.sources import KernelName, count_lines, list_kernels, list_unused

ARCHS = ("sm_90", "sm_100")
WATCH_FILES = Path(__file__).resolve().parent.parent / "watch_files"
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Repository:
    """A public repository: the kernels in the folder `sources` count; its package is imported from `path`."""

    name: str
    sources: str
    path: tuple[str, ...]


REPOSITORIES = (
    Repository("tilegym", "src/tilegym", ("src",)),
    Repository("cutile", "samples", ("samples", "samples/quickstart")),
)


@dataclass(frozen=True)
class Found:
    """Results for one repository. `outcomes` are by architecture: "ok", "not recorded" or why it failed."""

    name: str
    commit: str
    kernels: Sequence[KernelName]
    unused: Sequence[KernelName]
    outcomes: Mapping[str, Mapping[KernelName, str]]
    failures: Sequence[str]
    lines: Mapping[str, float]

    def list_missed(self) -> dict[KernelName, str]:
        """Returns the reason for each kernel that did not compile for every architecture."""
        missed = {}
        for kernel in self.kernels:
            reasons = {arch: each[kernel] for arch, each in self.outcomes.items() if each[kernel] != "ok"}
            if reasons:
                unused = "no code of the repository uses it" if kernel in self.unused else ""
                missed[kernel] = unused or "; ".join(f"{arch}: {reason}" for arch, reason in reasons.items())
        return missed


def measure(repository: Repository, clone: Path, archs: Sequence[str]) -> Found:
    """Copies the watch files over the clone's commit, and traces and compiles them for all architectures at once."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve() / repository.name
        _run("git", "clone", "--quiet", "--no-hardlinks", str(clone), str(root))
        kernels = list_kernels(root, repository.sources)
        unused = list_unused(root, kernels)
        shutil.copytree(WATCH_FILES / repository.name, root / "watch")
        with root.joinpath("pyproject.toml").open("a") as settings:
            settings.write(f'\n[tool.tilewatch]\nwatch = "watch"\npath = {json.dumps(repository.path)}\n')
        with ThreadPoolExecutor(len(archs)) as pool:
            rows = dict(zip(archs, pool.map(lambda arch: _run_child(root / "watch", arch), archs), strict=True))
        shutil.rmtree(root / "watch" / "__pycache__", ignore_errors=True)
        first = [row for row in rows[archs[0]] if "operator" in row]
        return Found(
            name=repository.name,
            commit=_run("git", "-C", str(root), "rev-parse", "HEAD").strip(),
            kernels=kernels,
            unused=unused,
            outcomes={arch: find_outcomes(rows[arch], kernels) for arch in archs},
            failures=sorted({row["failure"] for arch in archs for row in rows[arch] if "failure" in row}),
            lines=count_lines(root / "watch", Counter(row["watch_file"] for row in first)),
        )


def find_outcomes(rows: Sequence[Row], kernels: Sequence[KernelName]) -> dict[KernelName, str]:
    """Returns "ok", "not recorded" or the last failure for each kernel."""
    found = dict.fromkeys(kernels, "not recorded")
    for row in rows:
        kernel = KernelName(row.get("file", ""), row.get("name", ""))
        if found.get(kernel, "ok") != "ok":
            found[kernel] = row["outcome"]
    return found


def _run_child(watch: Path, arch: str) -> list[Row]:
    command = [sys.executable, "-m", "benchmarks.watch_coverage.record", str(watch), arch]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{watch} for {arch} ended with {done.returncode}:\n{done.stderr[-2000:]}", file=sys.stderr)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def list_figures(found: Sequence[Found]) -> list[bounds.Figure]:
    """Returns the share of all kernels, the share of those that are used, and the lines per operator."""
    every = [kernel for each in found for kernel in each.kernels]
    used = [kernel for each in found for kernel in each.kernels if kernel not in each.unused]
    missed = {kernel for each in found for kernel in each.list_missed()}
    archs = " and ".join(found[0].outcomes)
    lines = [count for each in found for count in each.lines.values()]
    compiled = f"kernels recorded and compiled for {archs}"
    return [
        bounds.Figure(f"{compiled}, of all {len(every)}", f"{100 * (1 - len(missed) / len(every)):.1f} %"),
        bounds.measure(
            f"{compiled}, of the {len(used)} that their repository uses",
            100 * (1 - len(missed & set(used)) / len(used)),
            cases=len(used),
        ),
        bounds.measure(f"lines per operator, median of {len(lines)}", statistics.median(lines), cases=len(lines)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for repository in REPOSITORIES:
        parser.add_argument(f"--{repository.name}", type=Path, required=True, help="a clone of the repository")
    parser.add_argument("--arch", action="append", help=f"default: {' and '.join(ARCHS)}")
    bounds.add_options(parser)
    given = parser.parse_args()
    for repository in REPOSITORIES:
        clone = getattr(given, repository.name)
        if not clone.exists():
            parser.error(f"--{repository.name}: there is no {clone}; git clone makes it")
    if importlib.util.find_spec("torch") is None:
        parser.error("PyTorch is not installed; `pip install torch` (the CPU build is enough) into this environment")
    found = [measure(each, getattr(given, each.name), given.arch or ARCHS) for each in REPOSITORIES]
    for each in found:
        print(f"{each.name} {each.commit[:12]}: {len(each.kernels)} kernels, {len(each.lines)} operators")
        for sentence in each.failures:
            print(f"  left out: {sentence}")
        for kernel, reason in each.list_missed().items():
            print(f"  missed: {kernel.file}: {kernel.name}: {reason}")
    sys.exit(bounds.report(list_figures(found), report_only=given.report_only, write=given.write))


if __name__ == "__main__":
    main()
