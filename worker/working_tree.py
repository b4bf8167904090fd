"""A library folder as it lies in the working tree: what is tracked or new, without what Git ignores."""

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from tilewatch.worker.repository import RepositoryError


def copy_working_tree(repository: Path, library: str, cache: Path) -> Path:
    """Copies the folder once per content under `cache` and returns the copy: it may be edited while it is compared.

    Raises RepositoryError where there is no such folder, or it holds a submodule, whose commit says nothing of changes
    inside it.
    """
    folder = repository / library
    if not folder.is_dir():
        raise RepositoryError(f"the working tree of {repository} has no folder {library!r}")
    digest = hashlib.sha256()
    files: list[tuple[str, bytes]] = []
    for name in _list_files(repository, library):
        path = repository / name
        if path.is_dir():
            raise RepositoryError(
                f"{name} is a submodule: its uncommitted changes cannot be compared, commit them first"
            )
        if path.is_file():  # a file that was deleted is still listed
            content = path.read_bytes()
            files.append((str(Path(name).relative_to(library)), content))
            digest.update(f"{files[-1][0]}\0{len(content)}\0".encode() + content)
    target = cache / "working-tree" / digest.hexdigest()[:24]
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=target.parent, prefix=".copying-"))
        for name, content in files:
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / name).write_bytes(content)
        try:
            scratch.rename(target)
        except OSError:  # another process was first, with the same content
            shutil.rmtree(scratch)
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
