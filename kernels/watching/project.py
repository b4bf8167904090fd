"""Loads the code of checkouts. Only one checkout is active at a time, because their modules have the same names."""

import ast
import collections
import functools
import hashlib
import importlib
import importlib.machinery
import importlib.util
import inspect
import io
import linecache
import os
import sys
import traceback
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cuda.tile as ct

from tilewatch.kernels import project_settings
from tilewatch.kernels.project_settings import BadProject

CANONICAL = "watched_checkout"
INSTALLED = ("site-packages", "dist-packages")
CONTAINERS = (dict, list, set, collections.OrderedDict, collections.defaultdict)
"""Types of the containers in which host code caches results. These containers are reset before each run."""


@dataclass(frozen=True)
class Project:
    """A checkout whose watch files are loaded. `arch` is None if host code sees this machine's GPU."""

    root: Path
    path: tuple[Path, ...]
    arch: str | None = None


@dataclass
class _State:
    """A checkout's modules, import paths and sources, kept while another checkout is active."""

    launch: Any
    path: list[str]
    sources: dict[str, str] = field(default_factory=dict)
    modules: dict[str, types.ModuleType] = field(default_factory=dict)
    containers: list[tuple[Any, Any]] = field(default_factory=list)
    loaded: set[str] = field(default_factory=set)


_states: dict[Project, _State] = {}
_active: list[Project] = []


def find_project(library: Path, arch: str | None) -> Project | None:
    """Returns the checkout around a folder; None without [tool.tilewatch]. Raises BadProject for bad settings."""
    library = library.resolve()
    for folder in (library, *library.parents):
        settings = project_settings.read(folder)
        if settings is not None:
            missing = [each for each in settings.path if not (folder / each).is_dir()]
            if missing:
                file = folder / project_settings.FILE
                raise BadProject(f"{file}: [tool.tilewatch] has the path '{missing[0]}', which is not a folder")
            return Project(folder, tuple(folder / each for each in settings.path), arch)
    return None


def activate(project: Project | None) -> None:
    """Makes imports come from this checkout, or from no checkout if `project` is None."""
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
    """Returns the innermost code line of the checkout in a traceback, such as "src/ops.py, line 7", or ""."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename.startswith(f"{CANONICAL}/")]
    return f"{frames[-1].filename.removeprefix(f'{CANONICAL}/')}, line {frames[-1].lineno}" if frames else ""


def compile_file(project: Project, path: str, content: bytes) -> Any:
    """Compiles a file under a name that is the same in every checkout, because kernels' hashes depend on the name."""
    name = canonical_name(project, path)
    source = importlib.util.decode_source(content)
    _states[project].sources[name] = source
    give_to_inspect(name, source)
    return compile(content, name, "exec", dont_inherit=True)


def give_to_inspect(name: str, source: str) -> None:
    """Sets the source that inspect returns for a file name. cuTile reads kernels through inspect."""
    # No time stamp, so that inspect does not compare the source with a file on disk.
    # Not `splitlines`, which also ends lines at form feeds and other characters where Python ends none.
    linecache.cache[name] = (len(source), None, io.StringIO(source).readlines(), name)


_get_code = importlib.machinery.SourceFileLoader.get_code


def _get_code_of_checkout(loader: importlib.machinery.SourceFileLoader, fullname: str) -> types.CodeType | None:
    """Returns a module's code, compiled by `compile_file` if the module is of the active checkout."""
    path = os.path.abspath(loader.get_filename(fullname))
    if not _active or not _is_own(_active[0], fullname, path):
        return _get_code(loader, fullname)
    _states[_active[0]].loaded.add(path)
    code: types.CodeType = compile_file(_active[0], path, loader.get_data(path))
    return code


# A finder would not be enough: host code may load a file by its path (importlib.util.spec_from_file_location).
importlib.machinery.SourceFileLoader.get_code = _get_code_of_checkout  # type: ignore[assignment, method-assign]


def own_modules(project: Project) -> Iterator[tuple[str, types.ModuleType]]:
    """Yields the checkout's imported modules with their names in sys.modules."""
    for name, module in list(sys.modules.items()):
        # Some libraries put objects into sys.modules that are not modules and have every attribute.
        if isinstance(module, types.ModuleType) and any(
            _is_own(project, name, place) for place in _list_places(vars(module))
        ):
            yield name, module


def _is_own(project: Project, name: str, place: str) -> bool:
    """Returns whether a module belongs to the checkout. Packages installed inside the checkout do not belong to it."""
    if name.partition(".")[0] == "tilewatch" or not place.startswith(f"{project.root}/"):
        return False
    return not any(folder in INSTALLED for folder in place.removeprefix(str(project.root)).split("/"))


def _list_places(names: dict[str, Any]) -> Iterator[str]:
    """Yields a module's file and package folders. `names` are the module's variables."""
    if names.get("__file__"):
        yield str(names["__file__"])
    yield from map(str, names.get("__path__") or ())


def hash_sources(project: Project) -> str:
    """Returns a hash of all files imported from the checkout. Comments do not change it."""
    digest = hashlib.sha256()
    files = {str(module.__file__) for _, module in own_modules(project) if getattr(module, "__file__", None)}
    for file in sorted(files | _states[project].loaded):
        tree = _hash_tree(file)
        digest.update(f"{file.removeprefix(str(project.root))}\0{tree}\0".encode())
    return digest.hexdigest()


@functools.cache
def _hash_tree(file: str) -> str:
    content = Path(file).read_bytes()
    return hashlib.sha256(ast.dump(ast.parse(content)).encode() if file.endswith(".py") else content).hexdigest()


def remember_globals(project: Project) -> None:
    """Saves the dicts, lists and sets in the checkout's modules and classes. Call this after all imports."""
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
    """Restores the saved contents and empties functools caches, so that host code searches for a config again."""
    for container, content in _states[project].containers:
        # Not compared first: it may hold tensors, and comparing those does not give a bool.
        container.clear()
        container.extend(content) if isinstance(container, list) else container.update(content)
    for _, module in own_modules(project):
        for value in list(vars(module).values()):
            if isinstance(value, functools._lru_cache_wrapper):
                value.cache_clear()
