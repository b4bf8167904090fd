"""Loads library files by path, inside a child process, under canonical names.

The files may come from any commit and lie in any folder; the harness is always the installed one. A file is loaded as
`watched_library/<name>.py`, so that the same code gives the same bytecode wherever its checkout lies.
"""

import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import linecache
import sys
import traceback
import types
from dataclasses import dataclass
from pathlib import Path

from tilewatch.errors import ExpectedError
from tilewatch.kernels import contract
from tilewatch.kernels.contract import Kernel
from tilewatch.kernels.imports import ALLOWED, ForbiddenImport, refuse_imports

PACKAGE = "watched_library"
OLD_CONTRACT = "kernels.contract"
"""The contract's name until 2026-11: library files of old commits say `from kernels.contract import ...`."""


@dataclass(frozen=True)
class LibraryKernel:
    """A kernel, the hash of the file that defines it, and that file's name."""

    kernel: Kernel
    source_sha256: str
    file: str


class LibraryError(ExpectedError):
    """A library folder or file that cannot be used; the message is a sentence."""


class NoConfigs(LibraryError):
    """A kernel that was asked for by name and has no config for the architecture."""


@dataclass(frozen=True)
class _Library:
    kernels: dict[str, LibraryKernel]
    sources: dict[str, str]  # by canonical file name
    failures: tuple[str, ...]  # a sentence for each file that does not load


_libraries: dict[Path, _Library] = {}


class _OldContract(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the contract under its old name, after every other finder: a repository's own `kernels` comes first."""

    def find_spec(self, fullname: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        if fullname not in (OLD_CONTRACT, OLD_CONTRACT.partition(".")[0]):
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=fullname != OLD_CONTRACT)

    def exec_module(self, module: types.ModuleType) -> None:
        """Gives the contract's own classes to the module; the package above it stays empty."""
        if module.__name__ == OLD_CONTRACT:
            vars(module).update({name: value for name, value in vars(contract).items() if not name.startswith("__")})


sys.meta_path.append(_OldContract())


def load(library: Path) -> dict[str, LibraryKernel]:
    """Returns all kernels of the folder, by name, in file and definition order. A folder is read once per process.

    A file that does not load costs its own kernels (see `list_failures`); LibraryError is raised when none loads.

    cuTile asks inspect for a kernel's source when it compiles, by file name; since every commit's files have the same
    canonical names, the sources that inspect finds are always those of the folder loaded last.
    """
    loaded = _loaded(library)
    if loaded.failures and not loaded.kernels:
        raise LibraryError("; ".join(loaded.failures))
    for name, source in loaded.sources.items():
        _give_to_inspect(name, source)
    return loaded.kernels


def find(library: Path, kernel: str) -> LibraryKernel:
    """Returns one kernel of the folder. Raises LibraryError when it has none of that name, or its file is wrong."""
    kernels = load(library)
    if kernel not in kernels:
        raise LibraryError("; ".join((f"there is no kernel '{kernel}' in {library}", *list_failures(library))))
    return kernels[kernel]


def list_failures(library: Path) -> tuple[str, ...]:
    """Returns a sentence for each file of the folder that does not load."""
    return _loaded(library).failures


def _loaded(library: Path) -> _Library:
    if library not in _libraries:
        _libraries[library] = _read(library)
    return _libraries[library]


def _read(library: Path) -> _Library:
    files = sorted(path for path in library.glob("*.py") if not path.name.startswith("_"))
    if not files:
        raise LibraryError(f"the library folder {library} holds no library files (*.py)")
    found: dict[str, LibraryKernel] = {}
    sources: dict[str, str] = {}
    failures: list[str] = []
    for path in files:
        content = path.read_bytes()
        name = f"{PACKAGE}/{path.name}"
        sources[name] = content.decode()
        digest = hashlib.sha256(content).hexdigest()
        try:
            kernels = _kernels(path, name, sources[name])
        except LibraryError as error:
            failures.append(str(error))
            continue
        for kernel in kernels:
            if kernel.name in found:
                raise LibraryError(
                    f"kernel {kernel.name} is defined twice in {library}: in {found[kernel.name].file} and {path.name}"
                )
            found[kernel.name] = LibraryKernel(kernel, digest, path.name)
    return _Library(found, sources, tuple(failures))


def _give_to_inspect(name: str, source: str) -> None:
    """Sets the source that inspect finds under a file name. Entries without a time stamp are not looked up on disk."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)


def _kernels(path: Path, name: str, source: str) -> tuple[Kernel, ...]:
    module = types.ModuleType(f"{PACKAGE}.{path.stem}")
    module.__file__ = name
    sys.modules[module.__name__] = module
    _give_to_inspect(name, source)
    try:
        refuse_imports(source)
        exec(compile(source, name, "exec"), module.__dict__)  # noqa: S102 - loading code is the task here
    except ForbiddenImport as error:
        raise LibraryError(f"library file {path.name}, line {error.line}: {error}") from error
    except Exception as error:
        raise LibraryError(f"library file {path.name} does not load: {_described(error, name)}") from error
    kernels = getattr(module, "KERNELS", None)
    if not isinstance(kernels, tuple) or not all(isinstance(kernel, Kernel) for kernel in kernels):
        raise LibraryError(
            f"library file {path.name} must define KERNELS, a tuple of tilewatch.kernels.contract.Kernel"
        )
    return kernels


def _described(error: Exception, name: str) -> str:
    """Returns the error in one line, with the last line of the file `name` that it came through."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == name]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    sentence = f"{type(error).__name__}: {error}" + (f" (line {line})" if line is not None else "")
    return f"{sentence}; {ALLOWED}" if isinstance(error, ModuleNotFoundError) else sentence
