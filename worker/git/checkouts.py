"""Checks out whole commits of a watched repository, read-only, and removes checkouts that were not used for long."""

import contextlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tilewatch.git_environment import make_environment
from tilewatch.text import short_sha
from tilewatch.worker.git.commits import RepositoryError, git, read_settings, resolve

MOST_FILES, MOST_BYTES = 200_000, 4 << 30
"""The most files and bytes of a commit. A few kilobytes in Git can be a huge file of zeros or many copied folders."""

KEPT_COMMITS = 100
KEPT_BYTES = 10 << 30
IN_USE_S = 6 * 3600.0
"""The seconds for which a job may use a checkout. The longest sweep of an H200 took 12 minutes (2026-11)."""

_SHA = re.compile("[0-9a-f]{40,64}")
_MAKING, _REMOVING = ".making-", ".removing-"
_WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True)
class KeptCommit:
    """A checkout, its last use in seconds since 1970, and its size."""

    folder: Path
    used_at: float
    size_bytes: int


def checkout_library(repository: Path, sha: str, usual: str, cache: Path) -> Path:
    """Checks out a commit and returns the library's folder. Raises RepositoryError if this folder is missing."""
    checkout_commit(repository, sha, cache)  # first, because its error for a missing commit says what to do
    settings = read_settings(repository, sha)
    return checkout(repository, sha, settings.watch if settings and settings.watch else usual, cache)


def checkout(repository: Path, sha: str, library: str, cache: Path) -> Path:
    """Checks out a commit and returns the folder `library`. Raises RepositoryError if missing or outside the commit."""
    # The name may come from a job that a dashboard's user changed.
    if Path(library).is_absolute() or ".." in Path(library).parts:
        raise RepositoryError(f"{library!r} is not a folder of a commit")
    top = checkout_commit(repository, sha, cache)
    folder = top / library
    if not folder.resolve().is_relative_to(top.resolve()):
        raise RepositoryError(f"the folder {library!r} of commit {short_sha(sha)} is a link out of the commit")
    if not folder.is_dir():
        raise RepositoryError(
            f"commit {short_sha(sha)} of {repository} has no folder {library!r}; `watch` of [tool.tilewatch] in its "
            "pyproject.toml names the folder of watch files"
        )
    return folder


def checkout_commit(repository: Path, sha: str, cache: Path) -> Path:
    """Returns a folder with all files of a commit, without submodules. Raises RepositoryError if that fails."""
    target = cache / sha
    if _mark_used(target):
        return target
    try:
        resolve(repository, sha)
    except RepositoryError as error:
        raise RepositoryError(
            f"{error}; it is the TILEWATCH_REPOSITORY of this worker: fetch it, or let Tilewatch clone the repository "
            "of the job by itself with `tilewatch watch add`"
        ) from None
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, FileNotFoundError, NotADirectoryError, PermissionError) as error:
        why = f"the folder {cache} cannot be made: {error.strerror}"
        raise RepositoryError(f"{why}; TILEWATCH_HOME names the data folder") from None
    with tempfile.TemporaryDirectory(dir=cache, prefix=_MAKING) as scratch:
        files = Path(scratch) / "files"
        files.mkdir()
        own = {"GIT_INDEX_FILE": str(Path(scratch) / "index"), "GIT_WORK_TREE": str(files)}
        _require_size(repository, sha)
        git(repository, "read-tree", sha, **own)  # `git archive` omits files that .gitattributes marks export-ignore
        git(repository, "checkout-index", "--all", **own)
        _protect_contents(files)
        os.utime(files)  # marks it as used now; it had the time of its last file
        try:
            files.rename(target)  # so that other workers never see an incomplete folder
        except OSError:
            if not target.is_dir():  # otherwise another worker was first, with the same content
                raise
        else:
            target.chmod(target.stat().st_mode & ~_WRITABLE)  # after the rename, which a read-only folder refuses
    remove_unused(cache, time.time())
    return target


def _require_size(repository: Path, sha: str) -> None:
    """Raises RepositoryError if a commit has over MOST_FILES files or MOST_BYTES bytes."""
    count = size_bytes = 0
    command, variables = ("git", "ls-tree", "-r", "--long", "--full-tree", sha), make_environment(repository)
    with subprocess.Popen(
        command, cwd=repository, env=variables, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as listing:
        for line in listing.stdout or ():
            size = line.split(None, 4)[3]
            count, size_bytes = count + 1, size_bytes + int(size if size.isdigit() else 0)  # "-" for a submodule
            if count > MOST_FILES or size_bytes > MOST_BYTES:
                listing.kill()
                most = f"{MOST_FILES:,} files or {MOST_BYTES / 2**30:g} GiB"
                raise RepositoryError(f"commit {short_sha(sha)} of {repository} has more than {most}")


def remove_unused(cache: Path, now: float) -> None:
    """Removes checkouts that were not used for long, and incomplete checkouts of killed processes."""
    for left in (*cache.glob(f"{_REMOVING}*"), *cache.glob(f"{_MAKING}*")):
        with contextlib.suppress(FileNotFoundError):
            if left.name.startswith(_REMOVING) or now - left.stat().st_mtime > IN_USE_S:
                delete(left)
    kept = []
    for folder in cache.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if _SHA.fullmatch(folder.name):
                kept.append(KeptCommit(folder, folder.stat().st_mtime, _size_bytes(folder)))
    used_at = {each.folder: each.used_at for each in kept}
    for folder in choose_unused(kept, now):
        going = cache / f"{_REMOVING}{folder.name}"
        try:
            if folder.stat().st_mtime != used_at[folder]:  # used while the sizes were added up, which takes seconds
                continue
            folder.chmod(0o700)
            folder.rename(going)
        except OSError:  # another process is removing it
            continue
        delete(going)


def delete(folder: Path) -> None:
    """Deletes a checkout, although its folders are read-only."""
    for parent, _, _ in os.walk(folder):
        with contextlib.suppress(FileNotFoundError):
            Path(parent).chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def choose_unused(kept: list[KeptCommit], now: float) -> list[Path]:
    """Returns the unused checkouts beyond KEPT_COMMITS or KEPT_BYTES, the longest unused first."""
    count, total_bytes = len(kept), sum(each.size_bytes for each in kept)
    chosen: list[Path] = []
    for each in sorted(kept, key=lambda each: each.used_at):
        if (count <= KEPT_COMMITS and total_bytes <= KEPT_BYTES) or now - each.used_at < IN_USE_S:
            break  # in use: a job may be reading it
        chosen.append(each.folder)
        count, total_bytes = count - 1, total_bytes - each.size_bytes
    return chosen


def _mark_used(folder: Path) -> bool:
    """Marks a checkout as used now. Returns whether the checkout exists."""
    try:
        os.utime(folder)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _protect_contents(folder: Path) -> None:
    """Makes all files and folders of a checkout read-only, so that a commit's code does not change them."""
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(parent, name)
            if not path.is_symlink():
                path.chmod(path.stat().st_mode & ~_WRITABLE)


def _size_bytes(folder: Path) -> int:
    """Returns the size of a folder's files."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += Path(parent, name).lstat().st_size
    return total
