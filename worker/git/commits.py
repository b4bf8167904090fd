"""Reads a Git repository: resolves revisions, and lists commits along first parents."""

import re
import subprocess
from pathlib import Path

from tilewatch.errors import ExpectedError
from tilewatch.git_environment import make_environment
from tilewatch.given_files import MOST_TOML_BYTES
from tilewatch.kernels import project_settings
from tilewatch.kernels.project_settings import ProjectSettings
from tilewatch.kernels.recording.git_commit import GitCommit, NoHistory, commit_of

LIMIT_S = 300.0
"""The most seconds that a git command may take, in case a disk is dead. A million commits are listed in 10 s."""

SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")

LINK = "120000"
"""The mode of a symbolic link in a tree of Git."""


class RepositoryError(ExpectedError, RuntimeError):
    """Raised if a repository cannot be read, or lacks a commit, branch or file."""


class GitFailed(RepositoryError):
    """Raised if a command of Git failed. `reason` is the first line that Git wrote."""

    def __init__(self, repository: Path, command: str, reason: str) -> None:
        super().__init__(f"`git {command}` fails in {repository}: {reason}")
        self.reason = reason


def resolve(repository: Path, revision: str) -> GitCommit:
    """Returns the commit that a revision names. Raises RepositoryError if there is none."""
    require_history(repository)
    try:
        return commit_of(repository, find_branch(repository, revision) or revision)
    except NoHistory as error:
        more = f"; it is a shallow clone: {UNSHALLOW}" if is_shallow(repository) else ""
        raise RepositoryError(f"{error}{more}") from None


UNSHALLOW = "`git fetch --unshallow` brings the other commits"


def is_shallow(repository: Path) -> bool:
    return git(repository, "rev-parse", "--is-shallow-repository").strip() == "true"


def find_branch(repository: Path, name: str) -> str | None:
    """Returns the full ref of a branch such as main or origin/main; None for HEAD, a hash or an unknown name."""
    # Full refs, because Git takes a short name for a tag if there is such a tag.
    refs = [] if name == "HEAD" or SHA.fullmatch(name) else [f"refs/heads/{name}", f"refs/remotes/{name}"]
    return next((ref for ref in refs if _succeeds(repository, "show-ref", "--verify", "--quiet", "--", ref)), None)


def between(repository: Path, revisions: str) -> list[str]:
    """Lists the commits of a range A..B along first parents, oldest first. A is left out."""
    start, end = resolve_range(repository, revisions)
    return git(repository, "rev-list", "--reverse", "--first-parent", f"{start}..{end}", "--").split()


def list_range(repository: Path, start: str, end: str) -> set[str]:
    """Returns the hashes of all commits that `end` contains and `start` does not."""
    return set(git(repository, "rev-list", f"{start}..{end}", "--").split())


def list_path(repository: Path, start: str, end: str) -> set[str]:
    """Returns the commits of `list_range` that descend from `start`; all of them if `end` does not contain `start`."""
    path = ["--ancestry-path"] if is_ancestor(repository, start, end) else []
    return set(git(repository, "rev-list", *path, f"{start}..{end}", "--").split())


def resolve_range(repository: Path, revisions: str) -> tuple[str, str]:
    """Returns the hashes of the two ends of a range A..B. Raises RepositoryError if an end is unknown."""
    require_history(repository)
    start, end = split_range(revisions)
    return resolve(repository, start).sha, resolve(repository, end).sha


def find_merge_base(repository: Path, base: str, head: str) -> str:
    """Returns the commit at which `head` branched off `base`. Raises RepositoryError if they have no common commit."""
    tip = resolve(repository, head).sha
    remote = None if SHA.fullmatch(base) else find_branch(repository, f"origin/{base}")  # before a local branch
    other = resolve(repository, remote or base).sha
    try:
        return git(repository, "merge-base", other, tip).strip()
    except GitFailed:
        raise RepositoryError(f"{base} and {head} have no commit in common") from None


def is_ancestor(repository: Path, sha: str, of: str) -> bool:
    """Returns whether `sha` is `of` or an ancestor of `of`; False if a commit is missing."""
    return _succeeds(repository, "merge-base", "--is-ancestor", sha, of)


def split_range(revisions: str) -> tuple[str, str]:
    """Splits "BASE..HEAD" into BASE and HEAD. Raises RepositoryError if the text is not such a range."""
    base, dots, head = revisions.partition("..")
    if not (base and dots and head) or head.startswith("."):
        raise RepositoryError(f"'{revisions}' is not a range of commits; expected BASE..HEAD, such as main..HEAD")
    return base, head


