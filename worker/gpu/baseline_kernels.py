"""Compiles the kernels of baselines for a whole submission, so that the GPU need not wait for each kernel."""

import hashlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

import structlog

from tilewatch import processes
from tilewatch.baselines import DEEP_GEMM
from tilewatch.kernels.device import Gpu
from tilewatch.kernels.measuring import baseline_cache
from tilewatch.kernels.measuring.baseline_cache import SeriesToPrepare
from tilewatch.kernels.toolchains.versions import versions

log = structlog.get_logger()

LOOK_EVERY_S = 0.2


def prepare(folder: Path, series: Sequence[SeriesToPrepare], gpu: Gpu, store_url: str, needed: SeriesToPrepare) -> None:
    """Compiles missing kernels of baselines. If another process is compiling them, only waits for `needed`."""
    met = {each: folder / _name(each, gpu) for each in series if each.compiling}
    if not met:
        return
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while not processes.try_lock(lock):
            if needed not in met or met[needed].exists():
                return
            time.sleep(LOOK_EVERY_S)
        if missing := sorted((each for each in met if not met[each].exists()), key=lambda each: each != needed):
            failures = baseline_cache.fill(missing, gpu.uuid, store_url, lambda each: met[each].touch())
            log.info("prepared baselines", series=len(missing), failures=failures)
            for each in missing:  # also what failed: its series does without
                met[each].touch()
    finally:
        os.close(lock)


def _name(series: SeriesToPrepare, gpu: Gpu) -> str:
    assert gpu.model is not None
    named = [versions((DEEP_GEMM,)), gpu.model.slug, series.kernel, series.problem, series.baselines]
    return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:32]
