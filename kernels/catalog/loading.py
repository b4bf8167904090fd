"""Loads library files and watch files in a child process. Their bytecode does not depend on the checkout's path."""

import functools
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import sys
import traceback
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tilewatch.errors import ExpectedError
from tilewatch.kernels import contract
from tilewatch.kernels.catalog.forbidden_imports import ALLOWED, ForbiddenImport, refuse_imports
from tilewatch.kernels.catalog.short_lists import read_short_lists
from tilewatch.kernels.contract import Kernel, Problem, ShortList
from tilewatch.kernels.library_errors import LibraryError, PackageMissing
from tilewatch.kernels.project_settings import BadProject
from tilewatch.kernels.watching.configs import PlainConfig
from tilewatch.kernels.watching.declare import DECLARED, BadWatchFile, WatchedOperator
from tilewatch.kernels.watching.no_gpu import as_gpu
from tilewatch.kernels.watching.project import (
    Project,
    activate,
    canonical_name,
    compile_file,
    find_place,
    find_project,
    give_to_inspect,
    hash_sources,
)
from tilewatch.kernels.watching.torch_stand_in.missing import NeedsTorch
from tilewatch.kernels.watching.traced_operator import CompilableLaunch, TracedOperator
from tilewatch.metrics import split_kernel

PACKAGE = "watched_library"
TOTAL = "total"
"""Kernel name under which the weighted totals of models are stored (docs/reference/judging.md)."""
OLD_CONTRACT = "kernels.contract"
"""Name of the contract's module until 2026-11. Library files of old commits import from `kernels.contract`."""
PATH_MISSING = (
    "a watch file may import the repository's own packages from the folders that `path` of [tool.tilewatch] names, and "
    "installed packages"
)


@dataclass(frozen=True, eq=False)
class LibraryKernel:
    """A kernel with the hash and name of its file."""

    kernel: Kernel
    source_sha256: str
    file: str


@dataclass(frozen=True)
class LibraryOperator:
    """An operator from a watch file, with its checkout, file name and short lists."""

    kernel: WatchedOperator
    project: Project
    file: str
    short_lists: Mapping[str, ShortList] = field(default_factory=dict, hash=False)

    @property
    def source_sha256(self) -> str:
        """Returns a hash of all files that were imported from the checkout so far."""
        return hash_sources(self.project)

    def trace(self, problem: Problem) -> TracedOperator:
        """Returns the launches that the host code makes on a problem. Raises LibraryError if the host code fails."""
        try:
            return _trace(self.kernel, self.project, problem.name)
        except Exception as error:
            raise self.describe_failure(f"on {problem.name} cannot be traced", error) from error

    def list_launches(self, traced: TracedOperator, config: PlainConfig) -> tuple[CompilableLaunch, ...]:
        """Returns the launches with one config, ready to compile."""
        try:
            return traced.launches(config)
        except Exception as error:
            raise self.describe_failure(f"with {config} cannot be traced", error) from error

    def describe_failure(self, what: str, error: Exception) -> LibraryError:
        """Returns an error as a LibraryError that names the operator and the line that failed."""
        if isinstance(error, BadWatchFile):
            return LibraryError(f"watch file {error}")
        kind = "" if isinstance(error, ExpectedError) else f"{type(error).__name__}: "
        where = find_place(error)
        place = f" ({where})" if where else ""
        start = f"watch file {self.kernel.place}: {self.kernel.name} {what}"
        return _choose_error(error)(f"{start} for {self.project.arch}: {kind}{error}{place}")


Entry = LibraryKernel | LibraryOperator


@functools.lru_cache(maxsize=64)
def _trace(operator: WatchedOperator, project: Project, problem: str) -> TracedOperator:
    return TracedOperator(operator, project, operator.parse(problem))


@dataclass(frozen=True)
class _Library:
    kernels: dict[str, Entry]
    project: Project | None
    sources: dict[str, str]  # by canonical file name
    failures: tuple[LibraryError, ...]  # one for each file that does not load


