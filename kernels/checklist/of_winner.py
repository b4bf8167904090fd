"""Adds the checklist of its winner to a run: what its library file says, the store's cubin, and the run's counters."""

import logging
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path

from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.checklist.checklist import Line, checklist
from tilewatch.kernels.compiling.cubin import threads_per_block
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.kernels.measuring.measure import MeasureRequest
from tilewatch.kernels.results import Compiled, Cubin, Measured, RunResult, StaticFacts, config_key

log = logging.getLogger(__name__)

ELF = b"\x7fELF"
"""A cubin; what else a store holds is a bundle of them, of an operator."""


def add_checklist(result: RunResult, request: MeasureRequest, cubins: Iterable[Cubin]) -> RunResult:
    """Returns the run with the lines in the detail of its kernel's measurement; the same run where there is no winner,
    or its library file or cubin cannot be read."""
    if result.winner is None:
        return result
    won = config_key(result.winner)
    cubin = next((each for each in cubins if config_key(each.config) == won), None)
    kernel = next((each for each in result.measurements if each.role == "kernel"), None)
    if cubin is None or kernel is None:
        return result
    try:
        lines = _list_lines(request, cubin, kernel)
    except Exception as error:  # noqa: BLE001 - a run does not fail for it, nor a recording of many
        log.warning("no checklist of %s on %s: %s: %s", request.kernel, request.problem, type(error).__name__, error)
        return result
    detail = {**kernel.detail, "checklist": [asdict(line) for line in lines]}
    measurements = tuple(replace(each, detail=detail) if each is kernel else each for each in result.measurements)
    return replace(result, measurements=measurements)


def _list_lines(request: MeasureRequest, cubin: Cubin, measured: Measured) -> tuple[Line, ...]:
    """Lists the checklist's lines for a winner. Raises LibraryError or StoreError."""
    described = catalog.describe(
        Path(request.library), arch=request.arch, kernel=request.kernel, problem=request.problem, config=cubin.config
    )
    store = CubinStore(request.store_url)
    facts = (store.outcome(cubin.content_key) or {}).get("facts")
    code = store.cubin(cubin.content_key)
    compiled = Compiled(
        "ok",
        "",
        request.arch,
        0.0,
        0.0,
        reused=True,
        facts=StaticFacts(**{**facts, "remarks": tuple(facts["remarks"])}) if facts else None,
    )
    threads = threads_per_block(code) if code.startswith(ELF) else None
    return checklist(described, compiled, threads, measured.detail.get("counters"))
