"""Reads the watched Git repository: resolves revisions, and lists commits along first parents.

Nothing writes into the repository: it may be read-only, and its working tree may have other work in progress, which is
not measured.
"""

import os
import subprocess
from pathlib import Path

from tilewatch.errors import ExpectedError
from tilewatch.kernels.recording.git_commit import GitCommit, NoHistory, commit_of


class RepositoryError(ExpectedError, RuntimeError):
    """The repository does not have what was asked for; the message is a sentence for a person."""


def resolve(repository: Path, revision: str) -> GitCommit:
    require_history(repository)
    try:
        return commit_of(repository, revision)
    except NoHistory as error:
        shallow = git(repository, "rev-parse", "--is-shallow-repository").strip() == "true"
        more = "; it is a shallow clone: `git fetch --unshallow` brings the other commits" if shallow else ""
        raise RepositoryError(f"{error}{more}") from None


def between(repository: Path, revisions: str) -> list[str]:
    """Returns the commits of a range A..B along first parents, the oldest first: after A, up to and with B."""
    require_history(repository)
    start, dots, end = revisions.partition("..")
    if not (start and dots and end) or end.startswith("."):
        raise RepositoryError(f"'{revisions}' is not a range of commits; expected A..B, such as v1.2..HEAD")
    shas = [resolve(repository, revision).sha for revision in (start, end)]
    return git(repository, "rev-list", "--reverse", "--first-parent", f"{shas[0]}..{shas[1]}").split()


def find_merge_base(repository: Path, base: str, head: str) -> str:
    """Returns the commit at which `head` left `base`, a sha or a branch; of a branch the remote's is taken if there is
    one. Raises RepositoryError."""
    tip = resolve(repository, head).sha
    try:
        other = resolve(repository, f"origin/{base}").sha
    except RepositoryError:
        other = resolve(repository, base).sha
    try:
        return git(repository, "merge-base", other, tip).strip()
    except subprocess.CalledProcessError:
        raise RepositoryError(f"{base} and {head} have no commit in common") from None


def split_range(revisions: str) -> tuple[str, str]:
    """Returns BASE and HEAD of "BASE..HEAD". Raises RepositoryError."""
    base, dots, head = revisions.partition("..")
    if not (base and dots and head) or head.startswith("."):
        raise RepositoryError(f"'{revisions}' is not a range of commits; expected BASE..HEAD, such as main..HEAD")
    return base, head


def is_on_main_line(repository: Path, sha: str, branch: str) -> bool:
    """Returns whether a commit is the tip of the followed branch or before it along first parents. The branch as its
    remote has it counts too: a clone that is only fetched stays behind. Raises RepositoryError if the branch does not
    exist."""
    try:
        resolve(repository, branch)
    except RepositoryError:
        raise RepositoryError(f"{repository} has no branch '{branch}', whose commits are to be followed") from None
    for tip in (branch, f"{branch}@{{upstream}}"):
        try:
            if sha in git(repository, "rev-list", "--first-parent", tip).split():
                return True
        except subprocess.CalledProcessError:
            continue  # it has no upstream
    return False


def first_parents(repository: Path, sha: str, count: int) -> list[str]:
    """Returns a commit and those before it along first parents, the newest first; empty where the repository
    lacks it."""
    try:
        require_history(repository)
        return git(repository, "rev-list", "--first-parent", f"--max-count={count}", sha).split()
    except (RepositoryError, subprocess.CalledProcessError):
        return []


def require_history(repository: Path) -> None:
    if not repository.is_dir():
        raise RepositoryError(f"{repository} is not a folder; TILEWATCH_REPOSITORY names the Git repository to watch")
    try:
        git(repository, "rev-parse", "--verify", "--quiet", "HEAD")
    except FileNotFoundError:
        raise RepositoryError("git is not installed, and commits are what Tilewatch tests") from None
    except subprocess.CalledProcessError as error:
        why = error.stderr.strip().splitlines()
        if why and "dubious ownership" in why[0]:
            raise RepositoryError(f"git refuses {repository}: {why[0].removeprefix('fatal: ')}") from None
        if _has_commits(repository):  # the branch that HEAD names is gone, not the commits
            return
        raise RepositoryError(f"{repository} is not the top folder of a Git repository with commits") from None


def _has_commits(repository: Path) -> bool:
    try:
        return bool(git(repository, "rev-list", "--all", "--max-count=1"))
    except subprocess.CalledProcessError:
        return False


def git(repository: Path, *arguments: str, **extra: str) -> str:
    """Runs git on exactly this folder: not on a repository around it, nor on the one whose hook started us."""
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
