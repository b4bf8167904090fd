"""Stores the launches of runs on disk, to read the hardware counters of several runs at once later.

Nsight Compute takes 2.6 to 6 s for one run, mostly for its start (four H100, driver 580.159.04, 2026-11-28)."""

import contextlib
import functools
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import structlog
from pydantic import TypeAdapter

from tilewatch import processes
from tilewatch.configs import config_key
from tilewatch.kernels.checklist.of_winner import list_lines
from tilewatch.kernels.device import Gpu
from tilewatch.kernels.gpu.host_code.described_run import read_described
from tilewatch.kernels.measuring.gpu_turn import find_turn
from tilewatch.kernels.measuring.measure import MeasureRequest, UncountedRun
from tilewatch.kernels.measuring.profiler import GpuWanted, NoCounters, Profiler
from tilewatch.kernels.measuring.profiling import add_counts, count_several, start_profiler
from tilewatch.kernels.results import Cubin, Measured, Params

log = structlog.get_logger()

LATER = "they are read when the GPU has no series to measure"
"""The reason why a run has no hardware counters yet, as the end of a sentence."""

MOST_AT_ONCE = 8
"""The most runs per start of Nsight Compute, which takes 1.7 to 5 s for each run. A waiting series stops Nsight
Compute, and the counters read so far are lost. Without this stop, series waited up to 48 s (four H200, 2026-11-28)."""

LONGEST_WAIT_S = 12 * 3600.0
"""The seconds after which a run's counters are read even if series wait for the GPU. Some series may always wait."""

KEPT_S = 24 * 3600.0
"""The seconds after which a run's launches are deleted if the run was not stored, which happens if its GPU was ill."""

CHECKLISTS_AT_ONCE = 4


@dataclass(frozen=True)
class Uncounted:
    """A run without hardware counters. `described` has the launch of each config as JSON, the winner's first."""

    run_key: str
    library: str
    kernel: str
    problem: str
    arch: str
    winner: Cubin
    configs: tuple[Params, ...]
    described: tuple[dict[str, Any], ...]


_READ = TypeAdapter(Uncounted)
Write = Callable[[str, Mapping[str, Any]], bool]
"""Adds hardware counters to the run with this key. Returns False if no such run is stored."""


def refuse_for_now() -> Profiler:
    """Raises NoCounters, because a run's counters are read later."""
    raise NoCounters(LATER)


def keep(folder: Path, run_key: str, gpu: Gpu, run: UncountedRun, request: MeasureRequest) -> None:
    """Writes a file from which a run's counters can be read later."""
    winner = next((each for each in request.cubins if config_key(each.config) == config_key(run.configs[0])), None)
    if winner is None or isinstance(run.described, str):
        return
    described = tuple(map(asdict, run.described))
    uncounted = Uncounted(
        run_key, str(request.library), request.kernel, request.problem, request.arch, winner, run.configs, described
    )
    waiting = folder / gpu.uuid
    with contextlib.suppress(OSError):  # if the disk is full, the run gets no counters
        waiting.mkdir(parents=True, exist_ok=True)
        making = waiting / f"{time.time_ns()}-{os.getpid()}.making"
        making.write_text(json.dumps(asdict(uncounted)), encoding="utf-8")
        making.rename(making.with_suffix(".json"))


def list_waiting(folder: Path, gpu: Gpu) -> list[Path]:
    """Lists the files of a GPU's runs that wait for counters, the oldest first."""
    return sorted((folder / gpu.uuid).glob("*.json"))


def is_overdue(waiting: Sequence[Path]) -> bool:
    """Returns whether the oldest of these files has waited longer than LONGEST_WAIT_S."""
    return bool(waiting) and time.time() - waiting[0].stat().st_mtime > LONGEST_WAIT_S


def read_counters(folder: Path, gpu: Gpu, store_url: str, write: Write) -> int:
    """Reads the counters of the oldest waiting runs and calls `write` for each run. Returns the number of runs."""
    (folder / gpu.uuid).mkdir(parents=True, exist_ok=True)
    with (folder / gpu.uuid / "lock").open("w") as lock:
        return _read_oldest(folder, gpu, store_url, write) if processes.try_lock(lock) else 0


def _read_oldest(folder: Path, gpu: Gpu, store_url: str, write: Write) -> int:
    files = list_waiting(folder, gpu)[:MOST_AT_ONCE]
    found = {file: _read(file) for file in files}
    runs = {file: each for file, each in found.items() if each is not None}
    for file in files:
        if file not in runs:
            file.unlink(missing_ok=True)
    if not runs:
        return 0
    try:
        details = _count(list(runs.values()), gpu, store_url, is_patient=not is_overdue(list(runs)))
    except GpuWanted:
        log.info("a series came before the counters were read", gpu=gpu.uuid)
        return 0
    with ThreadPoolExecutor(CHECKLISTS_AT_ONCE) as pool:
        complete = list(pool.map(_add_checklist, runs.values(), details, [store_url] * len(details)))
    for (file, run), detail in zip(runs.items(), complete, strict=True):
        if write(run.run_key, detail) or time.time() - file.stat().st_mtime > KEPT_S:
            file.unlink(missing_ok=True)
        else:  # others may be stored
            file.rename(file.with_name(f"{time.time_ns()}-{os.getpid()}.json"))
    log.info("read counters", runs=len(runs), gpu=gpu.uuid)
    return len(runs)


def _read(file: Path) -> Uncounted | None:
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):  # such as launches of another release
        run = _READ.validate_json(file.read_bytes())
        return run if list(map(read_described, run.described)) else None
    return None


def _count(runs: Sequence[Uncounted], gpu: Gpu, store_url: str, *, is_patient: bool) -> list[dict[str, Any]]:
    """Returns the hardware counters of each run. If `is_patient`, raises GpuWanted when a series needs the GPU."""
    described = [[read_described(each) for each in run.described] for run in runs]
    turn = find_turn(gpu.uuid)
    start = functools.partial(start_profiler, gpu.uuid, turn.is_wanted if is_patient else lambda: False)
    with contextlib.ExitStack() as opened:
        first = opened.enter_context(start())  # it needs 2 s before it touches the GPU
        opened.enter_context(turn)
        known = count_several(described, store_url=store_url, gpu=gpu, known={}, profiler=first)
        details = []
        for run, launches in zip(runs, described, strict=True):
            (kernel,) = add_counts(
                [Measured(run.kernel, "kernel", (), run.winner.config)],
                run.configs,
                launches,
                store_url=store_url,
                gpu=gpu,
                known=known,
                start=lambda: opened.enter_context(start()),
            )
            details.append(dict(kernel.detail))
    return details


def _add_checklist(run: Uncounted, detail: dict[str, Any], store_url: str) -> dict[str, Any]:
    lines = list_lines(
        Path(run.library), run.arch, run.kernel, run.problem, store_url, run.winner, detail.get("counters")
    )
    return detail if lines is None else {**detail, "checklist": lines}
