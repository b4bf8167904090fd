"""Chooses the folder in which the processes of a worker count together (metrics.py names what is counted).

Each process of the pool counts in a file of its own, and the parent adds the files up for a scrape: prometheus-client's
multiprocess mode. That library reads the folder's name when it is first imported, so this module does not import it.
"""

import os
import shutil
from pathlib import Path

FILES = "PROMETHEUS_MULTIPROC_DIR"


def count_in(folder: Path) -> None:
    """Empties this folder and counts in it, in this process and in those that will be forked from it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.environ[FILES] = str(folder)


def folder() -> Path | None:
    """The folder of this worker; None in a process that is no worker, which counts in its memory."""
    return Path(os.environ[FILES]) if FILES in os.environ else None
