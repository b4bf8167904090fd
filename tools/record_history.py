"""Measures a repository's history on this machine's GPU and writes a recording.

A watch folder is laid over each commit, so that commits from before it existed are measured too. A series is measured
at a commit only where its machine code or its launch is another than at the commit before: a recording of years stays
small and costs minutes. Needs no servers.

    python -m tools.record_history CLONE v1..HEAD --watch my/watch --path src --out history.jsonl.gz
"""

import argparse
import json
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tilewatch.errors import ExpectedError
from tilewatch.kernels import device
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.compiling.compile_plan import compile_plans
from tilewatch.kernels.measuring.measure import MeasureRequest, measure
from tilewatch.kernels.recording import git_commit, recording_file
from tilewatch.kernels.recording.git_commit import GitCommit
from tilewatch.kernels.recording.recorded_run import list_rows
from tilewatch.kernels.results import Compiled, Cubin, Plan


@dataclass
class Version:
    """One series at one commit. `outcomes` are those of its trials, in their order."""

    commit: GitCommit
    library: Path
    plan: Plan
    outcomes: list[Compiled | None] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.plan.kernel} {self.plan.problem}"

    @property
    def code(self) -> tuple[object, ...]:
        """Equal for equal code in equal configs."""
        trials = zip(self.plan.trials, self.outcomes, strict=True)
        return tuple((json.dumps(dict(trial.config)), each and each.content_key) for trial, each in trials)


def main() -> None:
    arguments = _arguments()
    started = time.monotonic()
    gpu = device.gpus()[0]
    assert gpu.model is not None, f"{gpu.name} is not a model that Tilewatch knows"
    versions = _read_history(arguments, gpu.model.arch)
    print(f"{len(versions)} series at commits read after {time.monotonic() - started:.0f} s", flush=True)
    store = arguments.work.joinpath("cubins").absolute().as_uri()
    _compile(versions, store, arguments.jobs, arguments.limit)
    print(f"compiled after {time.monotonic() - started:.0f} s", flush=True)
    changed = _changed(versions)
    print(f"{len(changed)} of them are to be measured", flush=True)
    arguments.out.unlink(missing_ok=True)
    rows = 0
    for number, version in enumerate(changed, start=1):
        if time.monotonic() - started > arguments.seconds:
            print(f"no time is left for {len(changed) - number + 1} of them", flush=True)
            break
        try:
            rows += _measure(version, arguments.out, store, gpu)
        except ExpectedError as error:
            print(f"{version.commit.sha[:8]} {version.name}: {error}", flush=True)
    print(f"{rows} rows after {time.monotonic() - started:.0f} s", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", type=Path, help="a clone")
    parser.add_argument("commits", help="a range A..B, or @FILE with a revision a line, the oldest first")
    parser.add_argument("--watch", type=Path, required=True, help="the watch folder that is laid over each commit")
    parser.add_argument("--path", action="append", default=[], help="a folder that the package is imported from")
    parser.add_argument("--operators", help="only these, separated by commas")
    parser.add_argument("--out", type=Path, required=True, help="the recording, .jsonl.gz")
    parser.add_argument("--work", type=Path, default=Path("/tmp/record-history"))  # noqa: S108 - one person's machine
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compiler processes")
    parser.add_argument("--limit", type=float, default=15.0, help="CPU seconds that a config may take to compile")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no measurement after so many seconds")
    return parser.parse_args()


def _read_history(arguments: argparse.Namespace, arch: str) -> list[Version]:
    if arguments.commits.startswith("@"):
        revisions = Path(arguments.commits[1:]).read_text().split()
    else:
        revisions = _git(arguments.repository, "rev-list", "--reverse", arguments.commits).split()
    wanted = arguments.operators.split(",") if arguments.operators else None

    def read(revision: str) -> list[Version]:
        commit = git_commit.commit_of(arguments.repository, revision)
        library = _lay_over(arguments, commit.sha)
        try:
            reading = catalog.read_library(library, arch=arch)
        except ExpectedError as error:
            print(f"{revision}: {error}"[:300], flush=True)
            return []
        return [Version(commit, library, plan) for plan in reading.plans if wanted is None or plan.kernel in wanted]

    with ThreadPoolExecutor(arguments.jobs) as pool:
        return [version for versions in pool.map(read, revisions) for version in versions]


def _lay_over(arguments: argparse.Namespace, sha: str) -> Path:
    """Checks a commit out, with the watch folder and its settings over it; returns the watch folder."""
    checkout: Path = (arguments.work / "commits" / sha).absolute()
    checkout.mkdir(parents=True, exist_ok=True)
    archive = subprocess.run(
        ["git", "-C", str(arguments.repository), "archive", sha], check=True, capture_output=True
    ).stdout
    subprocess.run(["tar", "-x", "-C", str(checkout)], input=archive, check=True)
    shutil.rmtree(checkout / "watch", ignore_errors=True)
    shutil.copytree(arguments.watch, checkout / "watch")
    settings = f'\n[tool.tilewatch]\nwatch = "watch"\npath = {json.dumps(arguments.path)}\n'
    own = checkout / "pyproject.toml"
    if not (own.exists() and "[tool.tilewatch]" in own.read_text()):
        with own.open("a") as file:
            file.write(settings)
    return checkout / "watch"


def _compile(versions: Sequence[Version], store: str, jobs: int, limit_s: float) -> None:
    for version in versions:
        version.outcomes = [None] * len(version.plan.trials)
    plans = [(version.library, version.plan) for version in versions]
    for number, trial, outcome in compile_plans(plans, store, jobs=jobs, limit_s=limit_s):
        versions[number].outcomes[versions[number].plan.trials.index(trial)] = outcome


def _changed(versions: Sequence[Version]) -> list[Version]:
    """Returns the versions whose code is another than that of their series' version before, series by series."""
    series: dict[str, list[Version]] = {}
    for version in versions:
        before = series.setdefault(version.name, [])
        if not before or before[-1].code != version.code:
            before.append(version)
    return [version for versions_of_one in series.values() for version in versions_of_one]


def _measure(version: Version, out: Path, store: str, gpu: device.Gpu) -> int:
    """Adds the rows of a measurement to the recording and returns their number."""
    plan = version.plan
    outcomes = [(trial, each) for trial, each in zip(plan.trials, version.outcomes, strict=True) if each is not None]
    cubins = [
        Cubin(trial.config, each.content_key, each.symbol)
        for trial, each in outcomes
        if each.status == "ok" and each.content_key is not None and each.symbol is not None
    ]
    request = MeasureRequest(
        version.library, plan.kernel, plan.problem, plan.arch, store, cubins, gpu.index, plan.baselines,
        ships=plan.ships,
    )  # fmt: skip
    began = time.monotonic()
    result = measure(request, on_trial=lambda _: None, on_step=lambda *_: None)
    ours = next((each for each in result.measurements if each.role == "kernel"), None)
    median_us = sorted(ours.samples_us)[len(ours.samples_us) // 2] if ours else None
    failures = {trial.failure for trial in result.trials if trial.status != "timed"}
    took = time.monotonic() - began
    print(f"{version.commit.sha[:8]} {version.name}: {median_us} us, {took:.1f} s {failures or ''}", flush=True)
    assert gpu.model is not None
    header = recording_file.Header(gpu.name, recording_file.now(), version.commit.repository, "tilewatch history")
    return recording_file.append(out, header, list_rows(plan, version.commit, gpu.model, outcomes, result))


def _git(repository: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(repository), *arguments], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
