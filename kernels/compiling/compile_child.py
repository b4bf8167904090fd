"""Compiles the kernel launches of a config to cubins, or hashes the launches, in a child process.

This process never runs code of a library, so that no commit can change the stored files."""

import functools
import hashlib
import json
import resource
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cuda.tile as ct

from tilewatch.kernels import NAMING
from tilewatch.kernels.compiling.bytecode import BadBytecode
from tilewatch.kernels.compiling.compiler_guard import CompilerGuard
from tilewatch.kernels.compiling.compiler_input import compile_input, find_compiler_files
from tilewatch.kernels.compiling.cubin import hash_machine_code, read_static_facts
from tilewatch.kernels.compiling.operator_code import hash_bundle, store_bundle
from tilewatch.kernels.compiling.programs import ProgramMissing
from tilewatch.kernels.compiling.store import CubinStore, StoreError, require_room
from tilewatch.kernels.compiling.traced_code import LaunchInput, TracedCode, read_traced
from tilewatch.kernels.library_errors import LibraryError, first_line
from tilewatch.kernels.results import is_final
from tilewatch.kernels.toolchains.versions import compiler_version
from tilewatch.kernels.watching.tracer import TracingError

_store = functools.cache(CubinStore)


def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the result of compiling or hashing a config. A failing config raises no exception."""
    ask = request["ask"]
    if ask == "ready":  # everything this role needs was imported
        return {"compiler": compiler_version(), "files": find_compiler_files()}
    try:
        code = read_traced(request["traced"])
        return _identify(code, request) if ask == "identify" else _compile_all(code, request)
    except (LibraryError, ProgramMissing) as error:
        return {"error": str(error)}
    except StoreError as error:
        return {"store_error": str(error)}
    except TracingError as error:
        return _make_failure("error", str(error), 0.0, 0.0, None)


def _identify(code: TracedCode, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the hashes of a config's code and launches without compiling."""
    try:
        keys = [_content_key(each, request) for each in code.launches]
    except BadBytecode as error:
        return _make_failure("error", first_line(error), 0.0, 0.0, None)
    key = hash_bundle(keys, code.launches) if code.is_bundle else keys[0]
    return {"status": "ok", "content_key": key, "launch_sha256": code.launch_sha256}


def _compile_all(code: TracedCode, request: Mapping[str, Any]) -> Mapping[str, Any]:
    by_key = {each.launch_key: each for each in code.launches}
    outcomes = {key: _compile(each, request) for key, each in by_key.items()}
    if code.is_bundle:
        return store_bundle(_store(request["store"], request["made"]), code.launches, outcomes)
    (outcome,) = outcomes.values()
    return outcome


def _compile(launch: LaunchInput, request: Mapping[str, Any]) -> Mapping[str, Any]:
    store = _store(request["store"], request["made"])
    started, cpu = time.perf_counter(), _measure_cpu_s()
    guard = CompilerGuard(memory_bytes=request["memory_bytes"], cpu_s=request["limit_s"])
    key = cubin = None
    try:
        key = _content_key(launch, request)
        stored = store.outcome(key)
        if stored is not None and is_final(stored, request["limit_s"]):
            return {**stored, "reused": True}
        with guard:
            cubin, remarks = compile_input(launch.wanted, request["arch"], request["wall_limit_s"])
    except ct.TileCompilerTimeoutError:
        failure = (
            f"stopped after {request['wall_limit_s']:g} s with {guard.cpu_s:.1f} s of CPU time: the machine was too "
            "busy; submit it again to compile it again"
        )
        outcome = _make_failure("timeout", failure, time.perf_counter() - started, guard.cpu_s, key)
    except StoreError:
        raise
    except FileNotFoundError as error:
        # cuda-tile found no tileiras: the machine is not set up, so the config has not failed.
        return {"error": f"the tile compiler is missing: {error}"}
    except Exception as error:  # noqa: BLE001 - the edge of a trial: the compiler and the kernel may raise anything
        status, failure = "error", first_line(error)
        if guard.exceeded == "memory":
            failure = f"the tile compiler needed more than {request['memory_bytes'] / 2**30:g} GiB"
        elif guard.exceeded == "cpu":
            status, failure = "timeout", f"not compiled within {request['limit_s']:g} s of CPU time"
        # The CPU time of a killed compiler's own children is missing in getrusage; the guard has seen it.
        cpu_s = max(_measure_cpu_s() - cpu, guard.cpu_s)
        outcome = _make_failure(status, failure, time.perf_counter() - started, cpu_s, key)
    else:
        outcome = {
            "status": "ok",
            "compile_s": time.perf_counter() - started,
            "cpu_s": _measure_cpu_s() - cpu,
            "content_key": key,
            "code_sha256": hash_machine_code(cubin),
            "symbol": launch.symbol,
            "facts": _read_facts(cubin, remarks),
        }
    if key is not None:
        store.put(key, outcome, cubin, launch.wanted.bytecode if cubin else None)
    return {**outcome, "reused": False}


def _read_facts(cubin: bytes, remarks: str) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return asdict(read_static_facts(Path(file.name), remarks))


def _make_failure(status: str, failure: str, compile_s: float, cpu_s: float, key: str | None) -> dict[str, Any]:
    require_room()
    return {"status": status, "failure": failure, "compile_s": compile_s, "cpu_s": cpu_s, "content_key": key}


def _content_key(launch: LaunchInput, request: Mapping[str, Any]) -> str:
    """Returns the key under which a launch's compilation is stored. It hashes everything that affects the outcome."""
    # A compilation that exceeds a limit is stored too.
    limits = [request["limit_s"], request["memory_bytes"]]
    parts = [NAMING, launch.symbol, launch.wanted.identify(), request["arch"], compiler_version(), limits]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _measure_cpu_s() -> float:
    """Returns the CPU seconds of this process and its compilers."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
