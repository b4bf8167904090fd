"""Commits a change of one file in a bare clone and pushes the commit, without Git hooks or filters."""

import tempfile
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from tilewatch.worker.git.clones import Clone, ask_remote, run_remote
from tilewatch.worker.git.commits import RepositoryError, git

AUTHOR = {"NAME": "Tilewatch", "EMAIL": "tilewatch@localhost"}
PASSWORD = "TILEWATCH_PUSH_PASSWORD"  # noqa: S105 - the variable's name
HELPER = f'!f() {{ test "$1" = get && printf \'username=tilewatch\\npassword=%s\\n\' "${PASSWORD}"; }}; f'
"""A credential helper that takes the token from the environment, because other users could see a token on a command
line. GitHub and GitLab accept any user name with a token (2026-11)."""


def commit_file(repository: Path, base_sha: str, path: str, text: str, message: str) -> str:
    """Makes a commit on `base_sha` that replaces the text of one file. Returns the commit's hash."""
    mode = git(repository, "ls-tree", "--full-tree", base_sha, "--", path).split()[0]
    blob = git(repository, "hash-object", "-w", "--stdin", stdin=text).strip()
    with tempfile.TemporaryDirectory() as scratch:
        index = {"GIT_INDEX_FILE": str(Path(scratch) / "index")}
        git(repository, "read-tree", base_sha, **index)
        git(repository, "update-index", "--cacheinfo", f"{mode},{blob},{path}", **index)
        tree = git(repository, "write-tree", **index).strip()
    made_at = git(repository, "show", "--no-patch", "--format=%cI", base_sha, "--").strip()
    who = {f"GIT_{role}_{name}": value for role in ("AUTHOR", "COMMITTER") for name, value in AUTHOR.items()}
    # Not the time now: the same change then has the same hash, so an interrupted push can be repeated.
    when = {"GIT_AUTHOR_DATE": made_at, "GIT_COMMITTER_DATE": made_at}
    return git(repository, "commit-tree", tree, "-p", base_sha, stdin=message, **who, **when).strip()


def with_token(clone: Clone, token: str) -> Clone:
    """Returns a copy of the clone that logs in with a token, if the clone's address is https."""
    parts = urlsplit(clone.url)
    if parts.scheme != "https":  # git uses the SSH agent or the user's own credential helper
        return clone
    key = f"credential.https://{parts.netloc}.helper"
    return replace(clone, options=("-c", f"{key}=", "-c", f"{key}={HELPER}"), variables={PASSWORD: token})


def push_branch(clone: Clone, branch: str, sha: str) -> None:
    """Pushes a commit to a branch of the remote. Raises RepositoryError if somebody else pushed to the branch."""
    found = ask_remote(clone, branch).branch_sha
    if found not in (None, sha) and not _is_own(clone.folder, str(found)):
        raise RepositoryError(f"somebody else has pushed to {branch} of {clone.name}, so it stays as it is")
    lease = f"--force-with-lease=refs/heads/{branch}:{found or ''}"
    pushed = ("push", "--no-verify", lease, "--", clone.url, f"{sha}:refs/heads/{branch}")
    run_remote(clone, "-C", str(clone.folder), *pushed, does="pushed to")


def _is_own(repository: Path, sha: str) -> bool:
    """Returns whether Tilewatch is the committer of a commit; False if the clone lacks the commit."""
    try:
        return git(repository, "show", "--no-patch", "--format=%cn <%ce>", sha, "--").strip() == (
            f"{AUTHOR['NAME']} <{AUTHOR['EMAIL']}>"
        )
    except RepositoryError:
        return False
