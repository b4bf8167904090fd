"""Times `toolchain compare` of four toolchains over the whole library on one GPU, with all cubins compiled before.

    python -m benchmarks.gpu.many_toolchains 13.5.37 13.4.59 13.3.36 [--toolchains FOLDER] [--report FILE]

The base is the installed toolchain. The heads are real releases, made with `tilewatch toolchain add`. Compiling the
compared configs is not timed: --report names a report whose cubins may have been compiled on another machine, or the
benchmark compiles them first. Compiling for a re-tuning is timed. The comparison gets MINUTES, as with `--minutes`.
Within them, each operator must have an answer under each head, or be undecided after the most launches."""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import bounds
from benchmarks.bounds import Figure
from benchmarks.toolchains import LIMIT_S
from tilewatch import processes
from tilewatch.kernels import device
from tilewatch.kernels.comparing.configs import ConfigSource
from tilewatch.kernels.comparing.toolchains.commands import HOME
from tilewatch.kernels.comparing.toolchains.comparison import ComparisonWanted, compare_toolchains
from tilewatch.kernels.comparing.toolchains.report_file import ToolchainReport
from tilewatch.kernels.comparing.toolchains.report_verdict import judge_everything
from tilewatch.kernels.library import FOLDER
from tilewatch.kernels.toolchains.toolchain import INSTALLED

MINUTES = 24.5
"""A launch, or the sweep of one operator, may begin just before these minutes end. The bound is 25 minutes."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("heads", nargs=3, metavar="HEAD", help="names of toolchains")
    parser.add_argument("--toolchains", type=Path, default=HOME / "toolchains", help="the folder of toolchains")
    parser.add_argument("--report", type=Path, help="continue this report, with the cubins beside it")
    parser.add_argument("--kernel", action="append", help="compare this kernel only; repeat it for several")
    bounds.add_options(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-many-toolchains-") as root:
        report = options.report or Path(root) / "report.json"
        wanted = make_wanted(options.heads, options.toolchains, report, options.kernel or ())
        sys.exit(bounds.report(list_figures(wanted), report_only=options.report_only, write=options.write))


def list_figures(wanted: ComparisonWanted) -> Iterator[Figure]:
    what = f"{len(wanted.names)} toolchains"
    gpu = next((each for each in device.gpus() if each.model is not None), None)
    if gpu is None or gpu.model is None:
        yield bounds.not_measured(f"{what}: wall time", "no GPU")
        return
    here = replace(wanted, archs=(gpu.model.arch,))
    if compare_toolchains(here, print).gpus:
        yield bounds.not_measured(f"{what}: wall time", "the report has times already")
        return
    started = time.monotonic()
    report = compare_toolchains(replace(here, gpu=gpu.index, minutes=MINUTES), print)
    minutes = (time.monotonic() - started) / 60
    yield from judge_run(what, minutes, report)


def judge_run(what: str, minutes: float, report: ToolchainReport) -> Iterator[Figure]:
    judged = judge_everything(report)
    undecided = sum(each.safety == "unknown" and each.frozen is not None and each.frozen.is_final for each in judged)
    answered = undecided + sum(each.safety != "unknown" for each in judged)
    slower = [each for each in judged if each.safety in ("not safe", "safe if re-tuned")]
    swept = {(kernel, problem, head) for kernel, problem, _, head in report.retunings}
    done = sum((each.pair.kernel, each.pair.problem, each.pair.head_name) in swept for each in slower)
    yield bounds.measure(f"{what}: wall time", minutes, cases=len(judged))
    yield bounds.measure(f"{what}: operators answered", answered, wanted=len(judged), cases=len(judged))
    yield Figure(f"{what}: undecided after the most launches", str(undecided), cases=len(judged))
    yield Figure(f"{what}: slower operators that were re-tuned", f"{done} of {len(slower)}", cases=len(slower))


def make_wanted(heads: Sequence[str], toolchains: Path, report: Path, kernels: Sequence[str]) -> ComparisonWanted:
    return ComparisonWanted(
        names=(INSTALLED, *heads),
        toolchains=toolchains,
        environments=toolchains,
        library=FOLDER,
        report=report,
        archs=(),
        kernels=tuple(kernels),
        problem=None,
        source=ConfigSource.auto,
        recordings=tuple(sorted((bounds.ROOT / "recordings").glob("*.jsonl.gz"))),
        gpu=None,
        minutes=None,
        retunes=True,
        fail_over=0.01,
        jobs=processes.count_cores(),
        limit_s=LIMIT_S,
        may_use_events=False,
    )


if __name__ == "__main__":
    main()
