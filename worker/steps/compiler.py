"""Keeps one compiler for the life of a worker process and closes it."""

from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.worker.context import Context

_compiler: Compiler | None = None


def close() -> None:
    """End this process's compiler, if it has one."""
    global _compiler
    if _compiler is not None:
        _compiler.close()
        _compiler = None


def open_compiler(context: Context) -> Compiler:
    """One per process: its child keeps the tile compiler loaded, and is started again by itself when it dies."""
    global _compiler
    if _compiler is None:
        _compiler = Compiler(context.store_url, limit_s=context.compile_limit_s)
    return _compiler
