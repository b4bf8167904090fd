"""Lets baselines compile their kernels for a whole submission at once, before its first series is measured here.

Compiled one after the other, they would keep the GPU waiting for minutes: nvcc takes 10 s for a kernel of DeepGEMM.
"""

import fcntl
import json
import os
from collections.abc import Sequence
from pathlib import Path

import structlog

from tilewatch.baselines import DEEP_GEMM
from tilewatch.kernels.device import Gpu
from tilewatch.kernels.measuring import baseline_cache
from tilewatch.kernels.measuring.baseline_cache import SeriesToPrepare
from tilewatch.kernels.toolchains.versions import versions

log = structlog.get_logger()


def prepare(
    folder: Path, series: Sequence[SeriesToPrepare], gpu: Gpu, store_url: str, *, is_needed: bool = True
) -> None:
    """Prepares the series that this machine has not prepared yet with these versions of the baselines. If another
    process of this machine is doing so, waits for it only if it `is_needed` for the next series."""
    series = [each for each in series if any(name in baseline_cache.COMPILING for name in each.baselines)]
    if not series:
        return
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if is_needed else fcntl.LOCK_NB))
        except BlockingIOError:
            return
        met_file = folder / "met.json"
        met = _read(met_file)
        missing = {name: each for each in series if (name := _name(each, gpu)) not in met}
        if missing:
            failures = baseline_cache.fill(list(missing.values()), gpu.uuid, store_url)
            log.info("prepared baselines", series=len(missing), failures=failures)
            met_file.write_text(json.dumps(sorted(met | missing.keys())), encoding="utf-8")
    finally:
        os.close(lock)


def _read(file: Path) -> set[str]:
    try:
        return set(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return set()


def _name(series: SeriesToPrepare, gpu: Gpu) -> str:
    packages = versions((DEEP_GEMM,))
    assert gpu.model is not None
    return json.dumps([packages, gpu.model.slug, series.kernel, series.problem, series.baselines], sort_keys=True)
