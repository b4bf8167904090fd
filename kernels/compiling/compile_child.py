"""Child role `compile`: compiles one config to a cubin with its static facts, through cuda-tile's public exporter.

cuTile keeps the compiler's remarks only in its own cache database, so the parent points that cache at a folder for this
child alone (CUDA_TILE_CACHE_DIR), and each compile's row is read from there.
"""

import functools
import hashlib
import io
import json
import os
import resource
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cuda.tile as ct
from cuda.tile.compilation import KernelSignature, export_kernel
from cutile_cache._cache import cache_entries  # the only way to the remarks (cuda-tile 1.7)

from tilewatch.kernels.compiling.bytecode import meaning_sha256
from tilewatch.kernels.compiling.compiler_guard import CompilerGuard
from tilewatch.kernels.compiling.cubin import CuobjdumpMissing, code_sha256, static_facts
from tilewatch.kernels.compiling.operator_code import bundle, bundle_key
from tilewatch.kernels.compiling.store import CubinStore, StoreError, is_final
from tilewatch.kernels.compiling.toolchain import compiler_version
from tilewatch.kernels.contract import HINTS, BadProblem, Kernel, Problem
from tilewatch.kernels.loading import LibraryError, LibraryOperator, find
from tilewatch.kernels.parameters import Constant, arguments
from tilewatch.kernels.signature import BadConfig, Signature, signature, tile_signature
from tilewatch.kernels.watching.declare import BadWatchFile
from tilewatch.kernels.watching.recorder import RecordingError

SM_COUNTS = (1, 108, 132, 148, 170, 1 << 20)
"""Multiprocessors for which two grids are compared: of real GPUs, and more extreme ones."""

_cache = os.environ["CUDA_TILE_CACHE_DIR"]
_store = functools.cache(CubinStore)


def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Every failure of a config is an answer with a status; only a broken set-up is an answer with "error", and a
    store that cannot be used one with "store_error"."""
    if request.get("ask") == "ready":  # everything this role needs was imported
        return {}
    try:
        loaded = find(Path(request["library"]), request["kernel"], request["arch"])
        problem = loaded.kernel.parse(request["problem"])
        if isinstance(loaded, LibraryOperator):
            return _answer_for_operator(loaded, problem, request)
        kernel = loaded.kernel
        wanted = signature(kernel, problem, request["config"])
        if request.get("ask") == "identify":
            return _identify(kernel, problem, wanted, request)
        return _compile(kernel.entry.replace_hints(**dict(wanted.hints)), tile_signature(wanted), request)
    except (LibraryError, CuobjdumpMissing) as error:
        return {"error": str(error)}
    except StoreError as error:
        return {"store_error": str(error)}
    except (BadConfig, BadProblem, BadWatchFile, RecordingError) as error:
        return _failure("error", str(error), 0.0, 0.0, None)


def _answer_for_operator(loaded: LibraryOperator, problem: Problem, request: Mapping[str, Any]) -> Mapping[str, Any]:
    arch, config = request["arch"], request["config"]
    recorded = loaded.record(problem)
    try:
        launches = recorded.launches(config)
    except (BadWatchFile, RecordingError):
        raise
    except Exception as error:  # noqa: BLE001 - host code may refuse a config in any way
        return _failure("error", _first_line(error), 0.0, 0.0, None)
    if request.get("ask") == "identify":
        try:
            keys = [_content_key(_bytecode(each.kernel, each.signature, arch), request) for each in launches]
        except Exception as error:  # noqa: BLE001 - the edge of a trial: the compiler and the kernel may raise anything
            return _failure("error", _first_line(error), 0.0, 0.0, None)
        launched = repr([(each.grid, each.signature.parameters) for each in launches])
        return {
            "status": "ok",
            "content_key": bundle_key(keys, launches),
            "launch_sha256": hashlib.sha256(launched.encode()).hexdigest(),
        }
    by_key = {each.key: each for each in launches}
    outcomes = {key: _compile(each.kernel, each.signature, request) for key, each in by_key.items()}
    return bundle(_store(request["store"]), launches, outcomes)


def _identify(kernel: Kernel, problem: Problem, wanted: Signature, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Names the code and the way it is launched, without compiling: the grid is no part of the bytecode."""
    try:
        hinted = kernel.entry.replace_hints(**dict(wanted.hints))
        key = _content_key(_bytecode(hinted, tile_signature(wanted), request["arch"]), request)
        grids = [kernel.grid(problem, request["config"], sm_count) for sm_count in SM_COUNTS]
    except Exception as error:  # noqa: BLE001 - the edge of a trial: the compiler and the kernel may raise anything
        return _failure("error", _first_line(error), 0.0, 0.0, None)
    given = arguments(kernel, problem, request["config"])
    launched = repr((grids, [each for each in given if not isinstance(each, Constant)]))
    return {"status": "ok", "content_key": key, "launch_sha256": hashlib.sha256(launched.encode()).hexdigest()}


