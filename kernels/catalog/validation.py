"""Finds mistakes in a library file before it is compiled. Every message names the file and the kernel."""

import ast
import difflib
import functools
import inspect
import linecache
import math
from collections.abc import Callable, Mapping
from typing import Any

import cuda.tile as ct

from tilewatch.kernels.baselines.names import NAMES
from tilewatch.kernels.catalog.loading import LibraryKernel
from tilewatch.kernels.contract import MOST_CONFIGS, Array, Config, Problem, ShortList, Space
from tilewatch.kernels.library_errors import LibraryError
from tilewatch.text import is_name

Configs = tuple[Config, ...]


def validate_kernel(loaded: LibraryKernel) -> None:
    """Raises LibraryError if a problem or baseline of the kernel is wrong."""
    for problem in loaded.kernel.problems:
        if not isinstance(problem, Problem):
            raise _make_error(
                loaded,
                f"`problems` holds {problem!r}, a {_name_type(problem)}; expected Problem, as `parse` returns it",
            )
    for name in loaded.kernel.baselines:
        if name not in NAMES:
            near = difflib.get_close_matches(str(name), NAMES, n=1, cutoff=0.5)
            hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(NAMES)}"
            raise _make_error(loaded, f"there is no baseline '{name}'; {hint}")


def read_space(loaded: LibraryKernel, arch: str) -> Space:
    """Returns the kernel's configs for an architecture as a Space. Raises LibraryError if there are too many."""
    space = call(loaded, "space", arch)
    if not isinstance(space, Space):
        raise _make_error(
            loaded, f'`space` gives a {_name_type(space)}; expected a Space, e.g. Space((("tile", (64, 128)),))'
        )
    for axis in space.axes:
        if not (isinstance(axis, tuple) and len(axis) == 2 and isinstance(axis[0], str) and isinstance(axis[1], tuple)):
            raise _make_error(
                loaded, f'`space` has the axis {axis!r}; expected a name and a tuple, e.g. ("tile", (64, 128))'
            )
        for value in axis[1]:
            if not isinstance(value, int):
                raise _make_error(
                    loaded, f"axis '{axis[0]}' has the value {value!r}, a {_name_type(value)}; expected integers"
                )
    if space.size > MOST_CONFIGS:
        raise _make_error(loaded, f"`space` has {space.size:,} configs; expected {MOST_CONFIGS:,} at most")
    return space


@functools.cache
def list_configs(loaded: LibraryKernel, arch: str) -> Configs:
    """Returns the kernel's configs for an architecture. Raises LibraryError if the kernel's filter fails."""
    space = read_space(loaded, arch)
    try:
        return space.configs()
    except Exception as error:
        raise _make_error(
            loaded, f"`only` of `space` fails: {type(error).__name__}: {error}{_find_line(error)}"
        ) from error


@functools.cache
def split_space(loaded: LibraryKernel, arch: str) -> tuple[Configs, Configs]:
    """Returns the configs on the short list, and all other configs. Without a short list, the second tuple is empty."""
    configs = list_configs(loaded, arch)
    try:
        return split_configs(configs, loaded.kernel.short_lists.get(arch))
    except Exception as error:
        raise _make_error(loaded, f"the short list for {arch}: {type(error).__name__}: {error}") from error


def split_configs(configs: Configs, short_list: ShortList | None) -> tuple[Configs, Configs]:
    """Returns the configs on the short list, and all others. Raises LibraryError if no config is on the short list."""
    if short_list is None or not configs:
        return configs, ()
    listed = tuple(filter(short_list.has, configs))
    if not listed:
        raise LibraryError(f"the short list has none of {len(configs):,} configs")
    return listed, tuple(config for config in configs if config not in listed)


def read_weights(loaded: LibraryKernel, problem: Problem) -> Mapping[str, float]:
    """Maps each language model to how often one step runs the problem. Raises LibraryError if a number is wrong."""
    weights = {} if loaded.kernel.weights is None else call(loaded, "weights", problem)
    if not isinstance(weights, Mapping):
        raise _make_error(loaded, f"`weights` of {problem.name} is a {_name_type(weights)}; expected a dict by model")
    for model, weight in weights.items():
        if not is_name(model) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
            raise _make_error(
                loaded, f"`weights` of {problem.name} has {model!r}: {weight!r}; expected a model and a number over 0"
            )
    return weights


