"""Compiles the kernels of baselines before they are timed. DeepGEMM needs some 10 s per kernel (H200, 2026-11)."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tilewatch import processes
from tilewatch.baselines import BASELINES, DEEP_GEMM
from tilewatch.errors import ExpectedError
from tilewatch.kernels.children.child_process import ChildDied, ChildHung, ChildProcess
from tilewatch.kernels.compiling.deferred_nvcc import DeferredNvcc, find_nvcc
from tilewatch.kernels.measuring.gpu_turn import GpuTurn, find_turn
from tilewatch.kernels.measuring.kept_process import KeptProcess
from tilewatch.kernels.measuring.preparation import Preparation, describe, left_s

COMPILING = tuple(each.name for each in BASELINES if each.package == DEEP_GEMM)
"""Names of the baselines that compile their own kernels."""

DEADLINE_S = 120.0
AT_ONCE = max(2, min(16, processes.count_cores() // 2))
"""Number of series whose kernels are compiled at once."""

LAUNCHED_AT_ONCE = 4
FEW = 2
"""The numbers of series launched at once: LAUNCHED_AT_ONCE first, then FEW for the series that failed. Twelve series of
8 GB each had run out of memory (H100, 2026-11-27)."""

MOST_LAUNCHES = 8
"""Most launches of a series. A launch ends at the first kernel that is not compiled, and a baseline has few kernels."""


@dataclass(frozen=True)
class SeriesToPrepare:
    """A problem of a kernel, and the baselines to prepare for this problem."""

    library: Path
    kernel: str
    problem: str
    baselines: tuple[str, ...]

    @property
    def compiling(self) -> list[str]:
        """Returns the baselines that compile their own kernels."""
        return [name for name in self.baselines if name in COMPILING]


OnDone = Callable[[SeriesToPrepare], object]


def fill(series: Sequence[SeriesToPrepare], gpu_uuid: str, store_url: str, on_done: OnDone = id) -> list[str]:
    """Launches baselines until their kernels are compiled. Returns an error message for each problem that failed."""
    left = [each for each in series if each.compiling]
    # Threads call `on_done`.
    failures: list[tuple[SeriesToPrepare, str]] = []
    nvcc = find_nvcc()
    with DeferredNvcc(nvcc) if nvcc else contextlib.nullcontext() as deferred, ThreadPoolExecutor(AT_ONCE) as pool:
        for at_once in (LAUNCHED_AT_ONCE, FEW):
            with contextlib.ExitStack() as stack:
                launchers: SimpleQueue[_Launcher] = SimpleQueue()
                for _ in range(at_once):
                    launcher = _Launcher(gpu_uuid, deferred)
                    stack.callback(launcher.close)
                    launchers.put(launcher)
                of_gpu = partial(_prepare, gpu_uuid=gpu_uuid, store_url=store_url)
                prepare = partial(of_gpu, launchers=launchers, deferred=deferred, on_done=on_done)
                failures = [each for each in pool.map(prepare, left) if each]
            left = [each for each, _ in failures]
    return [why for _, why in failures]


def _prepare(
    series: SeriesToPrepare,
    *,
    gpu_uuid: str,
    store_url: str,
    launchers: "SimpleQueue[_Launcher]",
    deferred: DeferredNvcc | None,
    on_done: OnDone,
) -> tuple[SeriesToPrepare, str] | None:
    """Launches a problem's baselines until all kernels are compiled. On failure, returns (problem, message)."""
    try:
        described = _describe(series, gpu_uuid, store_url)
        for _ in range(MOST_LAUNCHES if described else 0):
            launcher = launchers.get()
            try:
                wanted = launcher.launch(described, series.compiling)
            finally:
                launchers.put(launcher)
            if deferred is None or not wanted:
                break
            deferred.compile(wanted)
    except (ExpectedError, ChildDied, ChildHung) as error:
        return series, f"the baselines of {series.kernel} {series.problem} could not be prepared: {error}"[:300]
    on_done(series)
    return None


def _describe(series: SeriesToPrepare, gpu_uuid: str, store_url: str) -> Mapping[str, Any]:
    """Returns the request to prepare a problem, or {} for a watched operator."""
    preparation = Preparation(series.library, series.kernel, series.problem, store_url)
    environment = {"CUDA_VISIBLE_DEVICES": gpu_uuid}
    with contextlib.closing(ChildProcess("library", environment=environment, library=series.library)) as library:
        problems = describe(library, preparation, time.monotonic() + DEADLINE_S)
    return {} if problems is None else {**preparation.request, "ask": "prepare", "problems": problems}


class _Launcher:
    """A GPU process that launches the baselines of one problem after another."""

    def __init__(self, gpu_uuid: str, deferred: DeferredNvcc | None) -> None:
        self._environment = {"CUDA_VISIBLE_DEVICES": gpu_uuid, **(deferred.make_environment() if deferred else {})}
        self._deferred = deferred
        self._turn: GpuTurn = find_turn(gpu_uuid)
        self._kept = KeptProcess()

    def close(self) -> None:
        self._kept.close()

    def launch(self, described: Mapping[str, Any], names: Sequence[str]) -> list[Path]:
        """Launches baselines without checking results. Returns the sources of kernels to compile."""
        measuring = self._kept.take(COMPILING, partial(ChildProcess, "gpu", environment=self._environment, torch=True))
        try:
            with self._turn.prepare():
                deadline = time.monotonic() + DEADLINE_S
                for asked in (
                    described,
                    {"ask": "baselines", "names": names, "only_launched": True},
                    {"ask": "free"},  # before another process measures
                ):
                    measuring.ask(asked, deadline_s=left_s(deadline))
        finally:
            self._kept.put_back(COMPILING, measuring)
        return self._deferred.take_wanted(self._environment) if self._deferred else []
