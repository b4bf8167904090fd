"""The main program of child processes. Each request and each answer is one line of JSON."""

import contextlib
import importlib
import json
import os
import resource
import signal
import site
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewatch import processes
from tilewatch.errors import ExpectedError
from tilewatch.kernels.children import fork_server, gpu_user, interpreters, sandbox
from tilewatch.kernels.children.child_answers import make_line
from tilewatch.kernels.children.child_process import IMPORT_FIRST, WITHOUT_GPU

Handler = Callable[[Mapping[str, Any]], Mapping[str, Any]]

FILE_BYTES = 256 << 20
"""Most bytes of each file that a child may write: cubins of some kilobytes, and one log of all that libraries print."""


def main(role: str, readable: Sequence[str], writable: Sequence[str]) -> None:
    if role != "install":  # a wheel of PyTorch has larger ones
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    processes.adopt_orphans()
    if role == "compile":
        processes.give_way()
    if role in WITHOUT_GPU:
        sandbox.confine_without_gpu(readable=readable, writable=writable, ends_others=role == "compile")
    elif role == "install":
        sandbox.confine_to_install(readable=readable, writable=writable)
    elif role in ("library", gpu_user.OWNER):
        sandbox.confine_with_gpu(readable=readable, writable=writable)
    elif role in ("gpu", gpu_user.MEASURER):
        sandbox.confine_with_gpu(writable=None)
    fork_server.read_settings()
    if packages := os.environ.get(interpreters.PACKAGES):  # lines of .pth files in it run
        site.addsitedir(packages)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    signal.signal(signal.SIGTERM, _end_with_group)
    handler = import_role(role)
    for line in sys.stdin:
        try:
            answer = handler(json.loads(line))
        except ExpectedError as error:  # a sentence for a person, which the parent repeats without a traceback
            sys.exit(str(error))
        answers.write(make_line(answer))
        answers.flush()


def _end_with_group(*_: object) -> None:
    """Kills all processes that this process started, and itself."""
    os.killpg(0, signal.SIGKILL)


def import_role(role: str) -> Handler:
    """Returns the function that answers requests of a role, such as "compile"."""
    if first := os.environ.get(IMPORT_FIRST):
        with contextlib.suppress(Exception):  # the baseline that needs this package says why it is missing
            importlib.import_module(first)
    # Imported by role: the catalog must answer without a compiler or a GPU stack, the compiler without CuPy.
    if role in WITHOUT_GPU:  # also the compiler: cuTile looks for PyTorch once, and others are forked later
        from tilewatch.kernels.watching import no_gpu

        no_gpu.install()
    if role in ("catalog", "validate", "propose", "trace", "library"):
        from tilewatch.kernels.watching import tracer

        tracer.replace_launch_and_search()
    if role == "catalog":
        from tilewatch.kernels.catalog.catalog_child import answer
    elif role == "validate":
        from tilewatch.kernels.validating.findings import answer
    elif role == "propose":
        from tilewatch.kernels.proposing.recorded_calls import answer
    elif role == "trace":
        from tilewatch.kernels.compiling.trace_child import answer
    elif role == "compile":
        from tilewatch.kernels.compiling.compile_child import answer
    elif role == "install":
        from tilewatch.kernels.children.environments import answer
    elif role == "gpu":
        from tilewatch.kernels.gpu.gpu_child import answer
    elif role == "library":
        from tilewatch.kernels.gpu.library_child import answer
    elif role in (gpu_user.OWNER, gpu_user.MEASURER):
        from tilewatch.kernels.gpu.user_trial import answer
    elif role == "watch":
        from tilewatch.kernels.gpu.health.xid_watch import answer
    elif role == "canary":
        from tilewatch.kernels.gpu.health.canary import answer
    else:
        raise SystemExit(f"no such role: {role}")
    if lent := os.environ.get(interpreters.LENT):
        from tilewatch.kernels.toolchains import versions

        versions.use_lent_compiler(lent)
    return answer


def _fork(descriptor: int) -> None:
    forked = fork_server.serve(socket.socket(fileno=descriptor), import_role)
    if forked is not None:  # this process is the child
        main(*forked)


if __name__ == "__main__":
    if sys.argv[1] == fork_server.FORK:
        _fork(int(sys.argv[2]))
    else:
        main(sys.argv[1], *json.loads(sys.argv[2]))
