"""Keeps the compilers of a worker process, one for each toolchain that its jobs named, and closes them."""

from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.toolchains.toolchain import INSTALLED, Toolchain, UnknownToolchain, find_toolchain
from tilewatch.worker.context import Context
from tilewatch.worker.queue.outage import NotNow

_compilers: dict[str, tuple[Toolchain, Compiler]] = {}


def close() -> None:
    """End this process's compilers."""
    while _compilers:
        _, (_, compiler) = _compilers.popitem()
        compiler.close()


def open_compiler(context: Context, name: str | None = None) -> Compiler:
    """Returns the compiler of a toolchain of this machine; None for the name is the installed one.

    There is one per process and toolchain: its child keeps the tile compiler loaded, and is started again by itself
    when it dies. A toolchain that was installed again meanwhile gets a new one.

    Raises NotNow without the toolchain: another worker may have it, and this one has it as soon as it is installed.
    """
    toolchain = require_toolchain(context, name or INSTALLED)
    kept, compiler = _compilers.get(toolchain.name, (None, None))
    if compiler is None or kept != toolchain:
        if compiler is not None:
            compiler.close()
        compiler = Compiler(context.store_url, limit_s=context.compile_limit_s, toolchain=toolchain)
        _compilers[toolchain.name] = (toolchain, compiler)
    return compiler


def require_toolchain(context: Context, name: str) -> Toolchain:
    """Returns a toolchain of this machine. Raises NotNow without it."""
    try:
        return find_toolchain(context.toolchains, name)
    except UnknownToolchain as error:
        raise NotNow(f"on {context.node} {error}; `tilewatch toolchain add` there brings it") from None
