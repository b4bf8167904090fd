"""Loads library files by path, inside a child process, under canonical names.

The files may come from any commit and lie in any folder; the harness is always the installed one. A file is loaded as
`watched_library/<name>.py`, so that the same code gives the same bytecode wherever its checkout lies.
"""

import hashlib
import linecache
import sys
import types
from dataclasses import dataclass
from pathlib import Path

from kernels.contract import Kernel

PACKAGE = "watched_library"


@dataclass(frozen=True)
class Loaded:
    """A kernel and the hash of the file that defines it."""

    kernel: Kernel
    source_sha256: str


class LibraryError(Exception):
    """A library folder or file that cannot be used; the message is a sentence."""


def load(library: Path) -> dict[str, Loaded]:
    """All kernels of the folder, by name, in file and definition order."""
    files = sorted(path for path in library.glob("*.py") if not path.name.startswith("_"))
    if not files:
        raise LibraryError(f"the library folder {library} holds no library files (*.py)")
    found: dict[str, Loaded] = {}
    for path in files:
        source = hashlib.sha256(path.read_bytes()).hexdigest()
        for kernel in _kernels(path):
            if kernel.name in found:
                raise LibraryError(f"kernel {kernel.name} is defined twice in {library}")
            found[kernel.name] = Loaded(kernel, source)
    return found


def _kernels(path: Path) -> tuple[Kernel, ...]:
    module = types.ModuleType(f"{PACKAGE}.{path.stem}")
    module.__file__ = f"{PACKAGE}/{path.name}"
    source = path.read_text()
    # cuTile reads a kernel's source through inspect; an entry without a time stamp is never looked up on disk.
    linecache.cache[module.__file__] = (len(source), None, source.splitlines(keepends=True), module.__file__)
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, module.__file__, "exec"), module.__dict__)  # noqa: S102 - loading code is the task here
    except Exception as error:
        raise LibraryError(f"library file {path.name} does not load: {type(error).__name__}: {error}") from error
    kernels = getattr(module, "KERNELS", None)
    if not isinstance(kernels, tuple) or not all(isinstance(kernel, Kernel) for kernel in kernels):
        raise LibraryError(f"library file {path.name} must define KERNELS, a tuple of kernels.contract.Kernel")
    return kernels
