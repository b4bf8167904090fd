"""Matches a kernel's parameters with the values in its library file, in the same way as ct.launch."""

import math
from dataclasses import dataclass
from typing import Any

from tilewatch.kernels.contract import Array, Config, Kernel, Problem

INT32_MAX = 2**31 - 1


class BadArguments(ValueError):
    """Raised if the values in a library file do not fit the kernel's parameters."""


@dataclass(frozen=True)
class Scalar:
    """A number that the kernel gets at each launch. `dtype` is the cuTile type that ct.launch gives it."""

    name: str
    value: int | float
    dtype: str


@dataclass(frozen=True)
class Constant:
    name: str
    value: int | float


Argument = Array | Scalar | Constant


def arguments(kernel: Kernel, problem: Problem, config: Config) -> tuple[Argument, ...]:
    """Returns the value of each parameter, in the kernel's order. Raises BadArguments if the values do not fit."""
    arrays, constants = list(kernel.arrays(problem)), list(kernel.constants(problem, config))
    scalars = dict(kernel.scalars(problem, config)) if kernel.scalars else {}
    given: list[Argument] = []
    annotated = kernel.entry._annotated_function  # the only way to annotations that are texts (cuda-tile 1.7)
    parameters = list(zip(annotated.pysig.parameters, annotated.parameter_annotations, strict=True))
    plain = [name for name, annotation in parameters if name not in scalars and not _is_constant(annotation)]
    for name, annotation in parameters:
        if name in scalars:
            if _is_constant(annotation):
                raise BadArguments(f"parameter '{name}' is a ct.Constant: give it in `constants`, not in `scalars`")
            given.append(_make_scalar(name, scalars.pop(name), annotation))
        elif _is_constant(annotation):
            if not constants:
                raise BadArguments(f"parameter '{name}' is a ct.Constant, but `constants` has no value for it")
            given.append(_make_constant(name, constants.pop(0)))
        elif arrays:
            if getattr(annotation, "array", None) is not None or getattr(annotation, "list", None) is not None:
                raise BadArguments(f"parameter '{name}' has an annotation of arrays or lists, which is not supported")
            given.append(arrays.pop(0))
        elif constants:
            names = [array.name for array in kernel.arrays(problem)]
            unnamed = next(each for each in plain if each not in names)
            raise BadArguments(
                f"parameter '{unnamed}' gets a constant but is no ct.Constant, so ct.launch would make it a "
                "run-time scalar: annotate it in the kernel, or give it in `scalars`"
            )
        else:
            raise BadArguments(f"parameter '{name}' gets nothing: `arrays` and `constants` have too few values")
    if arrays or constants or scalars:
        left = [f"array '{array.name}'" for array in arrays] + [f"constant {value!r}" for value in constants]
        left += [f"scalar '{name}'" for name in scalars]
        raise BadArguments(f"no parameter of the kernel is left for {', '.join(left)}")
    return tuple(given)


def _make_constant(name: str, value: object) -> Constant:
    if not isinstance(value, int | float):
        raise BadArguments(
            f"the constant of parameter '{name}' is {value!r}, a {type(value).__name__}; expected int, float or bool "
            "(for a type, give a number and let the kernel choose by it)"
        )
    return Constant(name, value)


def _is_constant(annotation: Any) -> bool:
    return bool(getattr(annotation, "constant", False))


def _make_scalar(name: str, value: object, annotation: Any) -> Scalar:
    """Returns a scalar with the type that ct.launch would give it."""
    wide = getattr(annotation, "scalar", None)
    dtype = "float32" if isinstance(value, float) else "int32" if wide is None else wide.dtype.name
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadArguments(f"scalar '{name}' is {value!r}, a {type(value).__name__}; only int and float are supported")
    if dtype == "int32" and not -INT32_MAX - 1 <= value <= INT32_MAX:
        raise BadArguments(f"scalar '{name}' is {value}, which is no int32; annotate the parameter as ct.ScalarInt64")
    if not math.isfinite(value):
        raise BadArguments(f"scalar '{name}' is {value}; expected a finite number")
    return Scalar(name, value, dtype)
