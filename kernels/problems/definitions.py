"""Reads operators (Definitions) and their problems (Workloads) from files of flashinfer-bench. The format is described
in docs/flashinfer_trace of https://github.com/flashinfer-ai/flashinfer-bench (read 2026-11)."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewatch.kernels.contract import BadProblem, Problem
from tilewatch.kernels.problems.constraints import derive, list_derived
from tilewatch.kernels.problems.names import make_named_problem
from tilewatch.kernels.problems.problem_files import list_files, read_lines, read_object

TYPES = tuple(
    "float32 float16 bfloat16 float8_e4m3fn float8_e5m2 float4_e2m1 int64 int32 int16 int8 bool".split()  # noqa: SIM905
)

FIXED = "fixed"
"""Name of the only problem of an operator whose axes are all constant."""

ENTRY = "run"
"""Name of the function that a reference's source must define."""


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of an operator. `shape` holds the names of its axes, or is None for a Python number."""

    name: str
    shape: tuple[str, ...] | None
    dtype: str
    default: float | None = None


@dataclass(frozen=True)
class Definition:
    """An operator from a Definition file. A problem must give a size for each axis in `free`."""

    name: str
    file: Path
    free: tuple[str, ...]
    constants: Mapping[str, int]
    derived: Mapping[str, str]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    reference: str

    def values(self, given: Mapping[str, float]) -> dict[str, float]:
        """Returns the given values plus constants and derived values. Raises BadProblem for a contradiction."""
        for name, constant in self.constants.items():
            if given.get(name, constant) != constant:
                raise BadProblem(f"{self.file.name}: {name} is {given[name]:g}, but it is the constant {constant}")
        values: dict[str, float] = {**self.constants, **given}
        for name, expression in self.derived.items():
            value = derive(expression, values)
            if name in given and given[name] != value:
                raise BadProblem(
                    f"{self.file.name}: {name} is {given[name]:g}, but {name} == {expression} is {value:g}"
                )
            values[name] = value
        return values

    def make_problem(self, given: Mapping[str, object]) -> Problem:
        """Makes a problem from values by name. Raises BadProblem if a value is missing, unknown or wrong."""
        missing = [name for name in self.free if name not in given]
        if missing:
            raise BadProblem(f"{self.file.name}: axis {missing[0]} has no value; it needs {', '.join(self.free)}")
        known = {*self.free, *self.constants, *self.derived, *(each.name for each in self.inputs)}
        if unknown := [name for name in given if name not in known]:
            raise BadProblem(f"{self.file.name}: there is no axis {unknown[0]}; it has {', '.join(sorted(known))}")
        self.values({name: value for name, value in given.items() if isinstance(value, int | float)})
        if not self.free and not given:
            return Problem(FIXED, {})
        named = {name: value for name, value in given.items() if name not in (*self.constants, *self.derived)}
        return make_named_problem(
            None, {name: repr(value) if isinstance(value, float) else value for name, value in named.items()}
        )


def read_definitions(pattern: str, folder: Path) -> tuple[Definition, ...]:
    """Returns the Definitions in all files that match a pattern. Raises BadProblem if a file is wrong."""
    found = tuple(map(_read_definition, list_files(pattern, folder)))
    names = [each.name for each in found]
    for each in found:
        if names.count(each.name) > 1:
            raise BadProblem(f"{each.file.name}: another file defines {each.name} too")
    return found


def read_workloads(pattern: str, folder: Path, definitions: Mapping[str, Definition]) -> dict[str, list[Problem]]:
    """Returns each definition's problems from Workload files. Raises BadProblem if a line is wrong."""
    found: dict[str, dict[str, Problem]] = {name: {} for name in definitions}
    for place, row in (each for file in list_files(pattern, folder) for each in read_lines(file, file.name)):
        try:
            definition = definitions.get(row.get("definition", ""))
            workload = row.get("workload") or {}
            inputs = workload.get("inputs", {}).items()
            given = {**workload["axes"], **{name: each["value"] for name, each in inputs if each["type"] == "scalar"}}
        except (KeyError, TypeError, AttributeError):
            raise BadProblem(f"{place}: not a workload: expected definition, workload.axes, workload.inputs") from None
        if definition is None:
            continue
        try:
            problem = definition.make_problem(given)
        except BadProblem as error:
            raise BadProblem(f"{place}: {error}") from None
        found[definition.name].setdefault(problem.name, problem)
    return {name: list(problems.values()) for name, problems in found.items()}


def _read_definition(file: Path) -> Definition:
    row = read_object(file)
    try:
        return _make_definition(file, row)
    except BadProblem as error:
        raise BadProblem(f"{file.name}: {error}") from None
    except (TypeError, ValueError, AttributeError, RecursionError, MemoryError) as error:
        raise BadProblem(f"{file.name}: not a Definition: {error}") from None


def _make_definition(file: Path, row: Mapping[str, Any]) -> Definition:
    for name, kind in (("name", str), ("axes", dict), ("inputs", dict), ("outputs", dict), ("reference", str)):
        if not isinstance(row.get(name), kind):
            raise BadProblem(f"'{name}' is missing or is not {'a text' if kind is str else 'an object'}")
    constants, variable = {}, []
    for name, axis in row["axes"].items():
        of_type = axis.get("type") if isinstance(axis, dict) else None
        if of_type == "const" and isinstance(axis.get("value"), int):
            constants[name] = axis["value"]
        elif of_type == "var":
            variable.append(name)
        else:
            raise BadProblem(f"axis {name} is neither var nor a const with a value")
    inputs = tuple(_read_tensors(row["inputs"], row["axes"], _read_defaults(row["reference"])))
    outputs = tuple(_read_tensors(row["outputs"], row["axes"], {}))
    numbers = [each.name for each in inputs if each.shape is None]
    derived = list_derived(row.get("constraints") or (), (*variable, *numbers), {*row["axes"]})
    free = tuple(name for name in variable if name not in derived)
    return Definition(row["name"], file, free, constants, derived, inputs, outputs, row["reference"])


def _read_tensors(
    specs: Mapping[str, Any], axes: Mapping[str, Any], defaults: Mapping[str, float | None]
) -> Iterator[TensorSpec]:
    for name, spec in specs.items():
        if not isinstance(spec, dict) or "shape" not in spec:
            raise BadProblem(f"{name} has no shape")
        if spec.get("dtype") not in TYPES:
            raise BadProblem(f"{name} has the type {spec.get('dtype')!r}; expected one of {', '.join(TYPES)}")
        for axis in spec["shape"] or ():
            if axis not in axes:
                raise BadProblem(f"{name} has the axis {axis!r}; the definition's axes are {', '.join(axes)}")
        shape = None if spec["shape"] is None else tuple(spec["shape"])
        yield TensorSpec(name, shape, spec["dtype"], defaults.get(name))


def _read_defaults(reference: str) -> dict[str, float | None]:
    """Returns the numeric defaults of the parameters of `run` in the reference's source, by parameter name."""
    try:
        tree = ast.parse(reference)
    except SyntaxError as error:
        raise BadProblem(f"line {error.lineno} of the reference is not Python: {error.msg}") from None
    run = next((each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == ENTRY), None)
    if run is None:
        raise BadProblem(f"the reference has no function {ENTRY}")
    arguments = (*run.args.posonlyargs, *run.args.args)
    with_default = arguments[len(arguments) - len(run.args.defaults) :]
    return {
        argument.arg: default.value
        for argument, default in zip(with_default, run.args.defaults, strict=True)
        if isinstance(default, ast.Constant) and isinstance(default.value, int | float)
    }