def validate_problem(loaded: LibraryKernel, problem: Problem) -> None:
    """Raises LibraryError if the problem's arrays or outputs are wrong."""
    arrays = call(loaded, "arrays", problem)
    for array in arrays:
        if not isinstance(array, Array):
            raise _make_error(loaded, f"`arrays` holds {array!r}, a {_name_type(array)}; expected Array")
        if not isinstance(getattr(ct, array.dtype, None), type(ct.float32)):
            types = [name for name, value in vars(ct).items() if isinstance(value, type(ct.float32))]
            near = difflib.get_close_matches(array.dtype, types, n=1, cutoff=0.4) or ["float32"]
            raise _make_error(
                loaded, f"array '{array.name}' has the type '{array.dtype}'; expected one of cuTile, e.g. {near[0]}"
            )
        if array.output and array.inout:
            raise _make_error(loaded, f"array '{array.name}' is both `output` and `inout`; expected one of them")
    names = [array.name for array in arrays]
    if len(set(names)) < len(names):
        raise _make_error(loaded, f"two arrays have the same name: {', '.join(names)}")
    written = {array.name for array in arrays if array.written}
    if not written:
        raise _make_error(
            loaded, "no array is an `output` or `inout`, so there is nothing to check against the reference"
        )
    if all(array.output for array in arrays):
        raise _make_error(loaded, "every array is an `output`; expected at least one that is read")
    given = reference_outputs(loaded.kernel.reference)
    if given is not None and given != written:
        raise _make_error(
            loaded, f"`reference` gives {', '.join(sorted(given))}, but the kernel writes {', '.join(sorted(written))}"
        )


def call(loaded: LibraryKernel, field: str, *arguments: Any) -> Any:
    """Calls a function of a library file. Raises LibraryError if it fails."""
    try:
        return getattr(loaded.kernel, field)(*arguments)
    except KeyError as error:
        named = [each.sizes if isinstance(each, Problem) else each for each in arguments]
        names = [name for each in named if isinstance(each, Mapping) for name in each]
        raise _make_error(
            loaded,
            f"`{field}` asks for {error}{_find_line(error)}; its axes and sizes are {', '.join(names)}",
        ) from error
    except Exception as error:
        raise _make_error(loaded, f"`{field}` fails: {type(error).__name__}: {error}{_find_line(error)}") from error


def reference_outputs(reference: Callable[..., Any]) -> set[str] | None:
    """Returns the names of the outputs that a reference computes, or None if its source does not show them."""
    code = getattr(inspect.unwrap(reference), "__code__", None)
    if code is None:
        return None
    nodes = [
        node
        for node in _list_functions("".join(linecache.getlines(code.co_filename)))
        if node.lineno == code.co_firstlineno
        and (node.name if isinstance(node, ast.FunctionDef) else "<lambda>") == code.co_name
        and [each.arg for each in node.args.args] == list(code.co_varnames[: code.co_argcount])
    ]
    if len(nodes) != 1:
        return None
    (node,) = nodes
    results = (
        [node.body]
        if isinstance(node, ast.Lambda)
        else [each.value for each in ast.walk(node) if isinstance(each, ast.Return)]
    )
    names: set[str] = set()
    for result in results:
        if not isinstance(result, ast.Dict):
            return None
        for key in result.keys:
            if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                return None
            names.add(key.value)
    return names or None


@functools.cache
def _list_functions(source: str) -> tuple[ast.Lambda | ast.FunctionDef, ...]:
    """Lists the functions in a library file's source."""
    return tuple(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Lambda | ast.FunctionDef))


def _make_error(loaded: LibraryKernel, sentence: str) -> LibraryError:
    return LibraryError(f"library file {loaded.file}: kernel {loaded.kernel.name}: {sentence}")


def _name_type(value: object) -> str:
    return "text" if isinstance(value, str) else type(value).__name__


def _find_line(error: BaseException) -> str:
    """Returns the line of a library file that raised an error, such as " (line 7)", or ""."""
    trace, line = error.__traceback__, ""
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith("watched_library/"):
            line = f" (line {trace.tb_lineno})"
        trace = trace.tb_next
    return line