def _bytecode(kernel: Any, wanted: KernelSignature, arch: str) -> bytes:
    out = io.BytesIO()
    export_kernel(kernel, [wanted], out, gpu_code=arch, output_format="tileir_bytecode")
    return out.getvalue()


def _compile(kernel: Any, wanted: KernelSignature, request: Mapping[str, Any]) -> Mapping[str, Any]:
    store, arch = _store(request["store"]), request["arch"]
    started, cpu = time.perf_counter(), _cpu_s()
    guard = CompilerGuard(memory_bytes=request["memory_bytes"], cpu_s=request["limit_s"])
    key = None
    try:
        key = _content_key(_bytecode(kernel, wanted, arch), request)
        stored = store.outcome(key)
        if stored is not None and is_final(stored, request["limit_s"]):
            return {**stored, "reused": True}
        cubin = io.BytesIO()
        with guard, ct.compiler_timeout(request["wall_limit_s"]):
            export_kernel(kernel, [wanted], cubin, gpu_code=arch, output_format="cubin")
    except ct.TileCompilerTimeoutError:
        failure = (
            f"stopped after {request['wall_limit_s']:g} s with {guard.cpu_s:.1f} s of CPU time: the machine was too "
            "busy; submit it again to compile it again"
        )
        outcome = _failure("timeout", failure, time.perf_counter() - started, _cpu_s() - cpu, key)
    except FileNotFoundError as error:
        # cuda-tile found no tileiras: the machine is not set up, and no config is to blame for that.
        return {"error": f"the tile compiler is missing: {error}"}
    except Exception as error:  # noqa: BLE001 - the edge of a trial: the compiler and the kernel may raise anything
        status, failure = "error", _first_line(error)
        if guard.exceeded == "memory":
            failure = f"the tile compiler needed more than {request['memory_bytes'] / 2**30:g} GiB"
        elif guard.exceeded == "cpu":
            status, failure = "timeout", f"not compiled within {request['limit_s']:g} s of CPU time"
        # A compiler that is killed takes what its own children used out of what this process can ask for.
        cpu_s = max(_cpu_s() - cpu, guard.cpu_s)
        outcome = _failure(status, failure, time.perf_counter() - started, cpu_s, key)
    else:
        outcome = _success(cubin.getvalue(), str(wanted.symbol), key, time.perf_counter() - started, _cpu_s() - cpu)
        store.put(key, outcome, cubin.getvalue())
        return {**outcome, "reused": False}
    if key is not None:
        store.put(key, outcome, None)
    return {**outcome, "reused": False}


def _success(cubin: bytes, symbol: str, key: str, compile_s: float, cpu_s: float) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        facts = static_facts(Path(file.name), _take_remarks())
    return {
        "status": "ok",
        "compile_s": compile_s,
        "cpu_s": cpu_s,
        "content_key": key,
        "code_sha256": code_sha256(cubin),
        "symbol": symbol,
        "facts": asdict(facts),
    }


def _failure(status: str, failure: str, compile_s: float, cpu_s: float, key: str | None) -> dict[str, Any]:
    return {"status": status, "failure": failure, "compile_s": compile_s, "cpu_s": cpu_s, "content_key": key}


def _content_key(bytecode: bytes, request: Mapping[str, Any]) -> str:
    """The limits are part of it because meeting one is remembered too."""
    limits = [request["limit_s"], request["memory_bytes"]]
    parts = [meaning_sha256(bytecode), request["arch"], compiler_version(), limits, HINTS]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _take_remarks() -> str:
    """Returns the remarks of the compile that just ended, and empties the cache for the next one."""
    entries = list(cache_entries(_cache))
    for name in os.listdir(_cache):
        if name.startswith("cache.db"):
            os.unlink(os.path.join(_cache, name))
    return (entries[0].metadata.remarks or "") if entries else ""


def _cpu_s() -> float:
    """CPU seconds of this process and of the compilers it ran."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
