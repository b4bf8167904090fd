"""Defines arrays like CuPy's for machines without a GPU. Untouched memory takes no space.

The values of an array are known only if host code wrote them and no kernel got the array in the current run."""

import mmap
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from tilewatch.kernels.watching.cuda_stand_ins.modules import find_run
from tilewatch.kernels.watching.meta_tensors import MOST_VALUES
from tilewatch.kernels.watching.tracer import TracingError, guess_value

MAP_NORESERVE = 0x4000
"""Flag of mmap without which Linux refuses memory larger than the machine's. Python 3.11 has no name for it."""

METHODS: dict[str, Callable[..., Any]] = {}
"""Methods of arrays by name. numpy_functions.py fills this mapping."""


class NoValues(TracingError):
    """Raised if host code needs the values of an array, but the values are unknown."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the host code needs the values of an array ({what}): without a GPU an array has them if it was made of "
            f"known values, with at most {MOST_VALUES:,} elements, and if no kernel was given it"
        )


class _Memory:
    """An allocation. `known` says whether its bytes have the values that they would have on a GPU."""

    def __init__(self, nbytes: int, *, known: bool) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
        self.bytes = np.frombuffer(mmap.mmap(-1, max(1, nbytes), flags=flags), np.uint8)
        self.known, self.given_in_run = known, -1

    @property
    def has_values(self) -> bool:
        return self.known and self.given_in_run != find_run()


class ndarray:
    """An array that is a strided view of reserved memory."""

    __array_priority__ = 100  # NumPy leaves an operation with it to this class

    def __init__(self, shape: Any = (), dtype: Any = float, *, of: "tuple[Any, _Memory] | None" = None) -> None:
        found: tuple[Any, _Memory] = new(shape, dtype).parts if of is None else of
        self.view_, self.memory = found

    parts = property(lambda self: (self.view_, self.memory))
    T = property(lambda self: ndarray(of=(self.view_.T, self.memory)))
    has_values = property(lambda self: self.memory.has_values)

    def __getattr__(self, name: str) -> Any:
        if name in ("shape", "dtype", "ndim", "size", "nbytes", "itemsize", "strides", "flags"):
            return getattr(self.view_, name)
        if name in METHODS:
            return lambda *args, **named: METHODS[name](self, *args, **named)
        raise AttributeError(name)

    @property
    def base(self) -> "ndarray | None":
        """Returns the whole allocation that contains this array, or None if the array fills it."""
        whole = self.memory.bytes
        return None if self.nbytes == whole.nbytes else ndarray(of=(whole, self.memory))

    @property
    def data(self) -> Any:
        """Returns an object with the array's address in `ptr`, like CuPy's MemoryPointer."""
        return SimpleNamespace(ptr=self.view_.ctypes.data)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.view_.__array_interface__, "strides": self.strides, "version": 3, "stream": 1}

    def give_to_kernel(self) -> "ndarray":
        """Returns the array after marking its values as unknown for this run, because a kernel may change them."""
        self.memory.given_in_run = find_run()
        return self

    def read(self, what: str) -> np.ndarray:
        """Returns the values, guessed if they are unknown. Raises NoValues if guessing is not allowed."""
        if not self.has_values:
            return np.broadcast_to(np.array(guess_value(NoValues(what))).astype(self.dtype), self.shape)
        values: np.ndarray = self.view_
        return values

    def get(self, *_: Any, out: Any = None, **__: Any) -> np.ndarray:
        """Returns the values as a NumPy array. A large array of guessed values is read-only."""
        values = self.read("get")
        if out is not None:
            out[...] = values
            return out  # type: ignore[no-any-return]
        return values.copy() if values.size <= MOST_VALUES else values  # a copy of large guesses might not fit

    def fill(self, value: Any, *_: Any) -> None:
        self[...] = value

    set = fill

    def item(self, *place: int) -> Any:
        return self.read("item").item(*place)

    def tolist(self) -> Any:
        return self.read("tolist").tolist()

    def __format__(self, form: str) -> str:
        return format(self.item() if form else repr(self), form)

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("an array of the GPU becomes NumPy's by `.get()` alone")

    def __len__(self) -> int:
        return len(self.view_)

    def __iter__(self) -> Iterator["ndarray"]:
        return (self[each] for each in range(len(self)))

    def __getitem__(self, index: Any) -> "ndarray":
        places = _read_index(index)
        found = self.view_[places]
        if not isinstance(found, np.ndarray):  # one element, which CuPy leaves on the GPU
            found = self.view_[(*(places if isinstance(places, tuple) else (places,)), ...)]
        if np.may_share_memory(found, self.view_):
            return ndarray(of=(found, self.memory))
        return keep(found, known=self.has_values)  # a copy, by an index of numbers or booleans

    def __setitem__(self, index: Any, value: Any) -> None:
        """Writes values to a part of the array. Unknown values make the whole allocation unknown."""
        source = value if isinstance(value, ndarray) else None
        if self.has_values and (source is None or source.has_values):
            self.view_[_read_index(index)] = value if source is None else source.view_
        else:
            self.memory.known = False

    def __repr__(self) -> str:
        return f"ndarray({self.shape}, {self.dtype})"


for _name in ("bool", "int", "float", "index", "complex"):
    setattr(ndarray, f"__{_name}__", lambda self, name=f"__{_name}__": getattr(self.read(name), name)())


def new(shape: Any, dtype: Any = float, order: str = "C", fill: Any = None) -> ndarray:
    """Returns a new array. Its values are known if `fill` is given and the array is small."""
    sizes = (int(shape),) if isinstance(shape, int | np.integer) else tuple(map(int, shape))
    kind = np.dtype(float if dtype is None else dtype)
    count = int(np.prod(sizes, dtype=np.int64))
    memory = _Memory(count * kind.itemsize, known=fill is not None and count <= MOST_VALUES)
    flat = memory.bytes[: count * kind.itemsize].view(kind)
    if memory.known and fill != 0:
        flat[...] = fill
    return ndarray(of=(flat.reshape(sizes, order="F" if order == "F" else "C"), memory))


def keep(values: np.ndarray, *, known: bool) -> ndarray:
    """Returns a new array with the shape and type of a NumPy array. Copies the values if they are known and few."""
    made = new(values.shape, values.dtype, order="C" if values.flags.c_contiguous else "F", fill=0 if known else None)
    if made.memory.known:
        made.view_[...] = values
    return made


def _read_index(index: Any) -> Any:
    """Returns an index with NumPy arrays in place of this module's arrays."""
    if isinstance(index, tuple):
        return tuple(map(_read_index, index))
    return index.read("as an index") if isinstance(index, ndarray) else index
