"""Times `toolchain compare` of four toolchains over the whole library on one GPU, with all cubins compiled before.

    python -m benchmarks.gpu.many_toolchains [--kernel NAME] [--report-only]

The heads are planted toolchains (benchmarks/planted_toolchains.py): one equal, two with other machine code. Compiling
is not timed. Each operator must have an answer under each head.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import bounds
from benchmarks.bounds import Figure
from benchmarks.planted_toolchains import PLANTED, UNHARMED, make_toolchain
from benchmarks.toolchains import LIMIT_S
from tilewatch import processes
from tilewatch.kernels import device
from tilewatch.kernels.comparing.configs import ConfigSource
from tilewatch.kernels.comparing.toolchains.comparison import ComparisonWanted, compare_toolchains
from tilewatch.kernels.comparing.toolchains.report_verdict import judge_everything
from tilewatch.kernels.library import FOLDER

HEADS = ("other-order-of-options", "less-optimisation", "ptxas-optimises-less")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", action="append", help="compare this kernel only; repeat it for several")
    bounds.add_options(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-many-toolchains-") as root:
        figures = list_figures(Path(root), options.kernel or ())
        sys.exit(bounds.report(figures, report_only=options.report_only, write=options.write))


def list_figures(root: Path, kernels: Sequence[str]) -> Iterator[Figure]:
    what = f"{1 + len(HEADS)} toolchains"
    gpu = next((each for each in device.gpus() if each.model is not None), None)
    if gpu is None or gpu.model is None:
        yield bounds.not_measured(f"{what}: wall time", "no GPU")
        return
    for planted in (UNHARMED, *(each for each in PLANTED if each.name in HEADS)):
        make_toolchain(root, planted)
    wanted = make_wanted(root, gpu.model.arch, kernels)
    compare_toolchains(wanted, print)
    started = time.monotonic()
    report = compare_toolchains(replace(wanted, gpu=gpu.index), print)
    minutes = (time.monotonic() - started) / 60
    judged = judge_everything(report)
    answered = sum(each.safety != "unknown" for each in judged)
    yield bounds.measure(f"{what}: wall time", minutes, cases=len(judged))
    yield bounds.measure(f"{what}: operators answered", answered, wanted=len(judged), cases=len(judged))


def make_wanted(root: Path, arch: str, kernels: Sequence[str]) -> ComparisonWanted:
    return ComparisonWanted(
        names=(UNHARMED.name, *HEADS),
        toolchains=root,
        environments=root,
        library=FOLDER,
        report=root / "report.json",
        archs=(arch,),
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
