"""Forks child processes that have imported cuTile, CuPy and ours: `python -m tilewatch.kernels.child fork FD`.

Importing takes 0.4 to 0.7 s of CPU time, a fork 10 ms (2 cores, 2026-11-22), and a comparison of two commits has five
children; PyTorch, for children that time baselines, takes more than a second. This process runs no library: a child is
forked before it loads one, and confines itself like one that was started (kernels/child.py). Nor does it ask anything
of CUDA, which would not work in a fork afterwards: importing CuPy, CUPTI, NVML and PyTorch asks nothing. What a child
started and left ends with the child. It ends when FD, its socket, has no other end, and ends all of them before.
"""

import contextlib
import functools
import gc
import importlib
import json
import os
import socket
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tilewatch import processes

FORK = "fork"
"""The role of the server itself."""

COMPILING = ("trace", "compile")
"""The roles that make bytecode."""

MESSAGE_BYTES = 1 << 17
STREAMS = 3
"""A child's standard input, output and error come with its request."""


class Forked(NamedTuple):
    """What `serve` returns in a child."""

    role: str
    readable: list[str]
    writable: list[str]


def serve(control: socket.socket, import_role: Callable[[str], object]) -> Forked | None:
    """Answers until nobody asks, and then returns None. Returns in each child too, for which `import_role` was called
    in the server."""
    server = os.getpid()
    processes.adopt_orphans()
    forked: set[int] = set()
    while True:
        message, files, _, _ = socket.recv_fds(control, MESSAGE_BYTES, STREAMS)
        if not message:  # whoever asked has ended, perhaps by SIGKILL
            processes.kill_descendants(os.getpid())
            return None
        request = json.loads(message)
        if "ended" in request:
            _, status = os.waitpid(request["ended"], 0)
            forked.remove(request["ended"])
            processes.end_orphans(forked)
            control.sendall(json.dumps({"code": os.waitstatus_to_exitcode(status)}).encode())
            continue
        with contextlib.suppress(Exception):  # the child imports again, and its last words say what failed
            import_role(request["role"])
            if request["torch"]:  # after CuPy, as in a child: which cuBLAS a process has depends on the order
                importlib.import_module("torch")
            if request["role"] in COMPILING:
                _ask_bytecode_version()
        gc.freeze()  # collecting garbage in the child would copy what it shares with this process
        has_group, group_made = os.pipe()
        process_id = os.fork()
        if process_id == 0:
            os.setsid()
            os.close(group_made)
            processes.end_with_parent(request["death_signal"])
            if os.getppid() != server:  # which ended before this
                os._exit(1)
            Path("/proc/self/comm").write_text(f"tw-{request['role']}")  # for top; 15 characters at most
            _become(request["environment"], files)
            return Forked(request["role"], request["readable"], request["writable"])
        forked.add(process_id)
        for file in (*files, group_made):
            os.close(file)
        # Whoever ends a child signals its group: before there is one, the signal reaches nobody, and the child stays.
        os.read(has_group, 1)
        os.close(has_group)
        handle = os.pidfd_open(process_id)
        socket.send_fds(control, [json.dumps({"process_id": process_id}).encode()], [handle])
        os.close(handle)


@functools.cache
def _ask_bytecode_version() -> None:
    """Asks the compiler for the bytecode version that it reads, before children need it: cuTile asks in each process,
    by two programs and 0.05 s of CPU time. The answer is true of all children that have the same compiler."""
    from cuda.tile import _compile

    ask = _compile._get_max_supported_bytecode_version
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="tilewatch-bytecode-") as folder:
        warnings.simplefilter("error")  # cuTile warns when its compiler fails, which may be temporary
        version, compiler = ask(folder), _compile._find_compiler_bin().path
    _compile._find_compiler_bin.cache_clear()  # a child looks for its own, by its own environment

    def answer(temp_dir: str, allow_dev: bool = False) -> Any:
        same = not allow_dev and _compile._find_compiler_bin().path == compiler
        return version if same else ask(temp_dir, allow_dev)

    _compile._get_max_supported_bytecode_version = answer


def _become(environment: dict[str, str], files: list[int]) -> None:
    """Leaves this process nothing of the server's but its memory."""
    for stream, file in enumerate(files):
        os.dup2(file, stream)
    os.closerange(STREAMS, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    if "cuda.tile" in sys.modules:
        _read_cutile_settings()
    if "cupy" in sys.modules:
        _read_cupy_settings()


def _read_cutile_settings() -> None:
    """Reads cuTile's settings from this child's environment: cuTile read the server's when it was imported."""
    from cuda.tile import _context
    from cuda.tile._cext import default_tile_context

    settings: Any = default_tile_context.config
    vars(settings).update(vars(_context.init_context_config_from_env()))


def _read_cupy_settings() -> None:
    """Sets the folder of CuPy's cache again. CuPy 14.2 chose it when it was imported: the server's user may write
    there, and a child that runs a library may not."""
    import cupy

    compiler = cupy.cuda.compiler
    compiler._set_kernel_cache_backend(compiler._DiskKernelCacheBackend())