_libraries: dict[tuple[Path, str | None], _Library] = {}


class _OldContract(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the contract by its old name `kernels.contract`, for old library files."""

    def find_spec(self, fullname: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        if fullname not in (OLD_CONTRACT, OLD_CONTRACT.partition(".")[0]):
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=fullname != OLD_CONTRACT)

    def exec_module(self, module: types.ModuleType) -> None:
        """Copies the contract's names into the module `kernels.contract`."""
        if module.__name__ == OLD_CONTRACT:
            vars(module).update({name: value for name, value in vars(contract).items() if not name.startswith("__")})


sys.meta_path.append(_OldContract())


def load(library: Path, arch: str | None = None) -> dict[str, Entry]:
    """Returns all kernels of a folder by name, without files that do not load. Raises LibraryError if no file loads."""
    # watch files load once per architecture, because host code may look at the GPU during import
    loaded = _load_once(library, arch)
    activate(loaded.project)
    if loaded.failures and not loaded.kernels:
        raise join_failures(loaded.failures)
    # all commits' files have equal names, and cuTile takes a kernel's source from inspect by name
    for name, source in loaded.sources.items():
        give_to_inspect(name, source)
    return loaded.kernels


def find(library: Path, kernel: str, arch: str | None = None) -> Entry:
    """Returns a kernel of a folder. Raises LibraryError if the folder has no such kernel."""
    kernels = load(library, arch)
    if kernel not in kernels:
        failures = list_failures(library, arch)
        raise join_failures((LibraryError(f"there is no kernel '{kernel}' in {library}"), *failures))
    return kernels[kernel]


def list_failures(library: Path, arch: str | None = None) -> tuple[LibraryError, ...]:
    """Returns an error for each file that cannot be loaded."""
    return _load_once(library, arch).failures


def join_failures(failures: Sequence[LibraryError]) -> LibraryError:
    """Returns one error with all messages."""
    missing = any(isinstance(each, PackageMissing) for each in failures)
    return (PackageMissing if missing else LibraryError)("; ".join(map(str, failures)))


def _load_once(library: Path, arch: str | None) -> _Library:
    library = library.resolve()  # a module belongs to the checkout if its path does
    if (library, arch) not in _libraries:
        _libraries[library, arch] = _read(library, arch)
    return _libraries[library, arch]


def _read(library: Path, arch: str | None) -> _Library:
    files = sorted(path for path in library.glob("*.py") if not path.name.startswith("_"))
    if not files:
        raise LibraryError(f"the library folder {library} holds no watch file and no library file (*.py)")
    try:
        project = find_project(library, arch)
    except BadProject as error:
        raise LibraryError(str(error)) from None
    activate(project)
    lists = read_short_lists(library)
    found: dict[str, Entry] = {}
    sources: dict[str, str] = {}
    failures: list[LibraryError] = []
    for path in files:
        content = path.read_bytes()
        name = f"{PACKAGE}/{path.name}" if project is None else canonical_name(project, str(path))
        try:
            entries = _run_file(path, name, content, project, lists)
        except LibraryError as error:
            sys.modules.pop(f"{PACKAGE}.{path.stem}", None)  # the file that failed is not part of what was loaded
            failures.append(error)
            continue
        if project is None:
            sources[name] = importlib.util.decode_source(content)
        for entry in entries:
            if not isinstance(entry.kernel.name, str):
                failures.append(LibraryError(f"{path.name}: a kernel's name is {entry.kernel.name!r}; expected text"))
                continue
            of, metric = split_kernel(entry.kernel.name)
            if of == TOTAL or metric != "time":
                what = "the kernel of weighted totals" if of == TOTAL else f"the series of {of}'s spans"
                sentence = f"{path.name}: '{entry.kernel.name}' is {what}; give yours another name"
                failures.append(LibraryError(sentence))
                continue
            if entry.kernel.name in found:
                failures.append(_describe_repetition(found[entry.kernel.name], entry))
                continue
            found[entry.kernel.name] = entry
    return _Library(found, project, sources, tuple(failures))


def _describe_repetition(first: Entry, second: Entry) -> LibraryError:
    places = [f"{each.file}, line {find_first_line(each)}" for each in (second, first)]
    return LibraryError(
        f"library file {places[0]}: {second.kernel.name} is left out: {places[1]} declares the name too; give it "
        "another one (of a function under @watch, set __name__)"
    )


def find_first_line(entry: Entry) -> int:
    """Returns the number of the first line of an operator or kernel in its file."""
    if isinstance(entry, LibraryOperator):
        return entry.kernel.line
    return int(inspect.unwrap(entry.kernel.entry._pyfunc).__code__.co_firstlineno)


def _run_file(
    path: Path, name: str, content: bytes, project: Project | None, lists: Mapping[str, Mapping[str, ShortList]]
) -> tuple[Entry, ...]:
    """Runs a file and returns its kernels or operators. Raises LibraryError if it fails."""
    module = types.ModuleType(f"{PACKAGE}.{path.stem}")
    module.__file__ = name if project is None else str(path)
    kind = "library file" if project is None else "watch file"
    sys.modules[module.__name__] = module
    try:
        if project is None:
            source = importlib.util.decode_source(content)
            refuse_imports(source)
            code = compile(source, name, "exec")
        else:
            code = compile_file(project, str(path), content)
        DECLARED.clear()
        with as_gpu(project):
            exec(code, module.__dict__)  # noqa: S102 - loading code is the task here
    except ForbiddenImport as error:
        raise LibraryError(f"library file {path.name}, line {error.line}: {error}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit() and pytest.skip() too
        sentence = f"{kind} {path.name} does not load: {_describe_error(error, name)}"
        raise _choose_error(error)(sentence) from error
    declared = tuple(DECLARED)
    named = [
        each
        for value in vars(module).values()
        for each in (value if isinstance(value, tuple) else (value,))  # watch_definitions returns several
    ]
    own = Path(str(module.__file__))  # not `path` without a project
    made = [each for each in (*named, *declared) if isinstance(each, WatchedOperator) and each.file == own]
    operators = list(dict.fromkeys(made))
    if operators and project is None:
        raise LibraryError(
            f"watch file {path.name} needs a table [tool.tilewatch] in the pyproject.toml of its repository: it says "
            "where the repository's own packages are imported from (docs/start/your-kernels.md)"
        )
    kernels = getattr(module, "KERNELS", None if not operators else ())
    if not isinstance(kernels, tuple) or not all(isinstance(kernel, Kernel) for kernel in kernels):
        raise LibraryError(
            f"{kind} {path.name} must define KERNELS, a tuple of tilewatch.kernels.contract.Kernel, or operators under "
            "@watch"
        )
    watched = [
        LibraryOperator(each, project, path.name, lists.get(each.name, {})) for each in operators if project is not None
    ]
    if not kernels:
        return tuple(watched)
    digest = hashlib.sha256(content).hexdigest() if project is None else hash_sources(project)
    listed = [replace(each, short_lists={**each.short_lists, **lists.get(each.name, {})}) for each in kernels]
    return (*(LibraryKernel(kernel, digest, path.name) for kernel in listed), *watched)


def _choose_error(error: BaseException) -> type[LibraryError]:
    return PackageMissing if isinstance(error, ModuleNotFoundError | NeedsTorch) else LibraryError


def _describe_error(error: BaseException, name: str) -> str:
    """Returns an error as text, with the lines that failed."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == name]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    places = [] if line is None else [f"line {line}"]
    host_code = find_place(error)
    if host_code and not name.endswith(f"/{host_code.partition(',')[0]}"):
        places.append(host_code)
    sentence = f"{type(error).__name__}: {error}" + (f" ({', through '.join(places)})" if places else "")
    if not isinstance(error, ModuleNotFoundError):
        return sentence
    return f"{sentence}; {ALLOWED}" if name.startswith(PACKAGE) else f"{sentence}; {PATH_MISSING}"
