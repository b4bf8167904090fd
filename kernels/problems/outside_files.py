"""Finds submodules and Git LFS pointers. Nightly runs check out neither submodules nor LFS files."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tilewatch.git_environment import make_environment

SUBMODULE = "160000"
"""Git's mode for an entry that is a submodule."""

POINTER = "version https://git-lfs.github.com/spec/"
"""First words of a Git LFS pointer file."""

POINTER_ADVICE = "it is a pointer of Git LFS and not the file: commit the file itself, since no node fetches LFS files"


def list_submodules(folder: Path, revision: str | None = None) -> list[str]:
    """Returns the paths of a commit's submodules. If `revision` is None, reads Git's index."""
    staged = ("ls-files", "--stage", "--full-name", "-z", ":/")
    listing = staged if revision is None else ("ls-tree", "-r", "-z", "--full-tree", revision)
    entries = _git(folder, *listing).split("\0")
    return [entry.partition("\t")[2] for entry in entries if entry.startswith(SUBMODULE)]


def list_pointers(folder: Path) -> list[str]:
    """Returns the staged files that are Git LFS pointers, as paths relative to the folder."""
    pattern = f"^{re.escape(POINTER)}"
    return _git(folder, "grep", "--cached", "--files-with-matches", "-z", "-e", pattern, "--", ".").split("\0")[:-1]


def find_submodule(package: str, submodules: Sequence[str]) -> str | None:
    """Returns the path of the submodule that has a package's name, or None."""
    wanted = package.partition(".")[0].replace("-", "_").lower()
    return next((path for path in submodules if Path(path).name.replace("-", "_").lower() == wanted), None)


def describe_submodule(package: str, submodule: str) -> str:
    """Returns the message that a package is missing because commits are checked out without submodules."""
    return f"{package} is in the submodule {submodule}, and commits are checked out without their submodules"


def _git(folder: Path, *arguments: str) -> str:
    """Returns the output of Git, or "" if Git fails."""
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        env=make_environment(),
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    return done.stdout if done.returncode == 0 else ""
