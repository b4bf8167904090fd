"""Clones watched repositories into the data folder and fetches them. Fetched commits are never deleted.

Only git has credentials. An SSH agent, a key or a credential helper must answer git, as a worker has no terminal."""

import contextlib
import fcntl
import hashlib
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from tilewatch import processes
from tilewatch.errors import ExpectedError
from tilewatch.git_environment import make_environment
from tilewatch.text import short_sha, without_controls
from tilewatch.worker.git.commits import UNSHALLOW, GitFailed, RepositoryError, git, read_settings

FETCH_LIMIT_S = 900.0
"""The most seconds that a fetch or a clone may take. A clone of PyTorch takes some minutes."""
SLOWEST = ("-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=60")
"""Git options that end a transfer if the server sends less than 1,000 bytes a second for a minute."""
SAFE = ("-c", "protocol.ext.allow=never")
"""Git options that refuse addresses which would start a program."""
EVERYTHING = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
NO_REASON = ("Cloning into", "Please make sure you have", "and the repository exists", "hint:", "warning:", "From ")


class BadAddress(ExpectedError):
    """Raised if the address of a repository cannot be used. The message has no secret."""


class FetchFailed(RepositoryError):
    """Raised if a repository cannot be cloned or fetched now. A later attempt may succeed."""


@dataclass(frozen=True)
class Clone:
    """The local clone of a repository. `folder` does not exist before the first fetch."""

    name: str
    url: str
    folder: Path
    options: tuple[str, ...] = ()  # for git commands that use the network, as are `variables`
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)


def clone_of(name: str, url: str, clones: Path) -> Clone:
    """Returns the name, URL and folder of a repository's clone, without making the clone."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[-60:]
    digest = hashlib.sha256(f"{name}\0{url}".encode()).hexdigest()[:10]
    return Clone(name, url, clones / f"{readable}-{digest}.git")


def clean_address(address: str) -> str:
    """Returns a local folder as an absolute path, and a URL unchanged. Raises BadAddress for an unusable address."""
    folder = Path(address).expanduser()
    if folder.is_dir():
        return str(folder.resolve())
    parts = urlsplit(address)
    has_secret = bool(parts.password) or bool(parts.query) or (parts.scheme.startswith("http") and "@" in parts.netloc)
    if has_secret or re.match(r"[^/@]+:[^/@]*@", address):
        raise BadAddress(
            "the address holds a user's name, a password or a token: give it without; git asks the SSH agent or the "
            "credential helper of the user that runs Tilewatch"
        )
    if address.startswith("-") or not (parts.scheme in ("https", "http", "ssh", "git", "file") or "@" in address):
        raise BadAddress(f"'{address}' is neither a folder here nor an address of a Git repository")
    return address


def fetch(clone: Clone) -> None:
    """Fetches all branches and tags, or makes a missing clone. Raises FetchFailed if git fails."""
    with _locked(clone):
        _fetch(clone)


def follow(clone: Clone, branch: str) -> None:
    """Fetches new commits of a branch and makes the branch the clone's HEAD. Raises FetchFailed if this fails."""
    remote = ask_remote(clone, branch)
    if remote.branch_sha is None:
        raise FetchFailed(f"{clone.name} has no branch '{branch}'{_describe_default(clone, branch, remote)}")
    ref = f"refs/heads/{branch}"
    if _read_ref(clone, ref) != remote.branch_sha:
        fetch(clone)  # somebody pushed since the last fetch
        remote = ask_remote(clone, branch)
    if (here := _read_ref(clone, ref)) != remote.branch_sha:
        there, own = (short_sha(sha or "nothing") for sha in (remote.branch_sha, here))
        raise FetchFailed(f"{clone.name} has {branch} at {there}, and git fetch leaves the clone's at {own}")
    git(clone.folder, "symbolic-ref", "HEAD", ref)


@dataclass(frozen=True)
class Remote:
    """The newest commit of a branch on a remote, and the name of the remote's default branch. Both can be None."""

    branch_sha: str | None
    default_branch: str | None


def ask_remote(clone: Clone, branch: str) -> Remote:
    """Reads a branch's newest commit and the default branch from the remote. Raises FetchFailed if git fails."""
    ref = f"refs/heads/{branch}"
    listed = run_remote(clone, "ls-remote", "--symref", "--", clone.url, "HEAD", ref)
    sha = default = None
    for line in listed.splitlines():
        left, _, right = line.partition("\t")
        if right == "HEAD" and left.startswith("ref: refs/heads/"):
            default = left.removeprefix("ref: refs/heads/")
        elif right == ref:
            sha = left
    return Remote(sha, default)


def _describe_default(clone: Clone, branch: str, remote: Remote) -> str:
    if remote.default_branch in (None, branch):
        return ""
    again = shlex.join(
        ["tilewatch", "watch", "add", clone.url, "--name", clone.name, "--branch", str(remote.default_branch)]
    )
    return (
        f"; its default branch is '{remote.default_branch}', which `{again}` follows, with all that was measured; if "
        f"it is watched already, `{shlex.join(['tilewatch', 'watch', 'remove', clone.name])}` comes first"
    )


def _read_ref(clone: Clone, ref: str) -> str | None:
    with contextlib.suppress(RepositoryError):
        return git(clone.folder, "rev-parse", "--verify", "--quiet", ref).strip()
    return None


