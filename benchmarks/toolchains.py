"""Scores `toolchain compare` on toolchains with and without a planted fault, by compilers alone and on a GPU.

    python -m benchmarks.toolchains [--whole] [--times 5] [--report-only]

Each toolchain is the installed one in a folder of its own and under the same version. So only its machine code and its
compile seconds differ from others. `--times` pairs without a fault must be found equal, on OPERATORS or with `--whole`
on every operator of the library. Those with a planted fault are compared on OPERATORS.

On a machine with a GPU, the faults that change its machine code are timed in two ways, by the command and by replays
(kernels/measuring/replay.py). The two ways must agree."""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import bounds
from benchmarks.bounds import Figure
from benchmarks.planted_toolchains import PLANTED, UNHARMED, Effect, Planted, make_toolchain
from tilewatch import processes
from tilewatch.kernels import device
from tilewatch.kernels.comparing.configs import ConfigSource, read_winners
from tilewatch.kernels.comparing.gpu_bench import open_bench
from tilewatch.kernels.comparing.targets import Selection
from tilewatch.kernels.comparing.toolchains.compile_sides import ComparedSide, Workplace, choose, compile_pairs
from tilewatch.kernels.comparing.toolchains.pairs import ToolchainPair, add_compile_times
from tilewatch.kernels.library import FOLDER
from tilewatch.kernels.measuring.pair_bench import Launched, PairWork, ReplaySide
from tilewatch.kernels.measuring.replay import ReplayRequest, replay
from tilewatch.kernels.toolchains.toolchain import Toolchain

OPERATORS = (
    ("gemm_fp8", "4096x7168x2048"),
    ("gemm_nt", "4096x7168x2048-bfloat16"),
    ("rms_norm", "8192x7168"),
    ("rms_norm", "16384x4096"),
    ("softmax", "16384x4096"),
    ("residual_add", "8192x7168"),
)
"""Six operators, the fewest with which differences of compile times can be found."""

RECORDING = bounds.ROOT / "recordings" / "h200.jsonl.gz"
"""Recording with the configs to use: winners have hints that the tile table's configs lack."""

LIMIT_S = 15.0
LAUNCHES = 12
LEAST_EFFECT = 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=1, help="comparisons of two toolchains without a fault")
    parser.add_argument("--whole", action="store_true", help="compare those for the whole library")
    parser.add_argument("--only", action="append", help="a planted toolchain; repeat it for several")
    bounds.add_options(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-toolchains-") as root:
        planted = [each for each in PLANTED if not options.only or each.name in options.only]
        figures = _measure(Path(root), options.times, options.whole, planted)
        sys.exit(bounds.report(figures, report_only=options.report_only, write=options.write))


def _measure(root: Path, times: int, whole: bool, planted: Sequence[Planted]) -> Iterator[Figure]:
    unharmed = make_toolchain(root, UNHARMED)
    for number in range(1, times + 1):
        other = make_toolchain(root, UNHARMED, f"copy-{number}")
        pairs = _compile(root, unharmed, other, "sm_90", whole=whole)
        what = f"equal toolchains, {len(pairs)} operators"
        yield bounds.measure(f"{what}: other machine code", len(list_static_changes(pairs)), cases=len(pairs))
        yield bounds.measure(
            f"equal toolchains, {len(pairs)} operators: slower to compile",
            add_compile_times(pairs).is_slower,
            cases=len(pairs),
        )
    found = 0
    for each in planted:
        pairs = _compile(root, unharmed, make_toolchain(root, each), each.arch)
        effect = _find_effect(pairs)
        found += effect == each.effect
        yield bounds.measure(
            f"{each.name}, {each.arch}: {_describe(pairs)}", effect, wanted=each.effect, cases=len(pairs)
        )
        if each.effect == "machine code" and device.gpus():
            yield from _time(root, each, pairs)
    yield bounds.measure(f"found of {len(planted)} planted toolchains", found, wanted=len(planted), cases=len(planted))


def _place(root: Path, a: Toolchain, b: Toolchain) -> Workplace:
    return Workplace(
        FOLDER,
        (ComparedSide(a.name, a), ComparedSide(b.name, b)),
        root / f"{a.name}..{b.name}",
        processes.count_cores(),
        LIMIT_S,
    )


def _compile(root: Path, a: Toolchain, b: Toolchain, arch: str, *, whole: bool = False) -> list[ToolchainPair]:
    wanted = [(None, None)] if whole else OPERATORS
    selections = [Selection((arch,), kernel, problem) for kernel, problem in wanted]
    chosen = choose(FOLDER, selections, read_winners([RECORDING]), ConfigSource.auto, "")
    return list(compile_pairs(_place(root, a, b), chosen, lambda *_: None))


def _find_effect(pairs: Sequence[ToolchainPair]) -> Effect:
    kinds = {pair.kind for pair in pairs}
    if "stopped compiling" in kinds:
        return "stops compiling"
    if "changed" in kinds:
        return "machine code"
    return "slower to compile" if add_compile_times(pairs).is_slower else "nothing"


def _describe(pairs: Sequence[ToolchainPair]) -> str:
    changed = list_static_changes(pairs)
    moved = next((", ".join(pair.moved) for pair in changed if pair.moved), "")
    return f"{len(changed)} of {len(pairs)}, compiling x{add_compile_times(pairs).ratio:.2f}" + (
        f"; {moved}" if moved else ""
    )


def _time(root: Path, planted: Planted, pairs: Sequence[ToolchainPair]) -> Iterator[Figure]:
    """Times the first changed operator of this GPU's architecture in both ways. Yields figures."""
    gpu = device.gpus()[0]
    changed = [pair for pair in pairs if pair.kind == "changed"]
    if gpu.model is None or not changed or changed[0].arch != gpu.model.arch:
        return
    pair, store = changed[0], (root / f"{UNHARMED.name}..{planted.name}" / "changed").as_uri()
    base, head = (ReplaySide(FOLDER, side.stored_cubin) for side in (pair.base[0], pair.head[0]))
    with open_bench(gpu, store) as bench:
        ours = [
            result.head_us / result.base_us
            for number in range(LAUNCHES)
            for _, result in bench.launch_each([PairWork(pair.kernel, pair.problem, base, head, number)])
            if isinstance(result, Launched)
        ]
    request = ReplayRequest(pair.kernel, pair.problem, pair.arch, store, base, head, LAUNCHES, gpu.index)
    replayed_us = replay(request, on_launch=lambda _: None)
    theirs = [of_head / of_base for of_base, of_head in zip(replayed_us.base_us, replayed_us.head_us, strict=True)]
    what = f"  {pair.kernel} {pair.problem} on {gpu.name}"
    if not ours:
        yield bounds.not_measured(what, "no launch")
        return
    change, replayed = statistics.median(ours) - 1, statistics.median(theirs) - 1
    if abs(replayed) >= LEAST_EFFECT:
        yield bounds.measure(f"{what}, {replayed:+.1%}: the sign", change > 0, wanted=replayed > 0, cases=len(ours))
    points = 100 * abs(change - replayed)
    yield bounds.measure(f"{what}, {change:+.2%}, by replays {replayed:+.2%}: apart", points, cases=len(ours))


def list_static_changes(pairs: Sequence[ToolchainPair]) -> tuple[ToolchainPair, ...]:
    """Lists the pairs whose machine code differs, and those that only one of the toolchains compiles."""
    return tuple(pair for pair in pairs if pair.kind in ("changed", "stopped compiling", "compiles now"))


if __name__ == "__main__":
    main()
