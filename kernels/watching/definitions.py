"""Watches operators that flashinfer-bench Definition files describe, without a function for each operator.

from tilewatch import watch_definitions

OPERATORS = watch_definitions(
    "**/kernel_definitions/*.json",
    run="**/kernel_solutions/*.json",
    problems={"N": [1, 4096], "D": 4096},
    inputs={"eps": 1e-6},
)
"""

import importlib
import itertools
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tilewatch.kernels.contract import BadProblem, Problem
from tilewatch.kernels.problems.definitions import ENTRY, Definition, TensorSpec, read_definitions, read_workloads
from tilewatch.kernels.problems.problem_files import list_files, read_object
from tilewatch.kernels.problems.reading import WeightedProblem
from tilewatch.kernels.watching.declare import BadWatchFile, Case, WatchedOperator, check_reason
from tilewatch.kernels.watching.inputs import ProblemInputs
from tilewatch.kernels.watching.project import Project, find_project

LANGUAGES = ("cuda-tile", "cutile", "python")
"""Languages of the Solutions that can be traced. Solutions in triton or cuda launch no cuTile kernel."""

REFERENCE = "torch"
"""Name under which a definition's reference is used as a baseline."""

Inputs = Mapping[str, float | Callable[[ProblemInputs], Any]]


def watch_definitions(
    pattern: str,
    *,
    run: str | Mapping[str, Callable[..., Any]],
    problems: str | Mapping[str, int | Sequence[int]],
    inputs: Inputs | None = None,
    baselines: Sequence[str] = (),
    nightly: bool = True,
    not_apart: str = "",
) -> tuple[WatchedOperator, ...]:
    """Watches each operator that has a Definition file and a Solution or callable.

    pattern    Definition files, relative to the top of the repository; ** matches any folders
    run        a pattern of Solution files, whose entry points are files of the repository; or a mapping from names of
               definitions to callables. A definition without a Solution or callable is left out
    problems   values of the axes, of which all combinations are used; or a pattern of Workload files
    inputs     maps the name of an input to a number, or to a function of `p` that makes a tensor. Floating-point
               tensors that it does not name are standard normal
    baselines  "torch" (times the reference itself) or "copy"
    nightly    whether the sweep of each night includes the operators
    not_apart  why the process that runs the host code must also time and check it: see `watch`
    """
    caller = sys._getframe(1)
    file, line = Path(caller.f_globals["__file__"]), caller.f_lineno
    project = find_project(file.parent, None)
    root = file.parent if project is None else project.root
    try:
        definitions = {each.name: each for each in read_definitions(pattern, root)}
        entries = _list_entries(run, root, project) if isinstance(run, str) else run
        watched = {name: each for name, each in definitions.items() if name in entries}
        if not watched:
            raise BadProblem(f"none of {', '.join(definitions)} has a Solution of {' or '.join(LANGUAGES)}")
        listed = read_workloads(problems, root, watched) if isinstance(problems, str) else None
        return tuple(
            WatchedOperator(
                name=name,
                make_case=partial(make_case, definition, entries[name], dict(inputs or {}), tuple(baselines)),
                problems=tuple(
                    WeightedProblem(each, {})
                    for each in (_combine(definition, problems) if listed is None else listed[name])  # type: ignore[arg-type]  # no text here
                ),
                names=None,
                baselines=tuple(baselines),
                configs=None,
                nightly=nightly,
                file=file,
                line=line,
                not_apart=check_reason("not_apart", not_apart),
            )
            for name, definition in watched.items()
        )
    except BadProblem as error:
        raise BadWatchFile(f"{file.name}, line {line}: {error}") from None


def make_case(
    definition: Definition, entry: Callable[..., Any], given: Inputs, baselines: Sequence[str], p: ProblemInputs
) -> Case:
    """Returns the functions that run a definition's operator and its reference on the inputs of one problem."""
    sizes = definition.values(p.problem.sizes)
    made = {each.name: _make_input(definition, each, given, sizes, p) for each in definition.inputs}

    def call_reference() -> Any:
        return load_reference(definition)(
            **{name: value.clone() if hasattr(value, "clone") else value for name, value in made.items()}
        )

    callables = {REFERENCE: call_reference} if REFERENCE in baselines else {}
    return Case(lambda: entry(**made), call_reference, callables, None, 0, None)


