"""Finds the Python that runs a library: Tilewatch's own, or that of an environment of the library's owner.

The owner's environment needs cuda-tile and what host code imports, nothing of Tilewatch. The recorder is imported from
Tilewatch's own folder, and tileiras is Tilewatch's too, so that bytecode is made for one compiler. The operator of a
node names an interpreter; a commit cannot.
"""

import importlib.metadata
import sys
from pathlib import Path

from tilewatch.kernels.children import start_child
from tilewatch.kernels.library_errors import PackageMissing

LENT = "TILEWATCH_LENT_PACKAGES"
"""Environment variable with the folder of Tilewatch's packages from which an owner's interpreter takes tileiras."""

OWN = (sys.executable, "-P", "-m", "tilewatch.kernels.child")
"""Start of a child's command line in Tilewatch's own interpreter."""

_chosen: dict[Path, Path | str] = {}
"""Interpreters by the folder of a library, or why this machine has none for it."""


class BadInterpreter(PackageMissing):
    """No interpreter of this machine can run a library; one of another machine may. The message is a sentence."""


def use(library: Path, python: Path | str | None) -> None:
    """Makes children of this process run a library by this interpreter; None is Tilewatch's own. A string says why this
    machine has none: starting a child then raises BadInterpreter."""
    _chosen.pop(library.resolve(), None)
    if python is not None:
        _chosen[library.resolve()] = python


def find(library: str | Path | None) -> Path | None:
    """Returns the interpreter that runs a library; None is Tilewatch's own. Raises BadInterpreter."""
    found = _chosen.get(Path(library).resolve()) if library else None
    if isinstance(found, str):
        raise BadInterpreter(found)
    return found


def make_command(python: Path | None) -> tuple[str, ...]:
    """Returns the start of the command line of a child. An owner's interpreter ignores PYTHONPATH and the user's
    packages (-I), as the environment alone has to have what host code imports."""
    return OWN if python is None else (str(python), "-I", start_child.__file__)


def find_lent_packages() -> str:
    """Returns the folder of the packages that contain tileiras; empty if this machine's is in a CUDA toolkit."""
    for each in importlib.metadata.distributions(name="nvidia-cuda-tileiras"):
        return str(each.locate_file(""))
    return ""
