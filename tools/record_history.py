"""Measures a repository's history on this machine's GPU and writes a recording.

Either a watch folder is copied over each commit, so that older commits can be measured too, or each commit has its own
library folder. A series is measured at its first commit, at each commit that changes its machine code or launch, and at
its last: so a recording of years stays small and takes minutes. The winners before and after a change are replayed side
by side, so that the judge can judge it like a change of its own nights. Needs no servers. It measures histories alone:
figures on nights come from benchmarks/night.py.

    python -m tools.record_history CLONE v1..HEAD --watch my/watch --path src --out history.jsonl.gz
    python -m tools.record_history CLONE @commits --library kernels/library --only series.json --out history.jsonl.gz

`--only` is a JSON list of {"kernel", "problem", "configs", "commits"}: only these are measured, in this order and with
these configs. Without "commits" an entry holds for every commit. If a config has other parameters at a commit, only the
common ones are compared.
"""

import argparse
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilewatch import processes
from tilewatch.errors import ExpectedError
from tilewatch.kernels import device, tile_table
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.compiling.compile_plan import compile_plans
from tilewatch.kernels.measuring import baseline_cache
from tilewatch.kernels.measuring.baseline_cache import SeriesToPrepare
from tilewatch.kernels.recording import git_commit
from tilewatch.kernels.results import Params, Plan
from tools.history_recorder import Recorder, Version, measure_series

