"""Proposes a watch file (a list of operators to watch) for a commit that lacks a watch file."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from tilewatch.kernels.compiling import store
from tilewatch.kernels.proposing.proposal import Proposal, propose
from tilewatch.worker.git import checkouts
from tilewatch.worker.git.commits import git, read_settings, resolve

ARCH = "sm_90"


def has_operators(repository: Path, revision: str, usual: str) -> bool:
    """Returns whether a commit has watch files: pyproject.toml names their folder, or the folder `usual` exists."""
    settings = read_settings(repository, revision)
    if settings is not None and settings.watch is not None:
        return True
    return bool(git(repository, "ls-tree", "--full-tree", revision, f"{usual}/").strip())


def propose_at(
    repository: Path, revision: str, on_step: Callable[[str], None] = lambda _: None, python: Path | None = None
) -> Proposal:
    """Proposes and tries a watch file for a commit. Raises LibraryError if none can be proposed."""
    with tempfile.TemporaryDirectory(prefix="tilewatch-proposal-") as scratch:
        folder = checkouts.checkout_commit(repository, resolve(repository, revision).sha, Path(scratch))
        folder.chmod(0o700)  # a checkout is read-only
        try:
            return propose(folder, ARCH, store.folder(store.DEFAULT_FOLDER), on_step, python)
        finally:
            checkouts.delete(folder)
