"""Gives children that run a library on a GPU a home for what CuPy and Triton compile: the next child of the same
library loads it from there.

A home belongs to the checkouts that one process runs, so that what one commit writes is never loaded by another. A
parent holds a lock on a home for as long as its child runs; the lock is beside the home, where the child cannot write.
"""

import contextlib
import fcntl
import hashlib
import itertools
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tilewatch.kernels.children import sandbox

KEPT_HOMES = 16
HOME_BYTES, HOME_FILES = 1 << 30, 100_000
"""What a home may hold. A child that writes more is ended, and the home is made anew for the next one."""

CUPY_CACHE = Path(".cupy", "kernel_cache")
"""Where CuPy keeps what it compiled, below a home. The user's own is written by processes that run no library; without
a copy of it the first child of each commit would compile the same kernels again, for 7 s (H200, 2026-11-22)."""

MOST_SEEDS = 2_000


@dataclass(frozen=True)
class LibraryHome:
    folder: Path
    lock: IO[bytes]

    def close(self) -> None:
        """Allows others to remove it."""
        self.lock.close()


def open_home(libraries: Iterable[str | Path]) -> LibraryHome | None:
    """Returns the home of the checkouts of these libraries, and removes homes that were not used for long. None where
    none can be had: where this user may not write, and where somebody else holds its lock."""
    cache = Path(os.path.expanduser("~"), ".cache", "tilewatch", "library-homes")
    roots = sorted({str(sandbox.find_root(Path(each))) for each in libraries})
    folder = cache / hashlib.sha256("\0".join(roots).encode()).hexdigest()[:32]
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        home = _lock(folder)
        if home is not None:
            _remove_unused(cache, folder)
    except OSError:
        return None
    return home


def is_filled(folder: str | Path, most_bytes: int, most_files: int) -> bool:
    """Stops counting at the limit: a folder of millions of files takes long to read."""
    size_bytes = 0
    files = (os.path.join(place, name) for place, folders, names in os.walk(folder) for name in folders + names)
    for count, file in enumerate(files, start=1):
        with contextlib.suppress(OSError):  # it is gone by now
            size_bytes += os.lstat(file).st_blocks * 512
        if count > most_files or size_bytes > most_bytes:
            return True
    return False


def _lock(folder: Path) -> LibraryHome | None:
    lock = _lock_file(folder).open("ab")
    if _try_lock(lock, fcntl.LOCK_EX):  # nobody uses it
        if is_filled(folder, HOME_BYTES, HOME_FILES):
            shutil.rmtree(folder)
        if not folder.is_dir():
            _make(folder)
    if not _try_lock(lock, fcntl.LOCK_SH) or not _is_same(lock, _lock_file(folder)) or not folder.is_dir():
        lock.close()
        return None
    os.utime(lock.fileno())
    return LibraryHome(folder, lock)


def _make(folder: Path) -> None:
    (folder / CUPY_CACHE).mkdir(mode=0o700, parents=True)
    compiled = Path(os.path.expanduser("~"), CUPY_CACHE).glob("*.cubin")
    for file in itertools.islice(compiled, MOST_SEEDS):
        with contextlib.suppress(OSError):  # another process removes it
            shutil.copyfile(file, folder / CUPY_CACHE / file.name)


def _remove_unused(cache: Path, used: Path) -> None:
    """Keeps the homes that were used last, and those in use."""
    homes = []
    for path in cache.glob("*.lock"):
        with contextlib.suppress(FileNotFoundError):  # another process removes it
            homes.append((path.stat().st_mtime, path))
    for _, path in sorted(homes, reverse=True)[KEPT_HOMES:]:
        with path.open("ab") as lock:
            if path != _lock_file(used) and _try_lock(lock, fcntl.LOCK_EX):
                shutil.rmtree(path.with_suffix(""), ignore_errors=True)
                path.unlink(missing_ok=True)


def _lock_file(folder: Path) -> Path:
    return folder.with_suffix(".lock")


def _try_lock(lock: IO[bytes], kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_same(lock: IO[bytes], path: Path) -> bool:
    """Says whether a lock that was waited for is still the home's: another process may have removed both."""
    try:
        return os.path.samestat(os.fstat(lock.fileno()), path.stat())
    except FileNotFoundError:
        return False
