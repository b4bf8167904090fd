"""Keeps the child processes of a compiler: some trace libraries, and one compiles."""

from collections.abc import Mapping
from pathlib import Path

from tilewatch.errors import ExpectedError
from tilewatch.kernels.children import interpreters
from tilewatch.kernels.children.child_process import ChildDied, ChildHung, ChildProcess
from tilewatch.kernels.children.interpreters import Interpreter
from tilewatch.kernels.compiling.local_cubins import LocalCubins

LIBRARIES = 2
"""Most tracing children, one per library. A comparison needs two libraries. Each child takes about 150 MB."""

READY_S = 120.0
"""Seconds that a child may take to start. Importing cuda-tile takes 1 s, and more from a cold disk."""


class BuildError(ExpectedError):
    """Raised if no config can be compiled, for example because a tool is missing."""


class CompileChildren:
    def __init__(self, packages: Path | None, cubins: LocalCubins) -> None:
        """Starts no child before the first use. `packages` is a toolchain's folder; None is the installed toolchain."""
        self._packages, self._cubins = packages, cubins
        self._tracers: dict[tuple[str, Interpreter | None], ChildProcess] = {}
        """Maps a library's folder and interpreter to the library's tracing child, the least recently used first."""
        self._compiler: ChildProcess | None = None
        self._version: str | None = None

    def find_tracer(self, library: str) -> ChildProcess:
        """Returns the child that traces a library. Raises BuildError if it does not start."""
        # One child per library, because the code of one commit could change the traces of another commit.
        place = (library, interpreters.find(library))
        if self._packages is not None and place[1] is not None:
            recorder = f"{library} is recorded by {place[1].python}"
            raise BuildError(f"{recorder}, which has a cuda-tile of its own: no toolchain can replace it")
        child = self._tracers.pop(place, None)
        if child is None or not child.alive:
            if child is not None:
                child.close()
            while len(self._tracers) >= LIBRARIES:
                self._tracers.pop(next(iter(self._tracers))).close()
            child = self._tracers[place] = ChildProcess("trace", packages=self._packages, library=library)
            self._require_ready(child)
        self._tracers[place] = child
        return child

    def find_compiler(self) -> ChildProcess:
        """Returns the child that compiles. Raises BuildError if it does not start."""
        if self._compiler is None or not self._compiler.alive:
            if self._compiler is not None:
                self._compiler.close()
            store, packages = self._cubins.prepare_child(), self._packages
            self._compiler = ChildProcess("compile", packages=packages, readable=[store], writable=[self._cubins.made])
            self._version = self._require_ready(self._compiler)
        return self._compiler

    def read_version(self) -> str:
        """Returns the compiler's version. Raises BuildError if the child does not start."""
        if self._version is None:
            self.find_compiler()
        assert self._version is not None
        return self._version

    def kill(self) -> None:
        """Kills all children from any thread. The thread that waits for a child must still call `close`."""
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
        """Returns a new child's compiler version. Raises BuildError if the child fails."""
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
    """Returns a sentence about a compiler file that lies outside of the toolchain's folder, or None."""
    # cuda-tile uses another tileiras of the machine if the toolchain's does not fit.
    for name, file in files.items():
        if file is None or not Path(file).is_relative_to(folder):
            return f"{name} is missing in it" + (f", and {file} would be used" if file else "")
    return None
