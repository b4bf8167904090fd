"""Gives child processes a cache folder for compiled code, which different commits never share."""

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

from tilewatch import processes
from tilewatch.kernels.children import sandbox

KEPT_HOMES = 16
HOME_BYTES, HOME_FILES = 1 << 30, 100_000
"""Most bytes and files of a cache folder. A child that writes more is ended, and the next child gets a new folder."""

CUPY_CACHE = Path(".cupy", "kernel_cache")
"""Folder of CuPy's compiled kernels inside a cache folder. It starts as a copy of the user's own CuPy cache, to which
no library can write. Without that copy each commit's first child would compile for 7 s (H200, 2026-11-22)."""

MOST_SEEDS = 2_000


@dataclass(frozen=True)
class LibraryHome:
    folder: Path
    lock: IO[bytes]

    def is_alone(self) -> bool:
        """Returns whether no other child uses this folder. If True, the folder is locked until `close`."""
        return processes.try_lock(self.lock, fcntl.LOCK_EX)

    def close(self) -> None:
        """Releases the lock, so that other processes may delete the folder."""
        self.lock.close()


def open_home(libraries: Iterable[str | Path], *, has_user: bool = False) -> LibraryHome | None:
    """Returns the locked cache folder of these libraries, or None if the folder cannot be used."""
    cache = Path(os.path.expanduser("~"), ".cache", "tilewatch", "library-homes")
    roots = sorted({str(sandbox.find_root(Path(each))) for each in libraries})
    folder = cache / hashlib.sha256("\0".join([*roots, *["own user"] * has_user]).encode()).hexdigest()
    owner = sandbox.name_user(folder) if has_user else os.geteuid()
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        home = _lock(folder, owner)
        if home is not None:
            _remove_unused(cache)
    except OSError:
        return None
    return home


def is_filled(folder: str | Path, most_bytes: int, most_files: int) -> bool:
    """Returns whether a folder exceeds a limit."""
    size_bytes = 0
    files = (os.path.join(place, name) for place, folders, names in os.walk(folder) for name in folders + names)
    for count, file in enumerate(files, start=1):
        with contextlib.suppress(OSError):  # removed meanwhile
            size_bytes += os.lstat(file).st_blocks * 512
        if count > most_files or size_bytes > most_bytes:
            return True
    return False


def _lock(folder: Path, owner: int) -> LibraryHome | None:
    lock = _find_lock_file(folder).open("ab")
    if processes.try_lock(lock, fcntl.LOCK_EX):  # no process uses it
        if folder.is_dir() and (os.stat(folder).st_uid != owner or is_filled(folder, HOME_BYTES, HOME_FILES)):
            shutil.rmtree(folder)
        if not folder.is_dir():
            _make(folder, owner)
    if (
        not processes.try_lock(lock, fcntl.LOCK_SH)
        or not _is_same(lock, _find_lock_file(folder))
        or not folder.is_dir()
    ):
        lock.close()
        return None
    os.utime(lock.fileno())
    return LibraryHome(folder, lock)


def _make(folder: Path, owner: int) -> None:
    (folder / CUPY_CACHE).mkdir(mode=0o700, parents=True)
    compiled = Path(os.path.expanduser("~"), CUPY_CACHE).glob("*.cubin")
    for file in itertools.islice(compiled, MOST_SEEDS):
        with contextlib.suppress(OSError):  # another process removed it
            shutil.copyfile(file, folder / CUPY_CACHE / file.name)
    if owner != os.geteuid():  # the folder last: what has another owner is made anew
        for each in (*folder.rglob("*"), folder):
            os.chown(each, owner, owner)


def _remove_unused(cache: Path) -> None:
    """Deletes old cache folders that no process uses."""
    homes = []
    for path in cache.glob("*.lock"):
        with contextlib.suppress(FileNotFoundError):  # another process removed it
            homes.append((path.stat().st_mtime, path))
    for _, path in sorted(homes, reverse=True)[KEPT_HOMES:]:
        with path.open("ab") as lock:
            if processes.try_lock(lock, fcntl.LOCK_EX):
                shutil.rmtree(path.with_suffix(""), ignore_errors=True)
                path.unlink(missing_ok=True)


def _find_lock_file(folder: Path) -> Path:
    return folder.with_suffix(".lock")


def _is_same(lock: IO[bytes], path: Path) -> bool:
    """Returns whether an open lock file is still the file at `path`. Another process may have deleted it."""
    try:
        return os.path.samestat(os.fstat(lock.fileno()), path.stat())
    except FileNotFoundError:
        return False
