"""Compares two versions of the code from Git. Needs no server and no database."""

import math
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tilewatch import processes
from tilewatch.git_environment import make_environment
from tilewatch.kernels import project_settings
from tilewatch.kernels.comparing.changes import Comparison, end_by_static_facts, find_changed
from tilewatch.kernels.comparing.configs import Candidates, ConfigSource, read_winners
from tilewatch.kernels.comparing.gpu_bench import GpuBench
from tilewatch.kernels.comparing.launching import end_by_launches
from tilewatch.kernels.comparing.outcome import Outcome
from tilewatch.kernels.comparing.targets import Library, Selection, list_targets
from tilewatch.kernels.comparing.verdict import Design
from tilewatch.kernels.compiling.compiler_pool import CompilerPool
from tilewatch.kernels.compiling.store import folder
from tilewatch.kernels.device import GpuSpec
from tilewatch.kernels.recording.git_commit import GitCommit
from tilewatch.metrics import Metric
from tilewatch.text import short_sha
from tilewatch.worker.git import checkouts, commits
from tilewatch.worker.git.commits import RepositoryError
from tilewatch.worker.git.working_tree import copy_working_tree
from tilewatch.worker.settings import Settings

ARCHS = ("sm_80", "sm_90", "sm_100", "sm_103", "sm_120")


@dataclass(frozen=True)
class Sides:
    base: Library
    head: Library


ALONE = Design(operators=1)


@dataclass(frozen=True)
class Wanted:
    """The options of a comparison. No launch starts after `seconds`; None sets no limit."""

    kernel: str | None = None
    problem: str | None = None
    source: ConfigSource = ConfigSource.auto
    given: Candidates | None = None
    recordings: tuple[Path, ...] = ()
    design: Design = ALONE
    seconds: float | None = None
    metric: Metric = "time"
    jobs: int = processes.count_cores()


def find_repository(settings: Settings) -> Path:
    """Returns TILEWATCH_REPOSITORY if it is set, else the Git repository of the working directory."""
    if "repository" in settings.model_fields_set:
        return settings.repository
    try:
        command, variables = ["git", "rev-parse", "--show-toplevel"], make_environment()
        top = subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        raise RepositoryError("git is not installed, and commits are what Tilewatch compares") from None
    except subprocess.CalledProcessError:
        raise RepositoryError(f"{Path.cwd()} is not in a Git repository, so there are no commits to compare") from None
    return Path(top.strip())


def find_library(at: Path, settings: Settings) -> str:
    """Returns the library folder that pyproject.toml names, else TILEWATCH_LIBRARY."""
    own = project_settings.read(at)
    return own.watch if own is not None and own.watch is not None else settings.library


def open_commits(at: Path, library: str, cache: Path, base: str, head: str) -> Sides:
    """Checks two commits out into `cache` and returns their library folders."""
    resolved = [commits.resolve(at, revision) for revision in (base, head)]
    libraries = [_checkout(at, commit, library, cache) for commit in resolved]
    return Sides(libraries[0], libraries[1])


def open_working_tree(at: Path, library: str, cache: Path, scratch: Path) -> Sides:
    """Returns a checkout of HEAD as `base`, and a copy of the working tree as `head`."""
    commit = commits.resolve(at, "HEAD")
    changed = Library("the working tree", copy_working_tree(at, library, scratch / "working-tree"))
    return Sides(_checkout(at, commit, library, cache), changed)


def list_recordings(at: Path, named: Sequence[Path]) -> tuple[Path, ...]:
    """Returns `named`, or all recordings in the repository's folder `recordings` if `named` is empty."""
    return tuple(named) or tuple(sorted((at / "recordings").glob("*.jsonl.gz")))


def compare(
    sides: Sides,
    wanted: Wanted,
    store: Path,
    gpu: GpuSpec | None = None,
    bench: GpuBench | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> tuple[Outcome, ...]:
    """Returns an outcome for each kernel, problem and architecture. Without a GPU, only machine code is compared."""
    deadline = math.inf if wanted.seconds is None else time.monotonic() + wanted.seconds
    archs, model = (ARCHS, "") if gpu is None else ((gpu.arch,), gpu.slug)
    targets = list_targets(sides.base, sides.head, Selection(archs, wanted.kernel, wanted.problem))
    with CompilerPool(folder(store), jobs=wanted.jobs) as pool:
        read = partial(read_winners, wanted.recordings)  # only if code changed, as it takes seconds
        comparison = Comparison(
            sides.base, sides.head, model, pool, read, wanted.source, wanted.given, metric=wanted.metric
        )
        changed = find_changed(comparison, targets)
    if bench is None:
        end_by_static_facts(comparison, changed)
    elif changed:
        on_progress(f"{len(changed)} of {len(targets)} operators and problems have other machine code")
        end_by_launches(comparison, changed, bench, wanted.design, lambda: time.monotonic() > deadline, on_progress)
    return tuple(comparison.outcomes[each] for each in targets)


def _checkout(at: Path, commit: GitCommit, library: str, cache: Path) -> Library:
    name = short_sha(commit.sha)
    return Library(name, checkouts.checkout(at, commit.sha, library, cache), revision=name)
