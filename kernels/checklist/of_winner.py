"""Adds the checklist of a run's winning config to the run."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tilewatch.configs import config_key
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.checklist.checklist import checklist
from tilewatch.kernels.compiling.cubin import read_threads_per_block
from tilewatch.kernels.compiling.operator_code import ELF
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.kernels.measuring.measure import MeasureRequest
from tilewatch.kernels.results import Compiled, Cubin, RunResult, StaticFacts

log = logging.getLogger(__name__)


def add_checklist(result: RunResult, request: MeasureRequest, cubins: Iterable[Cubin]) -> RunResult:
    """Returns the run with the checklist of its winning config, or the unchanged run if no checklist can be made."""
    if result.winner is None:
        return result
    won = config_key(result.winner)
    cubin = next((each for each in cubins if config_key(each.config) == won), None)
    kernel = next((each for each in result.measurements if each.role == "kernel"), None)
    if cubin is None or kernel is None:
        return result
    counters = kernel.detail.get("counters")
    lines = list_lines(
        request.library, request.arch, request.kernel, request.problem, request.store_url, cubin, counters
    )
    if lines is None:  # a missing checklist does not fail a run
        return result
    detail = {**kernel.detail, "checklist": lines}
    measurements = tuple(replace(each, detail=detail) if each is kernel else each for each in result.measurements)
    return replace(result, measurements=measurements)


def list_lines(
    library: Path,
    arch: str,
    kernel: str,
    problem: str,
    store_url: str,
    cubin: Cubin,
    counters: Mapping[str, float] | None,
) -> list[dict[str, Any]] | None:
    """Returns the checklist of a config, one dict per rule, or None if it cannot be made."""
    try:
        described = catalog.describe(library, arch=arch, kernel=kernel, problem=problem, config=cubin.config)
        store = CubinStore(store_url)
        facts = (store.outcome(cubin.content_key) or {}).get("facts")
        code = store.cubin(cubin.content_key)
        known = StaticFacts(**{**facts, "remarks": tuple(facts["remarks"])}) if facts else None
        compiled = Compiled("ok", "", arch, 0.0, 0.0, reused=True, facts=known)
        threads = read_threads_per_block(code) if code.startswith(ELF) else None
        return [asdict(line) for line in checklist(described, compiled, threads, counters)]
    except Exception as error:  # noqa: BLE001 - a missing checklist fails neither a run nor a recording
        log.warning("no checklist of %s on %s: %s: %s", kernel, problem, type(error).__name__, error)
        return None
