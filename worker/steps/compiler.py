"""Keeps the compilers of a worker process, for each toolchain that its jobs named, and closes them.

Each thread that compiles has compilers of its own: a child is killed when the thread that started it ends.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.toolchains.toolchain import INSTALLED, Toolchain, UnknownToolchain, find_toolchain
from tilewatch.worker.context import Context
from tilewatch.worker.queue.outage import NotNow

_compilers: dict[tuple[int, str], tuple[Toolchain, Compiler]] = {}
"""Compilers by thread and toolchain."""

_threads: list[ThreadPoolExecutor] = []
"""The one pool of this process, from its first use on."""

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


def close() -> None:
    """Ends this process's compilers, also in the middle of a compile."""
    while _threads:
        _threads.pop().shutdown(wait=False, cancel_futures=True)
    while _compilers:
        _, (_, compiler) = _compilers.popitem()
        compiler.close()


def open_compiler(context: Context, name: str | None = None) -> Compiler:
    """Returns the compiler of a toolchain of this machine; None for the name is the installed one.

    There is one per thread and toolchain: its child keeps the tile compiler loaded, and is started again by itself
    when it dies. A toolchain that was installed again meanwhile gets a new one.

    Raises NotNow without the toolchain: another worker may have it, and this one has it as soon as it is installed.
    """
    toolchain = require_toolchain(context, name or INSTALLED)
    place = (threading.get_ident(), toolchain.name)
    kept, compiler = _compilers.get(place, (None, None))
    if compiler is None or kept != toolchain:
        if compiler is not None:
            compiler.close()
        compiler = Compiler(context.store_url, limit_s=context.compile_limit_s, toolchain=toolchain)
        _compilers[place] = (toolchain, compiler)
    return compiler


def compile_each(
    compile_one: Callable[[Item], Outcome], items: Sequence[Item], threads: int
) -> Iterator[tuple[Item, Outcome]]:
    """Yields each item with what `compile_one` returned for it, as they end. One thread is the caller's own."""
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
    """Returns a toolchain of this machine. Raises NotNow without it."""
    try:
        return find_toolchain(context.toolchains, name)
    except UnknownToolchain as error:
        raise NotNow(f"on {context.node} {error}; `tilewatch toolchain add` there brings it") from None
