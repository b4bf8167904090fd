"""Lets imports find stand-ins for packages that need a GPU. `torch` and `triton` are replaced only if missing."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tilewatch.kernels.watching.tracer import TracingError

CONTENT: dict[str, Mapping[str, Any]] = {}
"""Maps each module to the names in it and their values. Each stand-in adds its modules when it is imported."""

FALLBACKS: dict[str, Callable[[str, str], Any]] = {}
"""Maps a package to a function that gets a module and a name missing in CONTENT, and returns the value or None."""

PACKAGES = ("torch", "triton", "cupy", "cupyx", "numba", "cuda.core", "cuda.bindings")


@dataclass(frozen=True)
class GpuFacts:
    """The properties of the GPU that host code sees."""

    name: str
    capability: tuple[int, int]
    sm_count: int
    memory_bytes: int = 140 << 30
    l2_bytes: int = 50 << 20


_shown = [GpuFacts("GPU", (9, 0), 132)]


def show_gpu(gpu: GpuFacts) -> None:
    """Sets the properties of the GPU that host code sees."""
    _shown[:] = [gpu]


def find_gpu() -> GpuFacts:
    return _shown[0]


_run_number = [0]


def begin_run() -> None:
    """Starts a new run of host code, in which no kernel has written to an array yet."""
    _run_number[0] += 1


def find_run() -> int:
    """Returns the number of the current run of host code."""
    return _run_number[0]


class NoStandIn(TracingError, AttributeError):
    """Raised if host code uses a name that a stand-in lacks. `hasattr` returns False for that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"without a GPU, Tilewatch's stand-in for {name.partition('.')[0]} has no {name}")


class StandInModule(types.ModuleType):
    """A module that replaces a module of a package. Reading a missing name raises NoStandIn."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        whole = f"{self.__name__}.{name}"
        if whole in CONTENT:
            return importlib.import_module(whole)
        find = FALLBACKS.get(_find_package(whole) or "")
        found = None if find is None else find(self.__name__, name)
        if found is None:
            raise NoStandIn(whole)
        return found


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of the stand-ins when they are imported."""

    def find_spec(self, fullname: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        package = _find_package(fullname)
        if package is None:
            return None
        # The other modules of Numba work without a GPU.
        if (package in ("torch", "triton") or fullname == "numba") and any(
            each.find_spec(package, None) for each in sys.meta_path if each is not self
        ):
            return None
        if package != "torch" and "triton" not in CONTENT:  # NumPy's functions are wrapped only where they are wanted
            for name in ("cupy", "numba", "cuda_python", "triton"):
                importlib.import_module(f"{__package__}.{name}")
        if package != "torch" and fullname not in CONTENT:
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return StandInModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        vars(module).update(CONTENT.get(module.__name__, {}))
        if module.__name__ == "triton":
            importlib.import_module(f"{__package__}.triton").hide_from_torch()


def _find_package(module: str) -> str | None:
    return next((each for each in PACKAGES if f"{module}.".startswith(f"{each}.")), None)


def install() -> None:
    """Makes imports find the stand-ins. A second call does nothing."""
    if not any(isinstance(each, Finder) for each in sys.meta_path):
        sys.meta_path.insert(0, Finder())


def is_in_use(package: str) -> bool:
    """Returns whether this process has imported a package's stand-in."""
    return isinstance(sys.modules.get(package), StandInModule)


def constant(value: Any) -> Callable[..., Any]:
    """Returns a function that returns `value` whatever its arguments are."""
    return lambda *_, **__: value


class Idle:
    """A stream, device or graph whose methods do nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name in IDLE.split():
            return constant(self if name == "use" else None)
        raise AttributeError(f"Tilewatch's stand-in for {type(self).__name__} has no {name}")


IDLE = "use synchronize sync record wait wait_event wait_stream query close set_current deallocate copy_to copy_from"
IDLE += " fill free_all_blocks replay reset capture_begin capture_end pool"
