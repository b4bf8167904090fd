"""Computes the results of CuPy's functions with NumPy. Values are known only if all inputs have known values."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tilewatch.kernels.watching.cuda_stand_ins.array import METHODS, keep, ndarray, new
from tilewatch.kernels.watching.device_array import describe_array, is_array
from tilewatch.kernels.watching.meta_tensors import MOST_VALUES
from tilewatch.kernels.watching.tracer import TracingError

VIEWS = "reshape transpose swapaxes ravel squeeze expand_dims broadcast_to moveaxis atleast_1d atleast_2d split"
VIEWS += " array_split flip diagonal broadcast_arrays"
BY_VALUES = "nonzero unique flatnonzero argwhere array_equal allclose bincount histogram extract"
METHODS_OF_NUMPY = (
    "sum mean max min prod any all argmax argmin std var cumsum cumprod round clip dot repeat take nonzero"
)

SMALL_SIZES = (11, 13, 17, 19, 23, 29)
"""Sizes of the small arrays: each stands for a size of the large ones. In a result, other sizes over 10 are refused."""


def call(name: str, *args: Any, out: Any = None, **named: Any) -> Any:
    """Returns the result of NumPy's function `name`. Its values are known only if all arrays have known values."""
    given = _list_arrays((args, tuple(named.values())))
    known, is_small = all(each.has_values for each in given), sum(each.size for each in given) <= MOST_VALUES
    if name in BY_VALUES.split() and not known:
        read = partial(_map, lambda each: each.read(name) if isinstance(each, ndarray) else each)
        return _wrap(getattr(np, name)(*read(args), **read(named)), (), known=False)
    if name in VIEWS.split() or known or is_small:
        # Without values, the views are of zeros, and only the shape and type of the result count.
        with np.errstate(all="ignore"):
            made = getattr(np, name)(*_map(_get_view, args), **_map(_get_view, named))
        found = _wrap(made, given, known=known)
    elif name == "concatenate":
        found = _concatenate(*args, **named)
    else:
        found = _call_shrunk(name, args, named)  # NumPy would touch the memory of large arrays
    if out is None:
        return found
    out[...] = found
    return out


def _get_view(value: Any) -> Any:
    return value.view_ if isinstance(value, ndarray) else value


def _map(function: Callable[[Any], Any], value: Any) -> Any:
    if type(value) in (list, tuple):
        return type(value)(_map(function, each) for each in value)
    if type(value) is dict:
        return {name: _map(function, each) for name, each in value.items()}
    return function(value)


def _list_arrays(value: Any) -> list[ndarray]:
    if isinstance(value, list | tuple):
        return [each for one in value for each in _list_arrays(one)]
    return [value] if isinstance(value, ndarray) else []


def _wrap(made: Any, given: Sequence[ndarray], *, known: bool) -> Any:
    """Returns a NumPy result with its arrays converted to `ndarray`. Views share memory with the arrays in `given`."""
    if isinstance(made, list | tuple):
        return type(made)(_wrap(each, given, known=known) for each in made)
    if not isinstance(made, np.ndarray | np.generic):
        return made
    owner = next((each for each in given if np.may_share_memory(made, each.view_)), None)
    return keep(np.asarray(made), known=known) if owner is None else ndarray(of=(made, owner.memory))


def _reshape(array: ndarray, *shape: Any, order: str = "C") -> Any:
    sizes = shape[0] if len(shape) == 1 else shape
    try:
        return ndarray(of=(array.view_.reshape(sizes, order=order, copy=False), array.memory))
    except ValueError:  # it needs a copy, or the sizes do not fit
        if array.size <= MOST_VALUES:
            return keep(array.view_.reshape(sizes, order=order), known=array.has_values)
    return new(np.broadcast_to(False, (array.size,)).reshape(sizes).shape, array.dtype)


def _call_shrunk(name: str, args: Any, named: Any) -> Any:
    """Returns a new array with the shape and type of NumPy's result, which is computed on small arrays."""
    sizes = sorted({size for each in _list_arrays((args, tuple(named.values()))) for size in each.shape if size > 1})
    small = dict(zip(sizes, SMALL_SIZES, strict=False))
    large = {value: size for size, value in small.items()} | {1: 1}

    def shrink(value: Any) -> Any:
        if not isinstance(value, ndarray):
            return value
        shape = [small.get(size, size) for size in value.shape]
        return np.asarray(np.ones(shape, value.dtype), order=_find_order([value]))  # type: ignore[call-overload]

    def grow(made: Any) -> Any:
        if isinstance(made, tuple):
            return tuple(map(grow, made))
        # `stack` makes a dimension of the number of arrays, which is smaller than all of SMALL_SIZES.
        shape = [size if size < SMALL_SIZES[0] else large.get(size) for size in np.shape(made)]
        if None in shape or len(sizes) > len(SMALL_SIZES):
            raise TracingError(
                f"without a GPU, Tilewatch's stand-in for CuPy computes {name} of at most {MOST_VALUES:,} elements"
            )
        is_turned = isinstance(made, np.ndarray) and made.flags.f_contiguous and not made.flags.c_contiguous
        return new(shape, np.asarray(made).dtype, "F" if is_turned else "C")

    with np.errstate(all="ignore"):
        return grow(getattr(np, name)(*_map(shrink, args), **_map(shrink, named)))


