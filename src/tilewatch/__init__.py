"""The package `tilewatch`. Its subpackages are symbolic links, so that imports also work from a checkout."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewatch.kernels.watching.declare import case as case
    from tilewatch.kernels.watching.declare import watch as watch
    from tilewatch.kernels.watching.definitions import watch_definitions as watch_definitions


def find_release() -> str:
    """Returns the installed version of Tilewatch; "unknown" if it is not installed."""
    import importlib.metadata  # imported here, because child processes start often and do not need it

    try:
        return importlib.metadata.version("tilewatch")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def __getattr__(name: str) -> Any:
    """Imports `case`, `watch` or `watch_definitions` on first use."""
    if name in ("case", "watch"):
        from tilewatch.kernels.watching import declare

        return getattr(declare, name)
    if name == "watch_definitions":
        from tilewatch.kernels.watching.definitions import watch_definitions

        return watch_definitions
    raise AttributeError(f"module 'tilewatch' has no attribute '{name}'")
