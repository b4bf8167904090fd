"""Copies the working tree of a repository: tracked and new files, but none that Git ignores."""

import shutil
from pathlib import Path

from tilewatch.worker.git.commits import RepositoryError, git


def copy_working_tree(repository: Path, library: str, target: Path) -> Path:
    """Copies a working tree to a new folder and returns the library's folder in the copy. Raises RepositoryError if the
    library is missing, contains a submodule or is in one."""
    if not (repository / library).is_dir():
        raise RepositoryError(f"the working tree of {repository} has no folder {library!r}")
    (target / library).mkdir(parents=True)
    # The whole tree: a watch file imports packages of its repository, and the original may be edited meanwhile.
    listed = git(repository, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in sorted({name for name in listed.split("\0") if name}):
        path, copy = repository / name, target / name
        if path.is_symlink() or path.is_file():  # a file that was deleted is still listed
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy, follow_symlinks=False)
        elif path.is_dir() and (Path(name).is_relative_to(library) or Path(library).is_relative_to(name)):
            raise RepositoryError(
                f"{name} is a submodule: its uncommitted changes cannot be compared, commit them first"
            )
        elif path.is_dir():
            copy.mkdir(parents=True)
    return target / library