def bring_commit(clone: Clone, sha: str) -> None:
    """Fetches a commit if the clone lacks it. Raises RepositoryError if that fails."""
    if has(clone, sha):
        return
    with _locked(clone):
        if not has(clone, sha):  # otherwise another worker has fetched it meanwhile
            _fetch(clone)
        if not has(clone, sha):
            _fetch_one(clone, sha)


def bring_revision(clone: Clone, revision: str) -> str:
    """Fetches a revision such as `pull/12/head` and returns its commit's hash. Raises RepositoryError if that fails."""
    if ":" in revision or revision.startswith(("-", "+")):
        raise RepositoryError(f"'{revision}' is not the name of a commit")
    with _locked(clone):
        _fetch_one(clone, revision)
        return git(clone.folder, "rev-parse", "--verify", "FETCH_HEAD^{commit}").strip()


def choose_branch(clone: Clone) -> str:
    """Returns the branch that the remote's pyproject.toml names, else the remote's default branch."""
    default = ask_remote(clone, "HEAD").default_branch
    settings = read_settings(clone.folder, "HEAD" if default is None else f"refs/heads/{default}")
    if settings is not None and settings.branch is not None:
        return settings.branch
    if default is None:
        raise RepositoryError(f"{clone.name} has no default branch: name the branch to follow")
    return default


def delete(clone: Clone) -> None:
    """Deletes the folder of a clone."""
    with _locked(clone):
        shutil.rmtree(clone.folder, ignore_errors=True)


def _fetch(clone: Clone) -> None:
    if clone.folder.is_dir():
        folder = ("-C", str(clone.folder))
        log = run_remote(clone, *folder, "fetch", "--prune", "--no-write-fetch-head", "--", clone.url, *EVERYTHING)
        if re.search("shallow (update|roots)", log):
            raise FetchFailed(_describe_shallow(clone))
        _index(clone.folder)
        return
    prefix = f".cloning-{clone.folder.stem}-"
    for left in clone.folder.parent.glob(f"{prefix}*"):  # by a killed process, as we hold the lock
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=clone.folder.parent, prefix=prefix) as scratch:
        made = Path(scratch) / "clone.git"
        options = ("--bare", "--reject-shallow", "--template=", "--config", "gc.pruneExpire=never")
        try:
            run_remote(clone, "clone", *options, "--", clone.url, str(made))
        except FetchFailed as error:
            if "is shallow" in str(error):
                raise FetchFailed(_describe_shallow(clone)) from None
            raise
        _index(made)
        made.rename(clone.folder)


def _describe_shallow(clone: Clone) -> str:
    return f"{clone.name} cannot be followed; it is a shallow clone: {UNSHALLOW}"


def _index(folder: Path) -> None:
    """Writes Git's commit graph, which makes lists of commits three times as fast. Errors are ignored."""
    with contextlib.suppress(GitFailed):
        git(folder, "commit-graph", "write", "--reachable", "--split")


def _fetch_one(clone: Clone, revision: str) -> None:
    try:
        run_remote(clone, "-C", str(clone.folder), "fetch", "--no-tags", "--", clone.url, revision)
    except FetchFailed as error:
        raise RepositoryError(f"{clone.name} has no commit '{revision}' ({error})") from None


def has(clone: Clone, revision: str) -> bool:
    """Returns whether a clone exists and has the commit of a revision."""
    try:
        git(clone.folder, "cat-file", "-e", f"{revision}^{{commit}}")
    except (OSError, RepositoryError):
        return False
    return True


@contextlib.contextmanager
def _locked(clone: Clone) -> Iterator[None]:
    """Holds a lock, so that only one process at a time changes a clone."""
    clone.folder.parent.mkdir(parents=True, exist_ok=True)
    with clone.folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run_remote(clone: Clone, *arguments: str, does: str = "fetched") -> str:
    """Runs git over the network and returns the output. Raises FetchFailed with the verb `does` in the message."""
    environment = {**make_environment(), "GIT_TERMINAL_PROMPT": "0", "SSH_ASKPASS_REQUIRE": "never", **clone.variables}
    with tempfile.TemporaryFile() as log:
        command = ("git", *SAFE, *SLOWEST, *clone.options, *arguments)
        process = processes.start(command, environment=environment, log=log, folder=clone.folder.parent)
        try:
            ended = process.wait(FETCH_LIMIT_S) == 0
        except subprocess.TimeoutExpired:
            raise FetchFailed(f"{clone.name} cannot be {does}: no end after {FETCH_LIMIT_S:.0f} s") from None
        finally:  # also after an interrupt, so that this git does not run beside the next one
            if process.poll() is None:
                processes.kill([process])
        log.seek(0)
        output = "\n".join(map(without_controls, log.read().decode(errors="replace").splitlines()))
    if not ended:
        raise FetchFailed(f"{clone.name} cannot be {does}: {_reason(output)}")
    return output


def _reason(output: str) -> str:
    lines = [line.strip().removeprefix("fatal: ") for line in output.splitlines()]
    reasons = [line for line in lines if line and not line.startswith(NO_REASON)]
    return "; ".join(reasons[-2:]) or "git gave no reason"
