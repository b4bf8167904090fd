"""Forks child processes that have already imported cuTile, CuPy and Tilewatch. Importing takes 0.4 to 0.7 s of CPU
time, a fork 10 ms (2 cores, 2026-11-22). The server makes no CUDA call, because its forks could then not use CUDA."""

import contextlib
import functools
import gc
import importlib
import json
import os
import shutil
import socket
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tilewatch import processes
from tilewatch.kernels.children.interpreters import PACKAGES

FORK = "fork"
"""Role in the command line of the server itself."""

COMPILING = ("trace", "compile")
"""Roles of children that make or compile bytecode."""

MESSAGE_BYTES = 1 << 17
STREAMS = 3
"""Number of file descriptors that come with a request: the child's standard input, output and error."""


class Forked(NamedTuple):
    """The role of a forked child, and the paths that it may read and write."""

    role: str
    readable: list[str]
    writable: list[str]


def serve(control: socket.socket, import_role: Callable[[str], object]) -> Forked | None:
    """Forks a child for each request until the socket closes. Returns None in the server, a Forked in each child."""
    server = os.getpid()
    processes.adopt_orphans()
    forked: dict[int, str] = {}  # the folder of each child
    while True:
        message, files, _, _ = socket.recv_fds(control, MESSAGE_BYTES, STREAMS)
        if not message:  # the parent has ended, perhaps by SIGKILL
            processes.end_orphans(())
            for folder in forked.values():
                shutil.rmtree(folder, ignore_errors=True)
            return None
        request = json.loads(message)
        if "ended" in request:
            _, status = os.waitpid(request["ended"], 0)
            del forked[request["ended"]]
            processes.end_orphans(forked)
            control.sendall(json.dumps({"code": os.waitstatus_to_exitcode(status)}).encode())
            continue
        if PACKAGES not in os.environ:  # a commit named them, so only confined children import them
            _import_for(request, import_role)
        gc.freeze()  # collecting garbage in the child would copy memory that it shares with the server
        has_group, group_made = os.pipe()
        process_id = os.fork()
        if process_id == 0:
            os.setsid()
            processes.end_with_parent(request["death_signal"])
            if os.getppid() != server:  # the server ended first
                os._exit(1)
            Path("/proc/self/comm").write_text(f"tw-{request['role']}")  # for top; at most 15 characters
            _become(request["environment"], files)  # closes `group_made` too
            return Forked(request["role"], request["readable"], request["writable"])
        forked[process_id] = request["writable"][0]
        for file in (*files, group_made):
            os.close(file)
        # A child is ended by a signal to its group. Before the group exists, the signal would reach nobody and the
        # child stay.
        os.read(has_group, 1)
        os.close(has_group)
        handle = os.pidfd_open(process_id)
        socket.send_fds(control, [json.dumps({"process_id": process_id}).encode()], [handle])
        os.close(handle)


def _import_for(request: Mapping[str, Any], import_role: Callable[[str], object]) -> None:
    with contextlib.suppress(Exception):  # the child imports again, and its last words then say what failed
        import_role(request["role"])
        if request["torch"]:  # after CuPy, because the order decides which cuBLAS a process has
            importlib.import_module("torch")
        if request["role"] in COMPILING:
            _ask_bytecode_version()


@functools.cache
def _ask_bytecode_version() -> None:
    """Asks the compiler for its bytecode version, once for all children. Each would need 0.05 s of CPU time."""
    from cuda.tile import _compile

    ask = _compile._get_max_supported_bytecode_version
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="tilewatch-bytecode-") as folder:
        warnings.simplefilter("error")  # cuTile warns when its compiler fails, which may be temporary
        version, compiler = ask(folder), _compile._find_compiler_bin().path
    _compile._find_compiler_bin.cache_clear()  # a child searches again, by its own environment

    def answer(temp_dir: str, allow_dev: bool = False) -> Any:
        same = not allow_dev and _compile._find_compiler_bin().path == compiler
        return version if same else ask(temp_dir, allow_dev)

    _compile._get_max_supported_bytecode_version = answer


def _become(environment: dict[str, str], files: list[int]) -> None:
    """Turns the forked process into the child, with its own streams and environment."""
    for stream, file in enumerate(files):
        os.dup2(file, stream)
    os.closerange(STREAMS, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None


def read_settings() -> None:
    """Makes cuTile and CuPy use the child's environment variables. Call this after the process has changed its user."""
    # makes cache folders, and a user cannot write into another user's folder (H200, 2026-11-29)
    if "cuda.tile" in sys.modules:
        from cuda.tile import _context
        from cuda.tile._cext import default_tile_context

        settings: Any = default_tile_context.config
        vars(settings).update(vars(_context.init_context_config_from_env()))
    if "cupy" in sys.modules:
        compiler = sys.modules["cupy"].cuda.compiler
        compiler._set_kernel_cache_backend(compiler._DiskKernelCacheBackend())
