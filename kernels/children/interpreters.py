"""Finds the Python that runs a library: Tilewatch's own, or one from a virtual environment of the library's owner.

The owner's environment needs cuda-tile and what host code imports, but no part of Tilewatch. Tilewatch's tracing code
is imported from its own folder. The tile compiler (tileiras) is Tilewatch's too, so that bytecode is made for one
compiler. Only the person who runs the node can name an interpreter; a commit cannot.
"""

import importlib.metadata
import sys
from pathlib import Path

from tilewatch.kernels.children import start_child
from tilewatch.kernels.library_errors import PackageMissing

LENT = "TILEWATCH_LENT_PACKAGES"
"""Environment variable with the folder of Tilewatch's packages from which an owner's interpreter takes tileiras."""

OWN = (sys.executable, "-P", "-m", "tilewatch.kernels.child")
"""First words of a child's command line with Tilewatch's own interpreter."""

_chosen: dict[Path, Path | str] = {}
"""Maps a library's folder to the library's interpreter, or to a sentence on why this machine has none."""


class BadInterpreter(PackageMissing):
    """Raised if no interpreter here can run a library; another machine's may. The message is a sentence."""


def use(library: Path, python: Path | str | None) -> None:
    """Makes later children of this process run a library with the interpreter `python`, or with Tilewatch's own if it
    is None. A string says why this machine has no interpreter; starting a child then raises BadInterpreter."""
    _chosen.pop(library.resolve(), None)
    if python is not None:
        _chosen[library.resolve()] = python


def find(library: str | Path | None) -> Path | None:
    """Returns a library's interpreter, or None for Tilewatch's own. Raises BadInterpreter if this machine has none."""
    found = _chosen.get(Path(library).resolve()) if library else None
    if isinstance(found, str):
        raise BadInterpreter(found)
    return found


def make_command(python: Path | None) -> tuple[str, ...]:
    """Returns the first words of a child's command line. An owner's interpreter ignores PYTHONPATH and the user's
    packages (-I), because only its environment may provide what host code imports."""
    return OWN if python is None else (str(python), "-I", start_child.__file__)


def find_lent_packages() -> str:
    """Returns the folder of the packages that contain tileiras. Returns "" if tileiras is in a CUDA toolkit."""
    for each in importlib.metadata.distributions(name="nvidia-cuda-tileiras"):
        return str(each.locate_file(""))
    return ""
