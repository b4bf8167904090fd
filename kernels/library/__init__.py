"""Holds the kernels that this repository watches. Tilewatch loads their files by path, like those of any repository."""

import os
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def watched_folder() -> Path:
    """Returns the folder of kernels that TILEWATCH_REPOSITORY and TILEWATCH_LIBRARY name.
    Without these environment variables, returns the folder of this module."""
    repository, library = os.environ.get("TILEWATCH_REPOSITORY"), os.environ.get("TILEWATCH_LIBRARY")
    if not repository and not library:
        return FOLDER
    return Path(repository or FOLDER.parents[1]) / (library or "kernels/library")
