"""Finds the Python that runs a library: Tilewatch's own, or one from a virtual environment of the library's owner.

The owner's environment needs cuda-tile and what host code imports, but no part of Tilewatch. Tilewatch's tracing code
is imported from its own folder. The tile compiler (tileiras) is Tilewatch's too, so that bytecode is made for one
compiler. Only the person who runs the node can name an interpreter; a commit can name packages (environments.py).
"""

import importlib.metadata
import sys
from dataclasses import dataclass
from pathlib import Path

from tilewatch.kernels.children import start_child
from tilewatch.kernels.library_errors import PackageMissing

LENT = "TILEWATCH_LENT_PACKAGES"
"""Environment variable with the folder of Tilewatch's packages from which an owner's interpreter takes tileiras."""

PACKAGES = "TILEWATCH_COMMITS_PACKAGES"
"""Environment variable with the folder of the packages that a commit names, which a confined child imports from."""

OWN = (sys.executable, "-P", "-m", "tilewatch.kernels.child")
"""First words of a child's command line with Tilewatch's own interpreter."""

_chosen: dict[Path, Path | str] = {}
"""Maps a library's folder to the library's interpreter, or to a sentence on why this machine has none."""


class BadInterpreter(PackageMissing):
    """Raised if this machine has no interpreter that can run a library. Another machine may have one."""


@dataclass(frozen=True)
class Interpreter:
    """A Python, and the folder of the packages that a commit names. If `packages` is None, the Python's own packages
    are used."""

    python: Path
    packages: Path | None = None


def use(library: Path, python: Path | str | None) -> None:
    """Sets the interpreter with which later children of this process run a library. None is Tilewatch's interpreter. A
    text says why this machine has no interpreter; starting a child then raises BadInterpreter."""
    _chosen.pop(library.resolve(), None)
    if python is not None:
        _chosen[library.resolve()] = python


def find(library: str | Path | None) -> Interpreter | None:
    """Returns a library's interpreter, or None for Tilewatch's own. Installs the packages that the library's commit
    names, which takes minutes. Raises BadInterpreter if this machine has no interpreter or cannot install them."""
    from tilewatch.kernels.children import environments  # which installs by a child process

    if library is None:
        return None
    folder = Path(library).resolve()
    chosen = _chosen.get(folder)
    if isinstance(chosen, str):
        raise BadInterpreter(chosen)
    environment = environments.find(folder, chosen)
    if environment is None:
        return Interpreter(chosen) if chosen else None
    environments.provide(environment)
    return Interpreter(chosen or Path(sys.executable), environment.packages)


def make_command(interpreter: Interpreter | None) -> tuple[str, ...]:
    """Returns the first words of a child's command line. An owner's interpreter ignores PYTHONPATH and the user's
    packages (-I), because only its environment may provide what host code imports. With packages that a commit names,
    an interpreter ignores all others (-S)."""
    if interpreter is None:
        return OWN
    return (str(interpreter.python), "-I", *(["-S"] if interpreter.packages else []), start_child.__file__)


def find_lent_packages() -> str:
    """Returns the folder of the packages that contain tileiras. Returns "" if tileiras is in a CUDA toolkit."""
    for each in importlib.metadata.distributions(name="nvidia-cuda-tileiras"):
        return str(each.locate_file(""))
    return ""
