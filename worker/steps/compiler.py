"""Keeps a worker's compilers open, one per thread and toolchain, because loading a compiler takes long."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.results import Compiled, is_final
from tilewatch.kernels.toolchains.toolchain import INSTALLED, Toolchain, UnknownToolchain, find_toolchain
from tilewatch.worker.context import Context
from tilewatch.worker.queue.outage import NotNow

# Per thread, because a compiler's child process is killed when the thread that started it ends.
_compilers: dict[tuple[int, str], tuple[Toolchain, Compiler]] = {}
"""The open compilers and their toolchains, by the thread's id and the toolchain's name."""

TRIES = 3
"""The number of times that a config is compiled if only the machine fails. A night without its winner looks slower."""

_threads: list[ThreadPoolExecutor] = []
"""The only thread pool of this process; an empty list until its first use."""

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


def close() -> None:
    """Closes this process's compilers, even if they are compiling."""
    while _threads:
        _threads.pop().shutdown(wait=False, cancel_futures=True)
    while _compilers:
        _, (_, compiler) = _compilers.popitem()
        compiler.close()


def open_compiler(context: Context, name: str | None = None) -> Compiler:
    """Returns this thread's compiler for a toolchain. Raises NotNow if this machine lacks the toolchain."""
    toolchain = require_toolchain(context, name or INSTALLED)
    place = (threading.get_ident(), toolchain.name)
    kept, compiler = _compilers.get(place, (None, None))
    if compiler is None or kept != toolchain:
        if compiler is not None:
            compiler.close()
        compiler = Compiler(context.store_url, limit_s=context.compile_limit_s, toolchain=toolchain)
        _compilers[place] = (toolchain, compiler)
    return compiler


def compile_finally(context: Context, toolchain: str | None, compile_one: Callable[[Compiler], Compiled]) -> Compiled:
    """Runs a compilation, repeats it after failures of the machine, and returns the last result."""
    for tries_left in reversed(range(TRIES)):
        compiled = compile_one(open_compiler(context, toolchain))
        if is_final(vars(compiled), context.compile_limit_s) or not tries_left:
            break
    return compiled


def compile_each(
    compile_one: Callable[[Item], Outcome], items: Sequence[Item], threads: int
) -> Iterator[tuple[Item, Outcome]]:
    """Yields (item, result) as soon as each result is ready. With one thread, runs in the calling thread."""
    if threads == 1:
        yield from ((item, compile_one(item)) for item in items)
        return
    if not _threads:
        _threads.append(ThreadPoolExecutor(threads, thread_name_prefix="compile"))
    asked = {_threads[0].submit(compile_one, item): item for item in items}
    try:
        for each in as_completed(asked):
            yield asked[each], each.result()
    finally:
        for each in asked:
            each.cancel()


def require_toolchain(context: Context, name: str) -> Toolchain:
    """Returns a toolchain of this machine. Raises NotNow if it is not installed."""
    try:
        return find_toolchain(context.toolchains, name)
    except UnknownToolchain as error:
        raise NotNow(f"on {context.node} {error}; `tilewatch toolchain add` there brings it") from None
