"""Where the processes of a worker count together. Knows nothing of what is counted (metrics.py).

The pool's processes count beside each other, so the numbers lie in files of one folder, which the parent adds up for a
scrape: prometheus-client's multiprocess mode. The library looks for the folder when it is first imported, so this
module imports none of it.
"""

import os
import shutil
from pathlib import Path

FILES = "PROMETHEUS_MULTIPROC_DIR"


def count_in(folder: Path) -> None:
    """Begin anew in this folder, in this process and in those that will be forked from it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.environ[FILES] = str(folder)


def folder() -> Path | None:
    """Where this worker counts; None in a process that is no worker, which counts in its memory."""
    return Path(os.environ[FILES]) if FILES in os.environ else None
