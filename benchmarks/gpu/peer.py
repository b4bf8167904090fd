"""Runs cuTile's own tuner on configs of our space: `python -m benchmarks.gpu.peer KERNEL PROBLEM CONFIGS LIMIT_S`.

CONFIGS is a JSON list. Prints one JSON object: wall seconds, the best config, how many failed. Runs in a process of its
own, with cuTile's disk cache off and its compiler limited to LIMIT_S, as a user would run it on a new commit.
"""

import json
import os
import sys
import time
from typing import Any

from tilewatch.kernels import library


def main() -> None:
    name, problem_text, configs, limit_s = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), sys.argv[4]
    # cuda-tile reads both when it is imported.
    os.environ["CUDA_TILE_CACHE_DIR"] = "off"
    os.environ["CUDA_TILE_COMPILER_TIMEOUT_SEC"] = limit_s
    import cuda.tile as ct
    import cupy
    import torch

    from tilewatch.kernels.catalog.loading import load
    from tilewatch.kernels.contract import HINTS
    from tilewatch.kernels.gpu import arrays

    kernel = load(library.FOLDER)[name].kernel
    problem = kernel.parse(problem_text)
    generator = cupy.random.default_rng(1)
    sm_count = cupy.cuda.Device().attributes["MultiProcessorCount"]

    def tensor(spec: Any) -> Any:
        raw = arrays.make_poisoned(spec) if spec.output else arrays.random(spec, generator)
        return torch.as_tensor(raw, device="cuda").view(getattr(torch, spec.dtype))

    tensors = tuple(tensor(spec) for spec in kernel.arrays(problem))
    started = time.monotonic()
    result = ct.tune.exhaustive_search(
        configs,
        torch.cuda.current_stream(),
        lambda config: kernel.grid(problem, config, sm_count),
        kernel.entry,
        lambda config: (*tensors, *kernel.constants(problem, config)),
        lambda config: {hint: config[hint] for hint in HINTS if hint in config},
        quiet=True,
    )
    wall_s = time.monotonic() - started
    best = {"config": result.best.config, "mean_us": result.best.mean_us}
    print(json.dumps({"wall_s": wall_s, "best": best, "failures": len(result.failures)}))


if __name__ == "__main__":
    main()
