"""A library of probes: each shows the meaning of one cuTile operation, in the interpreter and on a GPU.

Each probe is a kernel like those of the library, with NumPy's result as its reference."""

from collections.abc import Callable, Mapping
from typing import Any

import cuda.tile as ct
import numpy as np

from tilewatch.kernels.contract import Array, Kernel, Problem, Space

SIDE = 64


@ct.kernel
def convert(x, half, brain, eight, tensor, integer):
    """Converts with rounding to nearest: ties, subnormals, overflow. Conversion to an integer truncates."""
    tile = ct.load(x, index=(0, 0), shape=(64, 64))
    ct.store(half, index=(0, 0), tile=ct.astype(tile, ct.float16))
    ct.store(brain, index=(0, 0), tile=ct.astype(tile, ct.bfloat16))
    ct.store(eight, index=(0, 0), tile=ct.astype(tile, ct.float8_e4m3fn))
    ct.store(tensor, index=(0, 0), tile=ct.astype(ct.astype(tile, ct.tfloat32), ct.float32))
    ct.store(integer, index=(0, 0), tile=ct.astype(ct.minimum(ct.maximum(tile, -1000.0), 1000.0), ct.int32))


@ct.kernel
def mathematics(x, exponential, power, root, inverse_root, logarithm, hyperbolic):
    tile = ct.load(x, index=(0, 0), shape=(64, 64))
    positive = ct.maximum(tile, 0.0 - tile) + 0.125
    ct.store(exponential, index=(0, 0), tile=ct.exp(tile))
    ct.store(power, index=(0, 0), tile=ct.exp2(tile))
    ct.store(root, index=(0, 0), tile=ct.sqrt(positive))
    ct.store(inverse_root, index=(0, 0), tile=ct.rsqrt(positive))
    ct.store(logarithm, index=(0, 0), tile=ct.log2(positive))
    ct.store(hyperbolic, index=(0, 0), tile=ct.tanh(tile))


@ct.kernel
def rows(x, largest, smallest, total, chosen):
    tile = ct.load(x, index=(0, 0), shape=(64, 64))
    ct.store(largest, index=(0, 0), tile=ct.max(tile, axis=1, keepdims=True))
    ct.store(smallest, index=(0, 0), tile=ct.min(tile, axis=0, keepdims=True))
    ct.store(total, index=(0,), tile=ct.sum(tile, axis=1))
    ct.store(chosen, index=(0, 0), tile=ct.where(tile > 0.0, tile, ct.exp2(tile)[:, :] * 0.0 - 1.0))


@ct.kernel
def turned(x, y, edge):
    """Transposed loads and stores of an array that no tile divides, and of the padding beyond its edge."""
    tiles = ct.num_tiles(x, axis=0, shape=(16, 32), order="F")
    for i in range(tiles):
        for j in range(ct.num_tiles(x, axis=1, shape=(16, 32), order=(1, 0))):
            tile = ct.load(x, index=(i, j), shape=(16, 32), order=(1, 0), padding_mode=ct.PaddingMode.NEG_INF)
            ct.store(y, index=(i, j), tile=tile)
            ct.store(edge, index=(i, j), tile=ct.max(tile, axis=1, keepdims=True), order="C")


@ct.kernel
def overlapping(x, y, edge):
    """Loads and stores tiles that begin at any row: the last ones end with the array. Columns beyond it are padded."""
    tiles = x.tiled_view((16, 32), traversal_steps=(1, 32), padding_mode=ct.PaddingMode.NEG_INF)
    for i in range(ct.cdiv(x.shape[0], 16)):
        first = min(i * 16, x.shape[0] - 16)
        for j in range(ct.cdiv(x.shape[1], 32)):
            tile = tiles.load((first, j))
            y.tiled_view((16, 32), traversal_steps=(1, 32)).store((first, j), tile)
            ct.store(edge, index=(i, j), tile=ct.max(tile, axis=1, keepdims=True))


