"""Times versions of the rivals side by side on this machine's GPU: `python -m benchmarks.gpu.rivals --rivals FOLDER`.

Our kernels run with the configs that won in a recording, so nothing is swept. Prints a line per problem and writes the
runs as a recording, for `tilewatch import`.
"""

import argparse
import json
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilewatch.kernels import device
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.comparing.configs import read_winners
from tilewatch.kernels.compiling import store
from tilewatch.kernels.compiling.compile_plan import compile_plan
from tilewatch.kernels.compiling.compiler import LIMIT_S
from tilewatch.kernels.library import FOLDER
from tilewatch.kernels.measuring.measure import MeasureRequest, measure
from tilewatch.kernels.recording import recording_file
from tilewatch.kernels.recording.git_commit import GitCommit, commit_of
from tilewatch.kernels.recording.recorded_run import list_rows
from tilewatch.kernels.results import Compiled, Cubin, Plan, PlannedTrial, RunResult, config_key
from tilewatch.kernels.statistics import median_interval, ratio_interval
from tilewatch.kernels.toolchains.toolchain import list_toolchains

RECORDINGS = (Path("recordings/h200-80093d04.jsonl.gz"),)
CORES = os.cpu_count() or 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rivals", type=Path, required=True, help="the folder of environments")
    parser.add_argument("--out", type=Path, required=True, help="the recording to write or go on with")
    parser.add_argument("--kernel", action="append", help="default: gemm_fp8_scaled")
    parser.add_argument("--library", type=Path, default=FOLDER)
    parser.add_argument("--commit", type=Path, help="a JSON file with the commit, where there is no Git history")
    parser.add_argument("--seconds", type=float, default=500, help="start no problem after this time")
    options = parser.parse_args()
    until = time.monotonic() + options.seconds
    commit = GitCommit(**json.loads(options.commit.read_text())) if options.commit else commit_of(options.library)
    gpu = device.gpus()[0]
    assert gpu.model is not None, f"{gpu.name} is too old"
    environments = list_toolchains(options.rivals)
    print(f"{gpu.name}, commit {commit.sha[:12]}, beside {', '.join(each.name for each in environments)}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        url = store.folder(Path(folder))
        for kernel in options.kernel or ["gemm_fp8_scaled"]:
            for plan in _list_plans(options.library, gpu.model.arch, kernel):
                if time.monotonic() > until:
                    raise SystemExit(f"the time is up before {plan.kernel} {plan.problem}")
                outcomes = list(compile_plan(options.library.absolute(), plan, url, jobs=CORES, limit_s=LIMIT_S))
                request = MeasureRequest(
                    options.library.absolute(),
                    plan.kernel,
                    plan.problem,
                    plan.arch,
                    url,
                    [_cubin(*each) for each in outcomes],
                    0,
                    plan.baselines,
                    rivals=environments,
                )
                result = measure(request, on_trial=lambda _: None, on_step=lambda *_: None)
                header = recording_file.Header(f"an {gpu.name}", recording_file.now(), commit.repository, "tilewatch")
                recording_file.append(
                    options.out, header, list_rows(plan, commit, gpu.model, outcomes, _without_host(result))
                )
                print(_describe(plan, result), flush=True)


def _list_plans(library: Path, arch: str, kernel: str) -> list[Plan]:
    """The kernel's problems, each with the configs that won or tied in the recording."""
    won = {
        (each.problem, config_key(config))
        for each in read_winners(RECORDINGS)
        if (each.kernel, each.arch) == (kernel, arch)
        for config in each.configs
    }
    plans = catalog.read_library(library.absolute(), arch=arch, kernel=kernel).plans
    chosen = [
        replace(plan, trials=tuple(each for each in plan.trials if (plan.problem, config_key(each.config)) in won))
        for plan in plans
    ]
    return [plan for plan in chosen if plan.trials]


def _cubin(trial: PlannedTrial, outcome: Compiled) -> Cubin:
    assert outcome.content_key is not None, outcome.failure
    assert outcome.symbol is not None
    return Cubin(trial.config, outcome.content_key, outcome.symbol)


def _without_host(result: RunResult) -> RunResult:
    """The machine's name says nothing elsewhere."""
    return replace(result, host=result.gpu_model)


def _describe(plan: Plan, result: RunResult) -> str:
    ours = result.measurements[0]
    words = [f"{plan.kernel} {plan.problem}: ours {median_interval(ours.samples_us).median:.1f} us"]
    for each in result.measurements[1:]:
        if not each.samples_us:
            words.append(f"{each.implementation} missing: {each.detail['missing']}")
            continue
        ratio = ratio_interval(ours.samples_us, each.samples_us)
        assert ratio is not None
        words.append(
            f"{each.implementation} {median_interval(each.samples_us).median:.1f} us, ratio {ratio.median:.3f} "
            f"({ratio.low:.3f} to {ratio.high:.3f}), chose {_chosen(each.detail)}"
        )
    return "\n    ".join(words)


def _chosen(detail: Any) -> str:
    return " / ".join(detail.get("chose", ())) or "nothing"


if __name__ == "__main__":
    main()
