"""Stores which Python runs the host code of a repository, if not Tilewatch's own Python.

Only `tilewatch watch add` changes this, so neither a commit nor the database can choose the program that runs."""

import os
import tempfile
from contextlib import closing
from pathlib import Path

from tilewatch.errors import ExpectedError
from tilewatch.kernels.children import environments, interpreters
from tilewatch.kernels.children.child_process import ChildDied, ChildHung, ChildProcess
from tilewatch.kernels.children.environments import Environment
from tilewatch.kernels.children.interpreters import BadInterpreter
from tilewatch.kernels.compiling.compile_children import READY_S
from tilewatch.kernels.toolchains.versions import compiler_version
from tilewatch.worker.git.clones import Clone
from tilewatch.worker.git.commits import read_file, read_settings


class BadPython(ExpectedError):
    """Raised if a Python cannot run the host code of a repository for Tilewatch."""


def write(clone: Clone, python: Path) -> None:
    """Stores the path of the Python that runs a repository's host code on this node."""
    _find_file(clone).parent.mkdir(parents=True, exist_ok=True)
    _find_file(clone).write_text(f"{python}\n", encoding="utf-8")


def forget(clone: Clone) -> None:
    _find_file(clone).unlink(missing_ok=True)


def find(clone: Clone) -> Path | None:
    """Returns the path of the Python that runs a repository's host code on this node; None for Tilewatch's own."""
    try:
        return Path(_find_file(clone).read_text(encoding="utf-8").strip())
    except FileNotFoundError:
        return None


def find_environment(repository: Path, branch: str, python: Path | None) -> Environment | None:
    """Returns the Python environment of a branch's requirements file; None if pyproject.toml names no such file."""
    settings = read_settings(repository, branch)
    if settings is None or settings.requirements is None:
        return None
    text = read_file(repository, branch, settings.requirements, environments.MOST_TEXT_BYTES)
    if text is None:
        raise BadInterpreter(f"{branch} lacks {settings.requirements}, which [tool.tilewatch] names")
    return environments.describe(settings.requirements, text, python)


def use(clone: Clone, library: Path, own_python: bool) -> None:
    """Sets the Python with which this process runs a library. `own_python` selects the repository's Python."""
    missing = (
        f"{clone.name} is recorded by a Python of its owner's, which this node lacks: `tilewatch watch add {clone.url} "
        f"--name {clone.name} --python PYTHON` here names one"
    )
    # If it is missing, the start of a child process raises BadInterpreter, but recorded operators can be compiled.
    interpreters.use(library, (find(clone) or missing) if own_python else None)


def require(python: Path) -> None:
    """Raises BadPython if a Python cannot run host code for Tilewatch, or has another version of the compiler."""
    if not os.access(python, os.X_OK):  # a server of children that runs by it may be left
        raise BadPython(f"{python} is no program that can be started")
    with tempfile.TemporaryDirectory(prefix="tilewatch-python-") as folder:
        interpreters.use(Path(folder), python)
        try:
            with closing(ChildProcess("trace", library=folder)) as child:
                found = str(child.ask({"ask": "ready"}, deadline_s=READY_S)["compiler"])
        except (BadInterpreter, ChildDied, ChildHung) as error:
            raise BadPython(f"{python} records nothing: {error}") from None
        finally:
            interpreters.use(Path(folder), None)
    if found != compiler_version():
        raise BadPython(
            f"{python} has {found}, but Tilewatch compiles with {compiler_version()}: install the same there"
        )


def _find_file(clone: Clone) -> Path:
    return clone.folder.with_suffix(".python")