@ct.kernel
def picked(x, index, y, z):
    """Gathers outside the array return their padding; scatters outside it write nothing."""
    places = ct.load(index, index=(0,), shape=(64,))
    column = ct.arange(32, dtype=ct.int32)
    found = ct.gather(x, (places[:, None], column[None, :]), padding_value=-7.0)
    ct.store(y, index=(0, 0), tile=found)
    ct.store(z, index=(0, 0), tile=ct.full((64, 32), 1.0, dtype=ct.float32))
    ct.scatter(z, (places[:, None], column[None, :]), found, mask=(column < 20)[None, :])


@ct.kernel
def integers(a, b, quotient, remainder, ceiling, shifted):
    x = ct.load(a, index=(0,), shape=(64,))
    y = ct.load(b, index=(0,), shape=(64,))
    ct.store(quotient, index=(0,), tile=x // y)
    ct.store(remainder, index=(0,), tile=x % y)
    ct.store(ceiling, index=(0,), tile=ct.cdiv(x, y))
    ct.store(shifted, index=(0,), tile=ct.minimum(x, y) * 3 - (x & 255))


def _spread() -> np.ndarray:
    """Returns values over many orders of magnitude, with ties of every narrow type, subnormals and overflows."""
    generator = np.random.default_rng(5)
    values = generator.standard_normal((SIDE, SIDE)) * 2.0 ** generator.integers(-24, 20, (SIDE, SIDE))
    ties = (np.arange(SIDE) + 0.5) * 2.0 ** np.array([-12, -10, -9, -8, -7, -3, 0, 1, 3])[:, None]
    values[: len(ties)] = ties * np.where(np.arange(SIDE) % 2, 1, -1)
    return values.astype(np.float32)


def _given(x: Mapping[str, np.ndarray]) -> Callable[[Problem], Mapping[str, np.ndarray]]:
    return lambda _: x


def _converted(inputs: Mapping[str, Any], _: Any) -> Mapping[str, Any]:
    x = np.asarray(inputs["x"])
    with np.errstate(over="ignore"):
        half = x.astype(np.float16).astype(np.float32)
    bits = x.view(np.uint32)
    brain = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)
    tensor = ((bits + 0xFFF + ((bits >> 13) & 1)) >> 13 << 13).astype(np.uint32).view(np.float32)
    eight = np.full_like(x, np.nan)  # NumPy has no FP8: any result passes here, and tests compare its bits
    return {
        "eight": eight,
        "half": half,
        "brain": brain,
        "tensor": tensor,
        "integer": np.trunc(np.clip(x, -1000, 1000)),
    }


def _mathematics(inputs: Mapping[str, Any], _: Any) -> Mapping[str, Any]:
    x = np.asarray(inputs["x"], np.float64)
    positive = np.abs(x) + 0.125
    return {
        "exponential": np.exp(x),
        "power": np.exp2(x),
        "root": np.sqrt(positive),
        "inverse_root": 1 / np.sqrt(positive),
        "logarithm": np.log2(positive),
        "hyperbolic": np.tanh(x),
    }


def _rows(inputs: Mapping[str, Any], _: Any) -> Mapping[str, Any]:
    x = np.asarray(inputs["x"])
    return {
        "largest": x.max(1, keepdims=True),
        "smallest": x.min(0, keepdims=True),
        "total": x.astype(np.float64).sum(1),
        "chosen": np.where(x > 0, x, -1.0),
    }


def _turned(inputs: Mapping[str, Any], _: Any) -> Mapping[str, Any]:
    turned = np.asarray(inputs["x"]).T
    edge = np.stack([turned[:, first : first + 32].max(1) for first in range(0, turned.shape[1], 32)], axis=1)
    return {"y": turned, "edge": edge}