def _find_order(arrays: Sequence[ndarray]) -> str:
    return "F" if arrays and all(each.flags.f_contiguous and not each.flags.c_contiguous for each in arrays) else "C"


def _concatenate(arrays: Sequence[ndarray], axis: int = 0) -> Any:
    shape = list(arrays[0].shape)
    shape[axis] = sum(each.shape[axis] for each in arrays)
    return new(shape, np.result_type(*(each.dtype for each in arrays)))


def array(values: Any, dtype: Any = None, copy: bool = True, order: str = "K") -> ndarray:
    """Returns an array with these values. From another library's array, only the shape, strides and type are kept."""
    if is_array(values) and not isinstance(values, ndarray | np.ndarray):
        described = describe_array(values)
        kind = np.dtype(described.dtype)
        memory = new(described.memory_bytes // kind.itemsize, kind)
        start = (described.address - described.memory) // kind.itemsize
        steps = [each * kind.itemsize for each in described.strides]
        strided = np.lib.stride_tricks.as_strided(memory.view_[start:], described.shape, steps)
        values = ndarray(of=(strided, memory.memory))
        copy = False
    if isinstance(values, list | tuple) and _list_arrays(values):
        values = call("stack", values)
    if isinstance(values, ndarray):
        return _cast(values, dtype or values.dtype, order, copy)
    return keep(np.array(values, dtype, order=order), known=True)  # type: ignore[call-overload]


def _cast(array: ndarray, dtype: Any, order: str = "K", copy: bool = True) -> ndarray:
    kind = np.dtype(dtype)
    wanted = _find_order([array]) if order == "K" else order
    if not copy and kind == array.dtype and (order == "K" or array.flags[f"{order}_CONTIGUOUS"]):
        return array
    made = new(array.shape, kind, wanted, fill=0 if array.has_values else None)
    made[...] = array
    return made


def asarray(values: Any, dtype: Any = None, order: str = "K") -> ndarray:
    return array(values, dtype, copy=False, order=order)


def _fill(fill: Any, shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return new(shape, dtype, order, fill)


def _fill_like(fill: Any, given: ndarray, dtype: Any = None, order: str = "K", shape: Any = None) -> ndarray:
    chosen = _find_order([given]) if order == "K" else order
    return new(given.shape if shape is None else shape, dtype or given.dtype, chosen, fill)


def _full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C") -> ndarray:
    return new(shape, dtype or np.asarray(fill_value).dtype, order, fill_value)


def _view(array: ndarray, dtype: Any = None, *_: Any) -> ndarray:
    return ndarray(of=(array.view_.view(dtype or array.dtype), array.memory))


def _transpose(array: ndarray, *axes: Any) -> ndarray:
    order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
    return ndarray(of=(array.view_.transpose(order), array.memory))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: partial(_fill, fill) for name, fill in (("empty", None), ("zeros", 0), ("ones", 1))},
    **{f"{name}_like": partial(_fill_like, fill) for name, fill in (("empty", None), ("zeros", 0), ("ones", 1))},
    **{
        "full": _full,
        "full_like": lambda given, fill_value, *args, **named: _fill_like(fill_value, given, *args, **named),
    },
    **{"array": array, "asarray": asarray, "asanyarray": asarray, "from_dlpack": asarray, "reshape": _reshape},
    "copy": lambda given, *_, **__: _cast(given, given.dtype),
    "ascontiguousarray": lambda given, dtype=None: asarray(given, dtype, "C"),
    "asnumpy": lambda values, *_, **__: values.get() if isinstance(values, ndarray) else np.asarray(values),
}
"""Maps names of CuPy's functions to functions, where calling NumPy's function of that name is not enough."""

METHODS |= {name: partial(call, name) for name in f"{VIEWS} {METHODS_OF_NUMPY}".split()}
METHODS |= {"astype": _cast, "view": _view, "transpose": _transpose, "reshape": _reshape, "copy": FUNCTIONS["copy"]}
METHODS["flatten"] = lambda given: call("copy", given).reshape(-1)

_OPERATORS = (
    "add:add sub:subtract mul:multiply truediv:divide floordiv:floor_divide mod:remainder pow:power and:bitwise_and"
)
_OPERATORS += " or:bitwise_or xor:bitwise_xor lshift:left_shift rshift:right_shift matmul:matmul eq:equal ne:not_equal"
_OPERATORS += " lt:less le:less_equal gt:greater ge:greater_equal neg:negative abs:absolute invert:invert"
for _name, _function in (each.split(":") for each in _OPERATORS.split()):
    setattr(ndarray, f"__{_name}__", lambda self, *others, _of=_function: call(_of, self, *others))
    setattr(ndarray, f"__r{_name}__", lambda self, other, _of=_function: call(_of, other, self))
    setattr(ndarray, f"__i{_name}__", lambda self, other, _of=_function: call(_of, self, other, out=self))
