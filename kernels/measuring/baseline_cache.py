"""Compiles the kernels of baselines before they are timed. DeepGEMM compiles each new kernel with nvcc in some 10 s
(H200, 2026-11), and keeps the compiled kernel on this machine's disk."""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tilewatch.baselines import BASELINES, DEEP_GEMM
from tilewatch.errors import ExpectedError
from tilewatch.kernels.children.child_process import ChildDied, ChildHung, ChildProcess
from tilewatch.kernels.measuring.gpu_turn import find_turn
from tilewatch.kernels.measuring.kept_process import KeptProcess
from tilewatch.kernels.measuring.preparation import Preparation, describe, left_s

COMPILING = tuple(each.name for each in BASELINES if each.package == DEEP_GEMM)
"""Names of the baselines that compile their own kernels."""

DEADLINE_S = 120.0
AT_ONCE = max(2, min(16, (os.cpu_count() or 1) // 2))
FEW = 2
"""Number of series that are prepared at once when failed series are tried again. Twelve series of 8 GB each had run out
of memory (H100, 2026-11-27)."""


@dataclass(frozen=True)
class SeriesToPrepare:
    """Names one problem of a library's kernel, and its baselines."""

    library: Path
    kernel: str
    problem: str
    baselines: tuple[str, ...]

    @property
    def compiling(self) -> list[str]:
        """Returns the baselines of this series that compile their own kernels."""
        return [name for name in self.baselines if name in COMPILING]


OnDone = Callable[[SeriesToPrepare], object]


def fill(series: Sequence[SeriesToPrepare], gpu_uuid: str, store_url: str, on_done: OnDone = id) -> list[str]:
    """Launches the baselines that compile their own kernels once per series, several series at a time. Returns a
    sentence on each failure. Calls `on_done` with each series that is ready, from several threads."""
    left = [each for each in series if each.compiling]
    failures: dict[SeriesToPrepare, str] = {}
    with find_turn(gpu_uuid):
        for at_once in (AT_ONCE, FEW):
            prepare_part = partial(_prepare_each, gpu_uuid=gpu_uuid, store_url=store_url, on_done=on_done)
            with ThreadPoolExecutor(at_once) as pool:
                parts = pool.map(prepare_part, [left[number::at_once] for number in range(at_once)])
                failures = dict(failure for part in parts for failure in part)
            left = list(failures)
    return list(failures.values())


def _prepare_each(
    series: Sequence[SeriesToPrepare], *, gpu_uuid: str, store_url: str, on_done: OnDone
) -> list[tuple[SeriesToPrepare, str]]:
    """Prepares several series in one process. Returns each failed series with a sentence on why."""
    failures = []
    with closing(KeptProcess()) as kept:
        for each in series:
            try:
                _prepare(each, kept, {"CUDA_VISIBLE_DEVICES": gpu_uuid}, store_url)
                on_done(each)
            except (ExpectedError, ChildDied, ChildHung) as error:
                why = f"the baselines of {each.kernel} {each.problem} could not be prepared: {error}"[:300]
                failures.append((each, why))
    return failures


def _prepare(series: SeriesToPrepare, kept: KeptProcess, environment: dict[str, str], store_url: str) -> None:
    """Launches a series' baselines without checking results. The library's process only describes the problem."""
    deadline = time.monotonic() + DEADLINE_S
    preparation = Preparation(series.library, series.kernel, series.problem, store_url)
    with closing(ChildProcess("library", environment=environment, library=series.library)) as library:
        problems = describe(library, preparation, deadline)
    if problems is None:  # a watched operator, whose baselines compile nothing
        return
    measuring = kept.take(COMPILING, partial(ChildProcess, "gpu", environment=environment, torch=True))
    try:
        for asked in (
            {**preparation.request, "ask": "prepare", "problems": problems},
            {"ask": "baselines", "names": series.compiling, "only_launched": True},
        ):
            measuring.ask(asked, deadline_s=left_s(deadline))
    finally:
        kept.put_back(COMPILING, measuring)