def _overlapping(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    x = inputs["x"]
    firsts = [min(i * 16, len(x) - 16) for i in range(-(-len(x) // 16))]
    halves = xp.stack([x[:, :32].max(axis=1), x[:, 32:].max(axis=1)], axis=1)
    return {"y": x, "edge": xp.concatenate([halves[first : first + 16] for first in firsts])}


def _picked(inputs: Mapping[str, Any], _: Any) -> Mapping[str, Any]:
    x, places = np.asarray(inputs["x"]), np.asarray(inputs["index"])
    inside = (places >= 0) & (places < len(x))
    y = np.where(inside[:, None], x[np.where(inside, places, 0)], -7.0)
    z = np.ones((SIDE, 32))
    z[places[inside], :20] = y[inside, :20]
    return {"y": y, "z": z}


def _integers(inputs: Mapping[str, Any], _: Any) -> Mapping[str, Any]:
    a, b = np.asarray(inputs["a"]), np.asarray(inputs["b"])
    return {
        "quotient": a // b,
        "remainder": a % b,
        "ceiling": -(-a // b),
        "shifted": np.minimum(a, b) * 3 - (a & 255),
    }


def _probe(
    entry: Any,
    reference: Callable[[Mapping[str, Any], Any], Mapping[str, Any]],
    arrays: tuple[Array, ...],
    tolerance: float,
    given: Mapping[str, np.ndarray] | None = None,
) -> Kernel:
    one = Problem("one", {})
    return Kernel(
        name=f"probe_{reference.__name__.strip('_')}",
        entry=entry,
        problems=(one,),
        parse=lambda _: one,
        space=lambda _: Space((("num_ctas", (1,)),)),
        arrays=lambda _: arrays,
        constants=lambda *_: (),
        grid=lambda *_: (1, 1, 1),
        reference=reference,
        tolerance=lambda _: tolerance,
        flops=lambda _: 1,
        bytes=lambda _: 1,
        baselines=(),
        given=_given(given) if given else None,
    )


def _square(name: str, dtype: str = "float32", *, output: bool = True, fill: Any = "normal") -> Array:
    return Array(name, (SIDE, SIDE), dtype, output, fill)


def _vector(name: str, *, output: bool) -> Array:
    return Array(name, (SIDE,), "int32", output, "normal" if output else "given")


_RANDOM = np.random.default_rng(6)
_PLACES = np.where(np.arange(SIDE) % 7 == 3, -1, _RANDOM.permutation(SIDE) * 2).astype(np.int32)

KERNELS = (
    _probe(
        convert,
        _converted,
        (
            _square("x", output=False, fill="given"),
            _square("half", "float16"),
            _square("brain", "bfloat16"),
            _square("eight", "float8_e4m3fn"),
            _square("tensor"),
            _square("integer", "int32"),
        ),
        0.0,
        {"x": _spread()},
    ),
    _probe(
        mathematics,
        _mathematics,
        (_square("x", output=False), *(_square(name) for name in _mathematics({"x": 0.0}, np))),
        2.0**-20,  # approximations of two float32 steps, of the largest value
    ),
    _probe(
        rows,
        _rows,
        (
            _square("x", output=False),
            Array("largest", (SIDE, 1), "float32", output=True),
            Array("smallest", (1, SIDE), "float32", output=True),
            Array("total", (SIDE,), "float32", output=True),
            _square("chosen"),
        ),
        2.0**-20,
    ),
    _probe(
        turned,
        _turned,
        (
            Array("x", (83, 37), "float32"),
            Array("y", (37, 83), "float32", output=True),
            Array("edge", (37, 3), "float32", output=True),
        ),
        0.0,
    ),
    _probe(
        overlapping,
        _overlapping,
        (
            Array("x", (83, 37), "float32"),
            Array("y", (83, 37), "float32", output=True),
            Array("edge", (96, 2), "float32", output=True),
        ),
        0.0,
    ),
    _probe(
        picked,
        _picked,
        (
            Array("x", (SIDE, 32), "float32"),
            _vector("index", output=False),
            Array("y", (SIDE, 32), "float32", output=True),
            Array("z", (SIDE, 32), "float32", output=True),
        ),
        0.0,
        {"index": _PLACES},
    ),
    _probe(
        integers,
        _integers,
        (
            _vector("a", output=False),
            _vector("b", output=False),
            *(_vector(name, output=True) for name in ("quotient", "remainder", "ceiling", "shifted")),
        ),
        0.0,
        {
            "a": _RANDOM.integers(-1000, 1000, SIDE, dtype=np.int32),
            "b": np.where(np.arange(SIDE) % 2, -1, 1).astype(np.int32) * _RANDOM.integers(1, 40, SIDE, dtype=np.int32),
        },
    ),
)
