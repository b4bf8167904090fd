"""The watched Git repository: what a revision is, and its library folder as files on disk.

Git is asked through its command line, in formats made for programs. Nothing here knows of sweeps or databases, and
nothing here writes into the repository: it may be read-only or have other work in progress in its working tree.
"""

import datetime as dt
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit


class RepositoryError(RuntimeError):
    """The repository does not have what was asked for; the message is a sentence for a person."""


@dataclass(frozen=True)
class Commit:
    """`position` counts commits along first parents; `repository` names the repository the same way on every machine
    that cloned it from the same place."""

    repository: str
    sha: str
    position: int
    committed_at: dt.datetime
    subject: str


def resolve(repository: Path, revision: str) -> Commit:
    _require_history(repository)
    try:
        sha = _git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}").strip()
    except subprocess.CalledProcessError:
        raise RepositoryError(f"{repository} has no commit {revision!r}; is it fetched?") from None
    committed_at, subject = _git(repository, "log", "-1", "--format=%cI%x00%s", sha).rstrip("\n").split("\0")
    return Commit(
        repository=_identity(repository),
        sha=sha,
        position=int(_git(repository, "rev-list", "--count", "--first-parent", sha)),
        committed_at=dt.datetime.fromisoformat(committed_at),
        subject=subject,
    )


def checkout(repository: Path, sha: str, library: str, cache: Path) -> Path:
    """The folder `library` as it was at `sha`, made once under `cache` and then reused.

    It appears by one rename, so workers that make it at the same time cannot see half of it. Plumbing commands with an
    index of their own are used instead of `git archive`, which drops files that .gitattributes marks export-ignore.
    """
    target = cache / sha / library
    if target.is_dir():
        return target
    _require_history(repository)
    try:
        tree = _git(repository, "rev-parse", "--verify", "--quiet", f"{sha}:{library.rstrip('/')}").strip()
        _git(repository, "rev-parse", "--verify", "--quiet", f"{tree}^{{tree}}")
    except subprocess.CalledProcessError:
        resolve(repository, sha)  # says so when it is the commit that is missing
        raise RepositoryError(f"commit {sha[:12]} of {repository} has no folder {library!r}") from None
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".making-") as scratch:
        files = Path(scratch) / "files"
        files.mkdir()
        own = {"GIT_INDEX_FILE": str(Path(scratch) / "index"), "GIT_WORK_TREE": str(files)}
        _git(repository, "read-tree", tree, **own)
        _git(repository, "checkout-index", "--all", **own)
        try:
            files.rename(target)
        except OSError:
            if not target.is_dir():  # otherwise another worker was first, with the same content
                raise
    return target


def _require_history(repository: Path) -> None:
    if not repository.is_dir():
        raise RepositoryError(f"{repository} is not a folder; TILEWATCH_REPOSITORY names the Git repository to watch")
    try:
        _git(repository, "rev-parse", "--verify", "--quiet", "HEAD")
    except FileNotFoundError:
        raise RepositoryError("git is not installed, and commits are what Tilewatch tests") from None
    except subprocess.CalledProcessError as error:
        why = error.stderr.strip().splitlines()
        if why and "dubious ownership" in why[0]:
            raise RepositoryError(f"git refuses {repository}: {why[0].removeprefix('fatal: ')}") from None
        raise RepositoryError(f"{repository} is not the top folder of a Git repository with commits") from None


def _identity(repository: Path) -> str:
    """Where it was cloned from, without credentials; the folder's name when it was cloned from nowhere."""
    try:
        url = _git(repository, "config", "--get", "remote.origin.url").strip()
    except subprocess.CalledProcessError:
        return repository.resolve().name
    parts = urlsplit(url)
    if not parts.scheme or not parts.netloc:
        return url  # git@host:path, or a folder
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _git(repository: Path, *arguments: str, **extra: str) -> str:
    """Run git on exactly this folder: not on a repository around it, nor on the one whose hook started us."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    ceiling = str(repository.resolve().parent)
    return subprocess.run(
        ["git", *arguments],
        cwd=repository,
        env={**clean, "GIT_CEILING_DIRECTORIES": ceiling, "LC_ALL": "C", **extra},
        check=True,
        capture_output=True,
        text=True,
        errors="replace",
    ).stdout
