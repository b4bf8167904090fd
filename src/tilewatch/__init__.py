"""Tilewatch as one installed package. Its four parts are the folders of the same names at the top of the repository.

They are links here, so that `import tilewatch.kernels` works from a checkout, an editable install and a wheel alike,
and a repository under watch may have a folder `kernels` of its own.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewatch.kernels.watching.declare import case as case
    from tilewatch.kernels.watching.declare import watch as watch
    from tilewatch.kernels.watching.definitions import watch_definitions as watch_definitions


def find_release() -> str:
    """Returns the installed version of Tilewatch; "unknown" where its folders are on the path and it is not
    installed."""
    import importlib.metadata  # not for children, which start often

    try:
        return importlib.metadata.version("tilewatch")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def __getattr__(name: str) -> Any:
    """Imports what watch files use when it is asked for: everything else needs none of it."""
    if name in ("case", "watch"):
        from tilewatch.kernels.watching import declare

        return getattr(declare, name)
    if name == "watch_definitions":
        from tilewatch.kernels.watching.definitions import watch_definitions

        return watch_definitions
    raise AttributeError(f"module 'tilewatch' has no attribute '{name}'")
