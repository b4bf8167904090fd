"""Makes the folder in which all processes of a worker count its metrics."""

import fcntl
import os
import shutil
from pathlib import Path

from tilewatch import processes

FILES = "PROMETHEUS_MULTIPROC_DIR"
LOCK = "lock"
"""The name of a file that is locked while a process of the worker lives. The system unlocks it when all have ended."""

_held: list[int] = []
"""The open lock file of this worker's folder, which forked processes inherit."""


def count_in(folder: Path) -> None:
    """Makes an empty folder for this worker's metrics, and deletes the folders of ended workers."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / LOCK).open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # a folder that is being made is not locked yet
        for each in folder.parent.iterdir():
            if each.is_dir() and not _is_used(each):
                shutil.rmtree(each, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        _held.append(os.open(folder / LOCK, os.O_CREAT | os.O_WRONLY, 0o600))
        fcntl.flock(_held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.environ[FILES] = str(folder)


def folder() -> Path | None:
    """Returns the folder of this worker's metrics; None in other processes."""
    return Path(os.environ[FILES]) if FILES in os.environ else None


def _is_used(folder: Path) -> bool:
    with (folder / LOCK).open("w") as lock:
        return not processes.try_lock(lock)
