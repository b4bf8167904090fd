"""A library folder as it lies in the working tree: what is tracked or new, without what Git ignores."""

import shutil
import subprocess
from pathlib import Path

from tilewatch.worker.repository import RepositoryError


def copy_working_tree(repository: Path, library: str, target: Path) -> Path:
    """Copies the folder to `target`, a new folder, and returns it: the original may be edited while it is compared.

    Raises RepositoryError where there is no such folder, or it holds a submodule, whose commit says nothing of changes
    inside it.
    """
    if not (repository / library).is_dir():
        raise RepositoryError(f"the working tree of {repository} has no folder {library!r}")
    target.mkdir(parents=True)
    for name in _list_files(repository, library):
        path = repository / name
        if path.is_dir():
            raise RepositoryError(
                f"{name} is a submodule: its uncommitted changes cannot be compared, commit them first"
            )
        if path.is_file():  # a file that was deleted is still listed
            copy = target / Path(name).relative_to(library)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    return target


def _list_files(repository: Path, library: str) -> list[str]:
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", library],
            cwd=repository,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise RepositoryError(f"git cannot list the files of {repository}: {error}") from None
    return sorted({name for name in listed.split("\0") if name})