JOBS = max(1, processes.count_cores() * 3 // 4)
"""Number of compiler processes; the other cores measure. 7 series took 82 s with 8 compilers and 92 s with 16 on 16
cores. With both numbers, compiling ends long before the last series is measured (H100, 2026-11-26)."""

REPLAY_LAUNCHES = 8
"""Number of launches of a replay: as many as the judge needs to report a change (worker/detection/policy.py,
`least_launches`)."""

Only = Sequence[Mapping[str, Any]]


def main() -> None:
    arguments = _arguments()
    started = time.monotonic()
    gpu = device.find_gpu(arguments.gpu)
    assert gpu.model is not None
    only: Only | None = json.loads(arguments.only.read_text()) if arguments.only else None
    versions = read_history(arguments, gpu.model.arch, only)
    print(f"{len(versions)} series at commits read after {time.monotonic() - started:.0f} s", flush=True)
    store = arguments.work.joinpath("cubins").absolute().as_uri()
    series: dict[str, list[Version]] = {}
    for version in versions:
        series.setdefault(version.name, []).append(version)
    preparing = threading.Thread(target=prepare_baselines, args=(series, gpu, store))
    preparing.start()
    compiling = ThreadPoolExecutor(1).submit(
        compile_all, [each for versions in series.values() for each in versions], store, arguments.jobs, arguments.limit
    )

    def compiled(_: Future[None]) -> None:
        print(f"compiled after {time.monotonic() - started:.0f} s", flush=True)
        for version in versions:  # set also after a failure, so that nobody waits for ever
            version.is_compiled.set()

    compiling.add_done_callback(compiled)
    preparing.join()
    print(f"baselines compiled after {time.monotonic() - started:.0f} s", flush=True)
    while (users := device.processes_on(gpu.uuid)) and time.monotonic() - started < arguments.seconds:
        print(f"the GPU is in use by {', '.join(users)}", flush=True)
        time.sleep(1)
    names = list(dict.fromkeys(f"{each['kernel']} {each['problem']}" for each in only)) if only else list(series)
    with Recorder(gpu, gpu.model, store, arguments.out, arguments.launches) as recorder:
        for name in names:
            for version in series.get(name, []):
                version.is_compiled.wait()
            try:
                measure_series(recorder, series.get(name, []), started + arguments.seconds)
            except ExpectedError as error:
                print(f"{name}: {error}", flush=True)
    compiling.result()
    print(f"done after {time.monotonic() - started:.0f} s", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", type=Path, help="a clone")
    parser.add_argument("commits", help="a range A..B, or @FILE with a revision a line, the oldest first")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--watch", type=Path, help="the watch folder that is laid over each commit")
    source.add_argument("--library", help="the library folder that each commit has; it imports nothing of its commit")
    parser.add_argument("--path", action="append", default=[], help="a folder that the package is imported from")
    parser.add_argument("--operators", help="only these, separated by commas")
    parser.add_argument("--only", type=Path, help="a JSON file of series and their configs")
    parser.add_argument("--out", type=Path, required=True, help="the recording, .jsonl.gz")
    parser.add_argument("--work", type=Path, default=Path("/tmp/record-history"))  # noqa: S108 - one person's machine
    parser.add_argument("--gpu", type=int, default=0, help="which of this machine's GPUs")
    parser.add_argument("--jobs", type=int, default=JOBS, help="compiler processes; 3 of 4 cores by default")
    parser.add_argument("--limit", type=float, default=15.0, help="CPU seconds that a config may take to compile")
    parser.add_argument("--launches", type=int, default=REPLAY_LAUNCHES, help="launches of a replay")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no measurement after so many seconds")
    return parser.parse_args()


def read_history(arguments: argparse.Namespace, arch: str, only: Only | None) -> list[Version]:
    """Returns each wanted series at each commit, the oldest commit first. Commits that cannot be read are left out."""
    if _git(arguments.repository, "rev-parse", "--is-shallow-repository").strip() == "true":
        raise SystemExit(
            f"{arguments.repository} is a shallow clone: its commits would come before all others. "
            "`git fetch --unshallow` gets the rest"
        )
    if arguments.commits.startswith("@"):
        revisions = Path(arguments.commits[1:]).read_text().split()
    else:
        revisions = _git(arguments.repository, "rev-list", "--reverse", arguments.commits).split()
    operators = arguments.operators.split(",") if arguments.operators else None

    def read(revision: str) -> list[Version]:
        commit = git_commit.commit_of(arguments.repository, revision)
        library = _check_out(arguments, commit.sha)
        try:
            plans = catalog.read_library(library, arch=arch).plans
        except ExpectedError as error:
            print(f"{revision}: {error}"[:300], flush=True)
            return []
        if only is not None:
            plans = _select(plans, library, arch, commit.sha, only)
        return [Version(commit, library, plan) for plan in plans if operators is None or plan.kernel in operators]

    with ThreadPoolExecutor(arguments.jobs) as pool:
        return [version for versions in pool.map(read, revisions) for version in versions]


def _select(plans: Sequence[Plan], library: Path, arch: str, sha: str, only: Only) -> tuple[Plan, ...]:
    """Returns the plans of this commit that are wanted, each with only the wanted configs.

    A plan with only some configs has no tile table among its baselines, because the table's config is chosen among
    all."""
    found = {(plan.kernel, plan.problem): plan for plan in plans}
    selected = []
    for each in only:
        if not any(sha.startswith(commit) for commit in each.get("commits", (sha,))):
            continue
        plan = found.get((each["kernel"], each["problem"])) or _read_one(library, arch, each)
        if plan is None:
            continue
        trials = tuple(trial for trial in plan.trials if _is_wanted(trial.config, each["configs"]))
        baselines = tuple(name for name in plan.baselines if name != tile_table.BASELINE)
        if trials:
            selected.append(replace(plan, trials=trials, baselines=baselines))
    return tuple(selected)


def _read_one(library: Path, arch: str, wanted: Mapping[str, Any]) -> Plan | None:
    """Returns the plan of a problem that the library can parse but does not watch. Returns None if it cannot parse the
    problem."""
    try:
        (plan,) = catalog.read(library, arch=arch, kernel=wanted["kernel"], problem=wanted["problem"])
    except ExpectedError:
        return None
    return plan


def _is_wanted(config: Params, configs: Sequence[Params]) -> bool:
    return any(all(config[name] == value for name, value in each.items() if name in config) for each in configs)


def _check_out(arguments: argparse.Namespace, sha: str) -> Path:
    """Returns the library folder to measure a commit with: the commit's own, or the watch folder copied over its
    checkout."""
    checkout: Path = (arguments.work / "commits" / sha).absolute()
    checkout.mkdir(parents=True, exist_ok=True)
    parts = [arguments.library] if arguments.library else []
    archive = subprocess.run(
        ["git", "-C", str(arguments.repository), "archive", sha, *parts], check=True, capture_output=True
    ).stdout
    subprocess.run(["tar", "-x", "-C", str(checkout)], input=archive, check=True)
    if parts:
        return checkout.joinpath(*parts)
    shutil.rmtree(checkout / "watch", ignore_errors=True)
    shutil.copytree(arguments.watch, checkout / "watch")
    settings = f'\n[tool.tilewatch]\nwatch = "watch"\npath = {json.dumps(arguments.path)}\n'
    own = checkout / "pyproject.toml"
    if not (own.exists() and "[tool.tilewatch]" in own.read_text()):
        with own.open("a") as file:
            file.write(settings)
    return checkout / "watch"


def compile_all(versions: Sequence[Version], store: str, jobs: int, limit_s: float) -> None:
    """Compiles all trials in the order of the versions, so that the first version can be measured while others
    compile."""
    left = [len(version.plan.trials) for version in versions]
    for version in versions:
        version.outcomes = [None] * len(version.plan.trials)
    plans = [(version.library, version.plan) for version in versions]
    for number, trial, outcome in compile_plans(plans, store, jobs=jobs, limit_s=limit_s):
        version = versions[number]
        version.outcomes[version.plan.trials.index(trial)] = outcome
        left[number] -= 1
        if left[number] == 0:
            version.is_compiled.set()


def prepare_baselines(series: Mapping[str, Sequence[Version]], gpu: device.Gpu, store: str) -> None:
    """Makes DeepGEMM compile its kernels into its cache before they are measured. Other baselines compile nothing."""
    last = [versions[-1] for versions in series.values()]
    wanted = [SeriesToPrepare(each.library, each.plan.kernel, each.plan.problem, each.plan.baselines) for each in last]
    for failure in baseline_cache.fill(wanted, gpu.uuid, store):
        print(failure, flush=True)


def _git(repository: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(repository), *arguments], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    try:
        main()
    except ExpectedError as error:
        sys.exit(str(error))
