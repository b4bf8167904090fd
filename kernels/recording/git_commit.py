"""Reads a commit of a library folder's repository from Git, without a network."""

import datetime as dt
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from tilewatch.errors import ExpectedError
from tilewatch.git_environment import make_environment
from tilewatch.text import without_controls

LOG = ("log", "-1", "--no-show-signature", "--no-color", "--encoding=UTF-8")
"""Options of `git log` that override a person's settings, with which it might print gpg's output or Latin-1."""


class NoHistory(ExpectedError):
    """Raised if a folder has no usable Git history."""


@dataclass(frozen=True)
class GitCommit:
    """A Git commit. `position` is the number of commits in its first-parent history, including itself."""

    repository: str
    sha: str
    position: int
    committed_at: str  # ISO 8601 in UTC; decides nothing, because a committer may write any date
    subject: str
    author: str


def commit_of(folder: Path, revision: str = "HEAD") -> GitCommit:
    """Returns a commit of the folder's repository. Raises NoHistory if there is no such commit or no repository."""
    if not folder.is_dir():
        raise NoHistory(f"there is no folder {folder}")
    try:
        repository = repository_name(folder)
    except NoHistory:
        raise NoHistory(f"{folder} is not in a Git repository, so there is no commit to watch") from None
    try:
        sha = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    except NoHistory:
        raise NoHistory(f"the repository of {folder} has no commit '{revision}'") from None
    committed_s, author, subject = _git(folder, *LOG, "--format=%ct%x00%an%x00%s", sha, "--").split("\0", 2)
    return GitCommit(
        repository=repository,
        sha=sha,
        position=int(_git(folder, "rev-list", "--count", "--first-parent", sha)),
        committed_at=read_moment(committed_s, dt.datetime.now(dt.UTC)).isoformat(),
        subject=without_controls(subject),
        author=without_controls(author),
    )


def read_moment(seconds: str, now: dt.datetime) -> dt.datetime:
    """Converts Git's seconds since 1970 to a datetime, limited to the range from 1970 to `now`."""
    since_1970 = int(seconds) if re.fullmatch(r"-?[0-9]{1,30}", seconds) else 0
    return dt.datetime.fromtimestamp(min(max(since_1970, 0), int(now.timestamp())), dt.UTC)


def repository_name(folder: Path) -> str:
    """Returns the address of the remote `origin` without credentials, or else the name of the repository's folder."""
    try:
        url = _git(folder, "config", "--get", "remote.origin.url")
    except NoHistory:
        try:
            return Path(_git(folder, "rev-parse", "--show-toplevel")).name
        except NoHistory:  # a bare repository
            return Path(_git(folder, "rev-parse", "--absolute-git-dir")).name.removesuffix(".git")
    parts = urlsplit(url)
    if parts.scheme and parts.hostname:
        host = parts.hostname + (f":{parts.port}" if parts.port else "")
        return urlunsplit((parts.scheme, host, parts.path, "", ""))
    return Path(url).name.removesuffix(".git") if "/" in url and ":" not in url else url


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            env=make_environment(),
            capture_output=True,
            text=True,
            errors="replace",
            check=True,
        )
    except FileNotFoundError:
        raise NoHistory("git is not installed") from None
    except subprocess.CalledProcessError as error:
        raise NoHistory(error.stderr.strip().splitlines()[0] if error.stderr.strip() else "git failed") from None
    return done.stdout.strip()
