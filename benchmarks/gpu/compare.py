"""Records launches of pairs on this machine's GPU for `python -m benchmarks.compare`: equal code, and small real steps.

Every pair gets launches in turn until the time is up, so that a run that is cut short has some of each. The steps are
neighbours of a recorded winner in its space, 0.3 to 1 % slower. benchmarks/gpu/launches_h200.json has such a run.
"""

import argparse
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tilewatch.kernels.comparing.configs import read_winners
from tilewatch.kernels.comparing.gpu_bench import RealBench, find_gpu
from tilewatch.kernels.comparing.targets import Operator
from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.library import FOLDER
from tilewatch.kernels.measuring.replay import ReplaySide
from tilewatch.kernels.results import Cubin, Params

RECORDING = Path("recordings/h200.jsonl.gz")


@dataclass(frozen=True)
class Pair:
    """A kernel and problem; `change` is what makes the head's config another one than the winner."""

    kernel: str
    problem: str
    change: Params

    @property
    def name(self) -> str:
        changed = ",".join(f"{name}={value}" for name, value in self.change.items())
        return f"{self.kernel} {self.problem} {changed or 'A/A'}"


PAIRS = (
    Pair("gemm_fp8", "128x7168x16384", {}),
    Pair("softmax", "16384x4096", {}),
    Pair("rms_norm", "8192x7168", {}),
    Pair("gemm_nt", "4096x7168x2048-bfloat16", {}),
    Pair("silu_and_multiply", "8192x7168", {}),
    Pair("silu_and_multiply", "8192x7168", {"occupancy": 8, "persistent": 0, "tile_columns": 1024, "tile_rows": 4}),
    Pair("silu_and_multiply", "8192x7168", {"occupancy": 4, "persistent": 0, "tile_columns": 2048, "tile_rows": 1}),
    Pair(
        "rms_norm",
        "8192x7168",
        {"allow_tma": 1, "num_worker_warps": 4, "occupancy": 2, "persistent": 1, "tile_rows": 1},
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--equal", action="store_true", help="only the pairs of equal code")
    options = parser.parse_args()
    gpu = find_gpu(0)
    assert gpu.model is not None
    winners = {(each.kernel, each.problem): each.configs[0] for each in read_winners([RECORDING])}
    rows = []
    with tempfile.TemporaryDirectory() as scratch, Compiler(Path(scratch).as_uri(), limit_s=60) as compiler:
        bench = RealBench(0, Path(scratch).as_uri(), may_use_events=False)
        ready = []
        for pair in (each for each in PAIRS if not (options.equal and each.change)):
            base = winners[pair.kernel, pair.problem]
            sides = []
            for config in (base, {**base, **pair.change}):
                done = compiler.compile(FOLDER.absolute(), pair.kernel, pair.problem, config, gpu.model.arch)
                if done.content_key is None or done.symbol is None or done.status != "ok":
                    raise SystemExit(f"{pair.name}: {done.failure}")
                sides.append(ReplaySide(FOLDER.absolute(), Cubin(config, done.content_key, done.symbol)))
            operator = Operator(pair.kernel, pair.problem, gpu.model.arch, None, None)
            row: dict[str, object] = {"name": pair.name, "is_aa": not pair.change, "base_us": [], "head_us": []}
            rows.append(row)
            ready.append((operator, sides, row))
        started = time.monotonic()
        launches = 0
        try:
            while time.monotonic() - started < options.seconds:
                for operator, (base_side, head_side), row in ready:
                    base_us, head_us = bench.launch(operator, base_side, head_side)
                    row["base_us"].append(round(base_us, 4))  # type: ignore[attr-defined]
                    row["head_us"].append(round(head_us, 4))  # type: ignore[attr-defined]
                    launches += 1
                wall_s = time.monotonic() - started
                options.out.write_text(json.dumps({"gpu": gpu.name, "s_a_launch": wall_s / launches, "pairs": rows}))
        finally:
            bench.close()
    print(f"{launches} launches, {(time.monotonic() - started) / launches:.2f} s each")


if __name__ == "__main__":
    main()
