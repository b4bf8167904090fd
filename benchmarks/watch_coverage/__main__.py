"""Counts how many public cuTile kernels watch files reach: recorded from host code, and compiled for each architecture.

python -m benchmarks.watch_coverage --tilegym CLONE --cutile CLONE [--others FOLDER] [--arch sm_90] [--proposed]

The clones are of github.com/NVIDIA/TileGym and github.com/NVIDIA/cutile-python; the folder holds clones of OTHERS under
their names. Each one's commit is copied, and the watch files of benchmarks/watch_files are laid over it, or with
--proposed those that Tilewatch proposes. Every operator and problem is recorded, and each kernel compiled until one
config does. No GPU is needed, PyTorch is (its CPU build): without it much host code cannot be traced.
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
from benchmarks.watch_coverage.sources import count_lines, list_kernels, list_unused
from tilewatch.kernels.proposing.proposal import propose
from tilewatch.kernels.proposing.repository_sources import KernelName

ARCHS = ("sm_90", "sm_100")
WATCH_FILES = Path(__file__).resolve().parent.parent / "watch_files"
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Repository:
    """A public repository: the kernels in the folder `sources` count; its package is imported from `path`. `commit` is
    None for the commit of the clone."""

    name: str
    sources: str
    path: tuple[str, ...]
    owner: str = "NVIDIA"
    commit: str | None = None

    @property
    def watch_files(self) -> Path:
        return WATCH_FILES / ("others" if self.commit else "") / self.name


REPOSITORIES = (
    Repository("tilegym", "src/tilegym", ("src",)),
    Repository("cutile", "samples", ("samples", "samples/quickstart")),
)

OTHERS = (
    Repository("bastile", "src", ("src",), "aghilann", "722bcc0b01446467723b834c0dd453b9d7ee939b"),
    Repository("cutileGPT", "cutile_gpt", (".",), "falcons-eyes", "cd9616997cf16ba520f96b034f82a8c8414f35ae"),
    Repository("cutile-kernels", ".", (".",), "tavakkoliamirmohammad", "8c3234e1f351131a520700a86dc4bde2e3bf590e"),
    Repository("cutile-transformers", "cutile", (".",), "Menooker", "78ce3e0356510fb5c495a87fcff545d78e19cb57"),
    Repository("turboquant_cutile", ".", (".",), "DevTechJr", "9f9a321d9415dda3e1dc9d1c690a370e4b03bca2"),
    Repository("cutile-flashattn", ".", (".",), "Charbel199", "7c9c2cda82d2f73ef16ad8966a3e22f342f313a5"),
)
"""Repositories found by a search for `import cuda.tile` (2026-11-28): a training backend on PyTorch, a model on CuPy,
benchmark scripts, an inference engine, quantisation and an attention."""


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
        """Returns, for each kernel that failed for some architecture, the reasons, or only that no code uses it."""
        missed = {}
        for kernel in self.kernels:
            reasons = {arch: each[kernel] for arch, each in self.outcomes.items() if each[kernel] != "ok"}
            if reasons:
                unused = "no code of the repository uses it" if kernel in self.unused else ""
                missed[kernel] = unused or "; ".join(f"{arch}: {reason}" for arch, reason in reasons.items())
        return missed


def measure(repository: Repository, clone: Path, archs: Sequence[str], *, proposed: bool = False) -> Found:
    """Returns what watch files reach in the clone's commit: ours or, if `proposed`, those that Tilewatch proposes.
    Traces and compiles for all architectures at once."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve() / repository.name
        _run("git", "clone", "--quiet", "--no-hardlinks", str(clone), str(root))
        if repository.commit:
            _run("git", "-C", str(root), "checkout", "--quiet", repository.commit)
        kernels = list_kernels(root, repository.sources)
        unused = list_unused(root, kernels)
        if proposed:
            text = propose(root, archs[0], Path(folder, "cubins").as_uri()).text
            root.joinpath("watch", "proposed.py").write_text(text)
        else:
            shutil.copytree(repository.watch_files, root / "watch")
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


def list_figures(found: Sequence[Found], of: str = "") -> list[bounds.Figure]:
    """Returns the share of all kernels, the share of those that are used, and the lines per operator. `of` begins the
    names of the figures."""
    every = [kernel for each in found for kernel in each.kernels]
    used = [kernel for each in found for kernel in each.kernels if kernel not in each.unused]
    missed = {kernel for each in found for kernel in each.list_missed()}
    archs = " and ".join(found[0].outcomes)
    lines = [count for each in found for count in each.lines.values()]
    compiled = f"{of}kernels recorded and compiled for {archs}"
    return [
        bounds.Figure(f"{compiled}, of all {len(every)}", f"{100 * (1 - len(missed) / len(every)):.1f} %"),
        bounds.measure(
            f"{compiled}, of the {len(used)} that their repository uses",
            100 * (1 - len(missed & set(used)) / len(used)),
            cases=len(used),
        ),
        bounds.measure(f"{of}lines per operator, median of {len(lines)}", statistics.median(lines), cases=len(lines)),
    ]


def list_proposed(found: Sequence[Found]) -> list[bounds.Figure]:
    """Returns the share of the used kernels that proposed watch files reach."""
    used = [kernel for each in found for kernel in each.kernels if kernel not in each.unused]
    missed = [kernel for each in found for kernel in each.list_missed() if kernel not in each.unused]
    share = 100 * (1 - len(missed) / len(used))
    return [bounds.measure(f"kernels that proposed files reach, of {len(used)}", share, cases=len(used))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for repository in REPOSITORIES:
        parser.add_argument(f"--{repository.name}", type=Path, required=True, help="a clone of the repository")
    parser.add_argument("--others", type=Path, help="a folder with clones of OTHERS")
    parser.add_argument("--proposed", action="store_true", help="measure proposed watch files instead")
    parser.add_argument("--arch", action="append", help=f"default: {' and '.join(ARCHS)}")
    bounds.add_options(parser)
    given = parser.parse_args()
    for repository in REPOSITORIES:
        clone = getattr(given, repository.name)
        if not clone.exists():
            parser.error(f"--{repository.name}: there is no {clone}; git clone makes it")
    if importlib.util.find_spec("torch") is None:
        parser.error("PyTorch is not installed; `pip install torch` (the CPU build is enough) into this environment")
    archs = given.arch or ARCHS
    found = [measure(each, getattr(given, each.name), archs, proposed=given.proposed) for each in REPOSITORIES]
    others = [
        measure(each, given.others / each.name, archs, proposed=given.proposed) for each in OTHERS if given.others
    ]
    for each in (*found, *others):
        print(f"{each.name} {each.commit[:12]}: {len(each.kernels)} kernels, {len(each.lines)} operators")
        for sentence in each.failures:
            print(f"  left out: {sentence}")
        for kernel, reason in each.list_missed().items():
            print(f"  missed: {kernel.file}: {kernel.name}: {reason}")
    if given.proposed:
        figures = list_proposed([*found, *others])
    else:
        figures = list_figures(found) + (list_figures(others, "others: ") if others else [])
    sys.exit(bounds.report(figures, report_only=given.report_only, write=given.write))


if __name__ == "__main__":
    main()
