"""Reads `[tool.tilewatch]` of a checkout, and keeps the modules of several checkouts apart in one process.

Two commits of one repository have modules of the same names. Only one checkout is active at a time: its folders are on
the import path and its modules in sys.modules; those of the others wait.
"""

import ast
import collections
import functools
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import linecache
import sys
import traceback
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cuda.tile as ct

from tilewatch.kernels import project_settings
from tilewatch.kernels.project_settings import BadProject

CANONICAL = "watched_checkout"
INSTALLED = ("site-packages", "dist-packages")
CONTAINERS = (dict, list, set, collections.OrderedDict, collections.defaultdict)
"""Where host code remembers what it found: emptied before each run."""


@dataclass(frozen=True)
class Project:
    """A checkout whose watch files are loaded. `root` is the checkout's top folder; `path` are the folders that its own
    package is imported from.

    `arch` is the architecture that host code is made to see, also while it is imported; None for the GPU that is here.
    """

    root: Path
    path: tuple[Path, ...]
    arch: str | None = None


@dataclass
class _State:
    """What one checkout leaves behind in the process while another one is active. `sources` are by canonical name."""

    launch: Any
    path: list[str]
    sources: dict[str, str] = field(default_factory=dict)
    modules: dict[str, types.ModuleType] = field(default_factory=dict)
    containers: list[tuple[Any, Any]] = field(default_factory=list)


_states: dict[Project, _State] = {}
_active: list[Project] = []


def find_project(library: Path, arch: str | None) -> Project | None:
    """Returns the settings of the checkout that a watch folder lies in; None where no pyproject.toml above it has a
    table [tool.tilewatch]. Raises BadProject."""
    library = library.resolve()
    for folder in (library, *library.parents):
        settings = project_settings.read(folder)
        if settings is not None:
            missing = [each for each in settings.path if not (folder / each).is_dir()]
            if missing:
                file = folder / project_settings.FILE
                raise BadProject(f"{file}: [tool.tilewatch] has the path '{missing[0]}', which is no folder")
            return Project(folder, tuple(folder / each for each in settings.path), arch)
    return None


def activate(project: Project | None) -> None:
    """Makes a checkout the one that imports come from; None for none."""
    if _active:
        if _active[0] == project:
            return
        _deactivate(_active.pop())
    if project is None:
        return
    state = _states.setdefault(project, _State(ct.launch, [str(each) for each in project.path]))
    ct.launch = state.launch
    for name, source in state.sources.items():
        give_to_inspect(name, source)
    sys.modules.update(state.modules)
    sys.path[:0] = state.path
    importlib.invalidate_caches()
    _active.append(project)


def _deactivate(project: Project) -> None:
    state = _states[project]
    state.launch = ct.launch  # a repository may have wrapped it
    state.modules = dict(own_modules(project))
    for name in state.modules:
        del sys.modules[name]
    state.path = [each for each in sys.path if _is_own(project, "", each)]  # a repository may have added to it
    sys.path[:] = [each for each in sys.path if each not in state.path]


def canonical_name(project: Project, path: str) -> str:
    return CANONICAL + path.removeprefix(str(project.root))


def find_place(error: BaseException) -> str:
    """Returns the last line of the checkout that an error came through, as "src/ops.py, line 7"; empty where none."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename.startswith(f"{CANONICAL}/")]
    return f"{frames[-1].filename.removeprefix(f'{CANONICAL}/')}, line {frames[-1].lineno}" if frames else ""


def compile_file(project: Project, path: str, content: bytes) -> Any:
    """Compiles a file of the checkout under a name that is the same wherever the checkout lies.

    The name goes into the bytecode, outside of the positions that Tilewatch leaves out of its hash: two commits of one
    kernel would never be equal.
    """
    name = canonical_name(project, path)
    source = importlib.util.decode_source(content)
    _states[project].sources[name] = source
    give_to_inspect(name, source)
    return compile(content, name, "exec", dont_inherit=True)


def give_to_inspect(name: str, source: str) -> None:
    """Sets the source that inspect finds under a name: cuTile reads a kernel's source there. Entries without a time
    stamp are not looked up on disk."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> types.CodeType:
        path = self.get_filename(fullname)
        code: types.CodeType = compile_file(_active[0], path, self.get_data(path))
        return code


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of the active checkout as Python does, and loads them under canonical file names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not _active:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            return None
        origin = str(spec.origin)
        if not _is_own(_active[0], fullname, origin):
            return None
        spec.loader = _Loader(fullname, origin)
        return spec


sys.meta_path.insert(0, _Finder())


def own_modules(project: Project) -> Iterator[tuple[str, types.ModuleType]]:
    """Yields the imported modules that come from the checkout, those of its watch files too, by their names in
    sys.modules: a module may have several."""
    for name, module in list(sys.modules.items()):
        # Some libraries put objects into sys.modules that are no modules and answer to every name.
        if isinstance(module, types.ModuleType) and any(
            _is_own(project, name, place) for place in _places(vars(module))
        ):
            yield name, module


def _is_own(project: Project, name: str, place: str) -> bool:
    """Returns whether a module is the checkout's. A working tree may have a virtual environment inside, whose packages
    are installed ones, and Tilewatch itself may be imported from there."""
    if name.partition(".")[0] == "tilewatch" or not place.startswith(f"{project.root}/"):
        return False
    return not any(folder in INSTALLED for folder in place.removeprefix(str(project.root)).split("/"))


def _places(names: dict[str, Any]) -> Iterator[str]:
    """Yields the file of a module, and the folders of a package."""
    if names.get("__file__"):
        yield str(names["__file__"])
    yield from map(str, names.get("__path__") or ())


def hash_sources(project: Project) -> str:
    """Hashes all that was imported from the checkout by what it says: neither comments nor line numbers count."""
    digest = hashlib.sha256()
    files = {str(module.__file__) for _, module in own_modules(project) if getattr(module, "__file__", None)}
    for file in sorted(files):
        tree = _tree_sha256(file)
        digest.update(f"{file.removeprefix(str(project.root))}\0{tree}\0".encode())
    return digest.hexdigest()


@functools.cache
def _tree_sha256(file: str) -> str:
    content = Path(file).read_bytes()
    return hashlib.sha256(ast.dump(ast.parse(content)).encode() if file.endswith(".py") else content).hexdigest()


def remember_globals(project: Project) -> None:
    """Remembers what the checkout's modules and their classes hold in dicts, lists and sets, once all are imported."""
    state = _states[project]
    known = {id(container) for container, _ in state.containers}
    for _, module in own_modules(project):
        classes = [
            each for each in vars(module).values() if inspect.isclass(each) and each.__module__ == module.__name__
        ]
        for name, value in [item for owner in (module, *classes) for item in vars(owner).items()]:
            if not name.startswith("__") and type(value) in CONTAINERS and id(value) not in known:
                known.add(id(value))
                state.containers.append((value, value.copy()))


def restore_globals(project: Project) -> None:
    """Gives the dicts, lists and sets of modules and classes their first content again, and empties function caches.

    Host code remembers the config that it tuned for a shape; a second run would not search again.
    """
    for container, content in _states[project].containers:
        # They may hold tensors, so they are not compared: two tensors are neither equal nor not.
        container.clear()
        container.extend(content) if isinstance(container, list) else container.update(content)
    for _, module in own_modules(project):
        for value in list(vars(module).values()):
            if isinstance(value, functools._lru_cache_wrapper):
                value.cache_clear()
