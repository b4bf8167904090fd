"""Holds the kernels that this repository watches. Tilewatch loads each kernel file by its path."""

import os
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def watched_folder() -> Path:
    """Returns the folder with the kernels to watch, from TILEWATCH_REPOSITORY and TILEWATCH_LIBRARY.
    The default is this module's folder."""
    repository, library = os.environ.get("TILEWATCH_REPOSITORY"), os.environ.get("TILEWATCH_LIBRARY")
    if not repository and not library:
        return FOLDER
    return Path(repository or FOLDER.parents[1]) / (library or "kernels/library")
