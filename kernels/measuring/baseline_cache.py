"""Compiles the kernels of baselines before they are timed. DeepGEMM calls nvcc for each new kernel, which takes some 10
s (H200, 2026-11), and keeps the result on this machine's disk."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tilewatch.baselines import BASELINES, DEEP_GEMM
from tilewatch.errors import ExpectedError
from tilewatch.kernels.children.child_process import ChildDied, ChildHung
from tilewatch.kernels.measuring.gpu_processes import GpuProcesses
from tilewatch.kernels.measuring.gpu_turn import find_turn
from tilewatch.kernels.measuring.sweep import GpuChild, GpuSetup

COMPILING = tuple(each.name for each in BASELINES if each.package == DEEP_GEMM)
"""The baselines that compile their own kernels."""

DEADLINE_S = 120.0
AT_ONCE = max(2, min(16, (os.cpu_count() or 1) // 2))
FEW = 2
"""Failed series that are prepared again at the same time: 12 of 8 GB each ran out of memory (H100, 2026-11-27)."""


@dataclass(frozen=True)
class SeriesToPrepare:
    """A problem of a library, and its baselines."""

    library: Path
    kernel: str
    problem: str
    baselines: tuple[str, ...]


def fill(series: Sequence[SeriesToPrepare], gpu_uuid: str, store_url: str) -> list[str]:
    """Launches the compiling baselines of each series once, several series at a time. Returns failures as sentences."""
    left = [each for each in series if any(name in COMPILING for name in each.baselines)]
    failures: list[str | None] = []
    with find_turn(gpu_uuid):
        for at_once in (AT_ONCE, FEW):
            with ThreadPoolExecutor(at_once) as pool:
                failures = list(pool.map(partial(_prepare, gpu_uuid=gpu_uuid, store_url=store_url), left))
            left = [each for each, failure in zip(left, failures, strict=True) if failure]
    return [failure for failure in failures if failure]


def _prepare(series: SeriesToPrepare, gpu_uuid: str, store_url: str) -> str | None:
    environment = {"CUDA_VISIBLE_DEVICES": gpu_uuid}
    setup = GpuSetup(series.library, series.kernel, series.problem, store_url, environment)
    names = [name for name in series.baselines if name in COMPILING]
    try:
        child = GpuChild(setup, partial(GpuProcesses, series.library, environment=environment, torch=True))
        try:
            child.ask({"ask": "baselines", "names": names}, DEADLINE_S)
        finally:
            child.close()
    except (ExpectedError, ChildDied, ChildHung) as error:
        return f"the baselines of {series.kernel} {series.problem} could not be prepared: {error}"[:300]
    return None
