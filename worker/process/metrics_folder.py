"""Chooses the folder in which the processes of a worker count together (metrics.py names what is counted).

Each process of the pool counts in a file of its own, and the parent adds the files up for a scrape: prometheus-client's
multiprocess mode. That library reads the folder's name when it is first imported, so this module does not import it.
"""

import fcntl
import os
import shutil
from pathlib import Path

FILES = "PROMETHEUS_MULTIPROC_DIR"
LOCK = "lock"
"""A file that is locked as long as a process of the worker lives: the system lets go of it, however they end."""

_held: list[int] = []
"""The open lock of this worker's folder. Its processes inherit it."""


def count_in(folder: Path) -> None:
    """Empties this folder and counts in it, in this process and in those that will be forked from it.

    Deletes the folders beside it whose workers are gone: a worker in a container has another name each time.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / LOCK).open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # a folder that is made now has no lock yet
        for each in folder.parent.iterdir():
            if each.is_dir() and not _is_used(each):
                shutil.rmtree(each, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        _held.append(os.open(folder / LOCK, os.O_CREAT | os.O_WRONLY, 0o600))
        fcntl.flock(_held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.environ[FILES] = str(folder)


def folder() -> Path | None:
    """Returns the folder of this worker's metrics; None in a process that is not a worker, which counts in
    its memory."""
    return Path(os.environ[FILES]) if FILES in os.environ else None


def _is_used(folder: Path) -> bool:
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