def load_reference(definition: Definition) -> Callable[..., Any]:
    """Returns the reference function that a definition contains as source text. Needs PyTorch."""
    names: dict[str, Any] = {"__name__": f"reference of {definition.name}"}
    exec(compile(definition.reference, f"{definition.file.name} (reference)", "exec"), names)  # noqa: S102 - it is code of the commit, as the watch file is
    return names[ENTRY]  # type: ignore[no-any-return]


def _combine(definition: Definition, axes: Mapping[str, int | Sequence[int]]) -> list[Problem]:
    """Returns a problem for each combination of the definition's axes. The last axis varies fastest."""
    for name in definition.free:
        if name not in axes:
            raise BadProblem(f"problems: {definition.name} needs the axis {name}; it has {', '.join(axes)}")
    values = [[value] if isinstance(value := axes[name], int) else list(value) for name in definition.free]
    return [
        definition.make_problem(dict(zip(definition.free, each, strict=True))) for each in itertools.product(*values)
    ]


def _make_input(
    definition: Definition, tensor: TensorSpec, given: Inputs, sizes: Mapping[str, float], p: ProblemInputs
) -> Any:
    """Returns the tensor or number for an input. Raises BadProblem if the watch file lacks a necessary value."""
    if tensor.name in given:
        value = given[tensor.name]
        return value(p) if callable(value) else value
    if tensor.shape is None:
        chosen = p.problem.choices.get(tensor.name)
        number = sizes.get(tensor.name, tensor.default) if chosen is None else float(chosen)
        if number is None:
            raise BadProblem(
                f"{definition.file.name}: the number {tensor.name} has no value; give inputs={{'{tensor.name}': ...}}"
            )
        return bool(number) if tensor.dtype == "bool" else number
    shape = [int(sizes[axis]) for axis in tensor.shape]
    if not tensor.dtype.startswith(("float", "bfloat")):
        raise BadProblem(
            f"{definition.file.name}: the values of {tensor.name}, {tensor.dtype}, have a meaning; "
            f"give inputs={{'{tensor.name}': lambda p: ...}}"
        )
    return p.randn(*shape, dtype=tensor.dtype)


def _list_entries(pattern: str, root: Path, project: Project | None) -> dict[str, Callable[..., Any]]:
    """Maps each definition's name to the function of its first Solution file."""
    entries: dict[str, Callable[..., Any]] = {}
    for file in list_files(pattern, root):
        try:
            row = read_object(file)
            name, language, entry = row["definition"], row["spec"]["language"], row["spec"]["entry_point"]
        except (KeyError, TypeError):
            raise BadProblem(
                f"{file.name}: not a Solution: expected definition, spec.language, spec.entry_point"
            ) from None
        if language in LANGUAGES and name not in entries:
            entries[name] = _import_entry(file, entry, root, project)
    return entries


def _import_entry(file: Path, entry: str, root: Path, project: Project | None) -> Callable[..., Any]:
    source, _, function = entry.partition("::")
    place = root / source
    if not function or not place.is_file():
        raise BadProblem(f"{file.name}: its entry point '{entry}' is not a FILE::FUNCTION of this repository")
    paths = [*(project.path if project is not None else ()), root]
    folder = next(each for each in paths if place.is_relative_to(each))
    module = _import_module(".".join(place.relative_to(folder).with_suffix("").parts), folder)
    found = getattr(module, function, None)
    if not callable(found):
        raise BadProblem(f"{file.name}: {source} has no function {function}")
    return found  # type: ignore[no-any-return]


def _import_module(name: str, folder: Path) -> types.ModuleType:
    """Imports a module. Replaces its parent packages by empty packages if the import fails."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        parts = name.split(".")[:-1]
    for count in range(1, len(parts) + 1):
        package = ".".join(parts[:count])
        if package not in sys.modules:
            module = types.ModuleType(package)
            module.__path__ = [str(folder.joinpath(*parts[:count]))]
            sys.modules[package] = module
    return importlib.import_module(name)
