"""Keeps the processes that one Compiler works with: one for each library that is read, and one that compiles.

The first run a commit's code, and may write nowhere. The other runs none, and writes into the store.
"""

from collections.abc import Mapping
from pathlib import Path

from tilewatch.errors import ExpectedError
from tilewatch.kernels.children.child_process import ChildDied, ChildHung, ChildProcess
from tilewatch.kernels.compiling.local_cubins import LocalCubins

LIBRARIES = 2
"""A comparison has two sides. Each process holds some 150 MB."""

READY_S = 120.0
"""Importing cuda-tile takes a second, more on a cold disk."""


class BuildError(ExpectedError):
    """The set-up is broken (library, tools), so no config can be compiled; the message is a sentence."""


class CompileChildren:
    def __init__(self, packages: Path | None, cubins: LocalCubins) -> None:
        """`packages` is the folder of a toolchain; None is the installed one."""
        self._packages, self._cubins = packages, cubins
        self._tracers: dict[str, ChildProcess] = {}
        """Processes that run a library, by its folder; the one that was used last is at the end."""
        self._compiler: ChildProcess | None = None
        self._version: str | None = None

    def find_tracer(self, library: str) -> ChildProcess:
        """Returns the process that runs a library. Each library has its own: one commit's code must not run where
        another's is traced, because it could change what is traced. Raises BuildError if it does not start."""
        child = self._tracers.pop(library, None)
        if child is None or not child.alive:
            if child is not None:
                child.close()
            while len(self._tracers) >= LIBRARIES:
                self._tracers.pop(next(iter(self._tracers))).close()
            child = self._tracers[library] = ChildProcess("trace", packages=self._packages, library=library)
            self._require_ready(child)
        self._tracers[library] = child
        return child

    def find_compiler(self) -> ChildProcess:
        """Returns the process that compiles, started if need be. Raises BuildError if it does not start."""
        if self._compiler is None or not self._compiler.alive:
            if self._compiler is not None:
                self._compiler.close()
            store = self._cubins.make_folder()
            self._compiler = ChildProcess("compile", packages=self._packages, writable=[store])
            self._version = self._require_ready(self._compiler)
        return self._compiler

    def read_version(self) -> str:
        """Returns what the packages of the folder are. Raises BuildError where the child does not start."""
        if self._version is None:
            self.find_compiler()
        assert self._version is not None
        return self._version

    def kill(self) -> None:
        """Ends all from another thread than the one that asks them. `close` is still to be called."""
        for child in self._list_all():
            child.kill()

    def close(self) -> None:
        for child in self._list_all():
            child.close()
        self._tracers.clear()
        self._compiler = None

    def _list_all(self) -> tuple[ChildProcess, ...]:
        return (*self._tracers.values(), *([] if self._compiler is None else [self._compiler]))

    def _require_ready(self, child: ChildProcess) -> str:
        """Returns the compiler's versions. Raises BuildError where the child did not start, or has other packages."""
        try:
            ready = child.ask({"ask": "ready"}, deadline_s=READY_S)
        except (ChildDied, ChildHung) as error:
            child.close()
            raise BuildError(f"the compiler process does not start: {error}") from None
        if self._packages is not None and (foreign := _describe_foreign(ready["files"], self._packages)):
            child.close()
            raise BuildError(f"the toolchain in {self._packages} is not whole: {foreign}")
        version: str = ready["compiler"]
        return version


def _describe_foreign(files: Mapping[str, str | None], folder: Path) -> str | None:
    """Says which of the compiler's files, by name, is missing or not of this folder; None where all are.

    cuda-tile takes another tileiras of the machine where a package is missing or its version does not fit.
    """
    for name, file in files.items():
        if file is None or not Path(file).is_relative_to(folder):
            return f"{name} is missing in it" + (f", and {file} would be used" if file else "")
    return None