def find_tips(repository: Path, branch: str) -> list[str]:
    """Lists the last commits of a local branch and of its remote branch, the newest last."""
    ref = branch if branch == "HEAD" or branch.startswith("refs/") else find_branch(repository, branch)
    own = None if ref is None else _find_commit(repository, ref)
    if ref is None or own is None:
        require_history(repository)
        raise RepositoryError(f"{repository} has no branch '{branch}', whose commits are to be followed")
    remote = _find_upstream(repository, ref) or own
    return [own, remote] if own == remote or is_ancestor(repository, own, remote) else [remote, own]


def find_tips_of_branch(repository: Path, branch: str, newest: str) -> list[str]:
    """Returns a list with the last commit of a branch, or with `newest` if the branch lacks `newest`."""
    ref = find_branch(repository, branch)
    tip = None if ref is None else _find_commit(repository, ref)
    return [tip] if tip is not None and is_ancestor(repository, newest, tip) else [newest]


def _find_upstream(repository: Path, ref: str) -> str | None:
    """Returns the last fetched tip of the remote branch that a branch tracks; None if it tracks no branch."""
    if ref == "HEAD":
        try:
            ref = git(repository, "symbolic-ref", "--quiet", "HEAD").strip()
        except GitFailed:  # detached
            return None
    upstream = git(repository, "for-each-ref", "--format=%(upstream)", ref).strip()
    return _find_commit(repository, upstream) if upstream else None


def first_parents(repository: Path, sha: str, count: int) -> list[str]:
    """Lists at most `count` commits along first parents, newest first. Lists nothing if the commit is missing."""
    try:
        require_history(repository)
        return git(repository, "rev-list", "--first-parent", f"--max-count={count}", sha, "--").split()
    except RepositoryError:
        return []


def read_file(repository: Path, revision: str, name: str, most_bytes: int) -> str | None:
    """Returns a file's text in a commit; None if missing. Raises RepositoryError for a link, folder or large file."""
    try:  # Git's objects are read, so that links are not followed
        entry = git(repository, "ls-tree", "--long", "--full-tree", revision, "--", name).split(None, 4)
    except GitFailed:
        return None
    if not entry:
        return None
    mode, kind, blob, size, _ = entry
    if kind != "blob" or mode == LINK:
        raise RepositoryError(f"{name} of commit {revision[:40]} is a link or a folder, not a file")
    if int(size) > most_bytes:
        raise RepositoryError(f"{name} of commit {revision[:40]} has more than {most_bytes / 2**20:g} MiB")
    return git(repository, "cat-file", "blob", blob)


def read_settings(repository: Path, revision: str) -> ProjectSettings | None:
    """Returns the Tilewatch settings in a commit's pyproject.toml, or None. Raises BadProject for invalid settings."""
    text = read_file(repository, revision, project_settings.FILE, MOST_TOML_BYTES)
    where = f"{project_settings.FILE} of commit {revision[:10]} of {repository}"
    return None if text is None else project_settings.parse(text, where)


def require_history(repository: Path) -> None:
    if not repository.is_dir():
        raise RepositoryError(f"{repository} is not a folder; TILEWATCH_REPOSITORY names the Git repository to watch")
    try:
        git(repository, "rev-parse", "--verify", "--quiet", "HEAD")
    except GitFailed as error:
        if "dubious ownership" in error.reason:
            raise RepositoryError(f"git refuses {repository}: {error.reason}") from None
        if _has_commits(repository):  # only the branch that HEAD names is gone
            return
        raise RepositoryError(f"{repository} is not the top folder of a Git repository with commits") from None


def _has_commits(repository: Path) -> bool:
    try:
        return bool(git(repository, "rev-list", "--all", "--max-count=1"))
    except GitFailed:
        return False


def _find_commit(repository: Path, ref: str) -> str | None:
    try:
        return git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}").strip()
    except GitFailed:
        return None


def _succeeds(repository: Path, *arguments: str) -> bool:
    try:
        git(repository, *arguments)
    except GitFailed:
        return False
    return True


def git(repository: Path, *arguments: str, stdin: str | None = None, **extra: str) -> str:
    """Runs git and returns its output. Raises GitFailed if the command fails."""
    if not repository.is_dir():
        raise RepositoryError(f"{repository} is not a folder")
    try:
        return subprocess.run(
            ["git", *arguments],
            cwd=repository,
            env={**make_environment(repository), **extra},  # this repository, even in the hook of another
            check=True,
            input=stdin,
            stdin=None if stdin is not None else subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=LIMIT_S,
        ).stdout
    except FileNotFoundError:
        raise RepositoryError("git is not installed, and commits are what Tilewatch tests") from None
    except subprocess.TimeoutExpired:
        raise GitFailed(repository, arguments[0], f"no end after {LIMIT_S:.0f} s") from None
    except subprocess.CalledProcessError as error:
        lines = [each for each in error.stderr.strip().splitlines() if not each.startswith("hint: ")]
        lines = lines or ["git gave no reason"]
        raise GitFailed(repository, arguments[0], lines[0].removeprefix("fatal: ")) from None
