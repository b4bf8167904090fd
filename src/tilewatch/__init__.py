"""The package `tilewatch`. Its folders are links to folders of the same names at the top of the repository.

So `import tilewatch.kernels` works from a checkout, an editable install and a wheel, and a watched repository may have
its own folder `kernels`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewatch.kernels.watching.declare import case as case
    from tilewatch.kernels.watching.declare import watch as watch
    from tilewatch.kernels.watching.definitions import watch_definitions as watch_definitions


def find_release() -> str:
    """Returns the installed version of Tilewatch; "unknown" if it can be imported but is not installed."""
    import importlib.metadata  # imported here, because child processes start often and do not need it

    try:
        return importlib.metadata.version("tilewatch")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def __getattr__(name: str) -> Any:
    """Returns `case`, `watch` or `watch_definitions`. Imports it at its first use, because only watch files need it."""
    if name in ("case", "watch"):
        from tilewatch.kernels.watching import declare

        return getattr(declare, name)
    if name == "watch_definitions":
        from tilewatch.kernels.watching.definitions import watch_definitions

        return watch_definitions
    raise AttributeError(f"module 'tilewatch' has no attribute '{name}'")
