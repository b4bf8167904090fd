"""Reads `[tool.tilewatch]` of a checkout, and keeps the modules of several checkouts apart in one process.

Two commits of one repository have modules with equal names, so only one checkout is active at a time. Its folders are
on the import path, and its modules in sys.modules. The folders and modules of the other checkouts are set aside."""

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
    """A checkout whose watch files are loaded. `root` is its top folder. `path` lists the folders from which Python
    imports the checkout's packages.

    `arch` is the GPU architecture that host code sees when imported and run, or None if it sees this machine's GPU."""

    root: Path
    path: tuple[Path, ...]
    arch: str | None = None


@dataclass
class _State:
    """Holds a checkout's state while another checkout is active. `sources` maps file names without the checkout's
    folder to source texts. `loaded` are the imported files, also of modules that sys.modules lacks."""

    launch: Any
    path: list[str]
    sources: dict[str, str] = field(default_factory=dict)
    modules: dict[str, types.ModuleType] = field(default_factory=dict)
    containers: list[tuple[Any, Any]] = field(default_factory=list)
    loaded: set[str] = field(default_factory=set)


_states: dict[Project, _State] = {}
_active: list[Project] = []


def find_project(library: Path, arch: str | None) -> Project | None:
    """Returns the checkout that contains a watch folder, or None if no pyproject.toml above the folder has a table
    [tool.tilewatch]. Raises BadProject if that table cannot be used."""
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
    """Returns the last line of an error in the checkout, such as "src/ops.py, line 7"; "" if it has no line there."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename.startswith(f"{CANONICAL}/")]
    return f"{frames[-1].filename.removeprefix(f'{CANONICAL}/')}, line {frames[-1].lineno}" if frames else ""


def compile_file(project: Project, path: str, content: bytes) -> Any:
    """Returns a file's code, compiled under a file name that does not depend on the checkout's folder.

    A kernel's code hash includes the file name that its bytecode contains. If this name had the checkout's folder in
    it, a kernel would have another hash in each checkout."""
    name = canonical_name(project, path)
    source = importlib.util.decode_source(content)
    _states[project].sources[name] = source
    give_to_inspect(name, source)
    return compile(content, name, "exec", dont_inherit=True)


def give_to_inspect(name: str, source: str) -> None:
    """Sets the source that inspect returns for a file name, because cuTile reads a kernel's source through inspect. The
    source has no time stamp, so inspect does not compare it with a file on disk."""
    # Not `splitlines`, which also ends lines at form feeds and other characters where Python ends none.
    linecache.cache[name] = (len(source), None, io.StringIO(source).readlines(), name)


_get_code = importlib.machinery.SourceFileLoader.get_code


def _get_code_of_checkout(loader: importlib.machinery.SourceFileLoader, fullname: str) -> types.CodeType | None:
    """Returns a module's code, compiled by `compile_file` if the module belongs to the active checkout. Replaces the
    method of Python's loader, because host code may load a file by its path: importlib.util.spec_from_file_location."""
    path = os.path.abspath(loader.get_filename(fullname))
    if not _active or not _is_own(_active[0], fullname, path):
        return _get_code(loader, fullname)
    _states[_active[0]].loaded.add(path)
    code: types.CodeType = compile_file(_active[0], path, loader.get_data(path))
    return code


importlib.machinery.SourceFileLoader.get_code = _get_code_of_checkout  # type: ignore[assignment, method-assign]


def own_modules(project: Project) -> Iterator[tuple[str, types.ModuleType]]:
    """Yields the imported modules of the checkout, including watch files, with their names in sys.modules. Yields a
    module with several names once per name."""
    for name, module in list(sys.modules.items()):
        # Some libraries put objects into sys.modules that are not modules and have every attribute.
        if isinstance(module, types.ModuleType) and any(
            _is_own(project, name, place) for place in _list_places(vars(module))
        ):
            yield name, module


def _is_own(project: Project, name: str, place: str) -> bool:
    """Returns whether a module belongs to the checkout. Packages of a virtual environment inside the checkout do not
    belong to it, and neither does Tilewatch itself."""
    if name.partition(".")[0] == "tilewatch" or not place.startswith(f"{project.root}/"):
        return False
    return not any(folder in INSTALLED for folder in place.removeprefix(str(project.root)).split("/"))


def _list_places(names: dict[str, Any]) -> Iterator[str]:
    """Yields the file and the package folders of a module from `names`, the module's variables."""
    if names.get("__file__"):
        yield str(names["__file__"])
    yield from map(str, names.get("__path__") or ())


def hash_sources(project: Project) -> str:
    """Returns a hash of the syntax trees of all files imported from the checkout, without comments and line numbers."""
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
    """Saves the contents of dicts, lists and sets in the checkout's modules and classes. Call it after all imports."""
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
    """Restores the contents that `remember_globals` saved, and empties the caches of functions.

    Host code may keep the config that it found for a shape, and would then not search again in a second run."""
    for container, content in _states[project].containers:
        # Not compared first: it may hold tensors, and comparing those does not give a bool.
        container.clear()
        container.extend(content) if isinstance(container, list) else container.update(content)
    for _, module in own_modules(project):
        for value in list(vars(module).values()):
            if isinstance(value, functools._lru_cache_wrapper):
                value.cache_clear()
