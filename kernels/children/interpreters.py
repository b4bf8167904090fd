"""Finds the Python that runs a library. The library's owner may provide another Python, but a commit cannot."""

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
    """Raised if this machine has no Python that can run a library. Another machine may have one."""


@dataclass(frozen=True)
class Interpreter:
    """A Python interpreter. `packages` is the folder of the packages that a commit requires, or None."""

    python: Path
    packages: Path | None = None


def use(library: Path, python: Path | str | None) -> None:
    """Sets the Python that runs a library: a path, None for Tilewatch's own, or a text that says why there is none."""
    _chosen.pop(library.resolve(), None)
    if python is not None:
        _chosen[library.resolve()] = python


def find(library: str | Path | None) -> Interpreter | None:
    """Returns the Python that runs a library, or None for Tilewatch's own. May install packages for minutes."""
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
    """Returns the first words of a child's command line."""
    if interpreter is None:
        return OWN
    # -I: only the owner's environment counts; -S: only the packages that the commit names count
    return (str(interpreter.python), "-I", *(["-S"] if interpreter.packages else []), start_child.__file__)


def find_lent_packages() -> str:
    """Returns the folder of Tilewatch's packages that contains tileiras, or "" if tileiras is not a Python package."""
    for each in importlib.metadata.distributions(name="nvidia-cuda-tileiras"):
        return str(each.locate_file(""))
    return ""
