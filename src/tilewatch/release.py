"""Names the release of this code."""

import importlib.metadata


def find_release() -> str:
    """Returns the installed version of Tilewatch; "unknown" where its folders are on the path and it is not
    installed."""
    try:
        return importlib.metadata.version("tilewatch")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
