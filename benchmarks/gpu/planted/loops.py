"""Kernels whose time is that of their loop: each takes MORE_STEPS_OF_8000 / 8000 longer than without that setting.

Each thread block runs its loop once, and there is one block per multiprocessor. A step depends on the previous step, so
all steps take equally long. benchmarks/gpu/small_changes.py changes MORE_STEPS_OF_8000 from one commit to the next."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import cuda.tile as ct

from tilewatch.kernels.contract import Array, BadProblem, Config, Kernel, Problem, Space

ConstInt: TypeAlias = ct.Constant[int]

MORE_STEPS_OF_8000 = 0
"""A multiple of 4, so that an unrolled loop has no remainder."""

BLOCKS = 132
"""The number of multiprocessors of an H100 or H200."""

WIDTH = 1024
ROWS = 64
"""Rows of each block's part of the input: 256 KiB in float32, which stay in L2."""


@ct.kernel
def fma_steps(x, y, steps: ConstInt):
    """Computes eight fused multiply-adds per element and step. The values approach 2."""
    values = ct.load(x, index=(ct.bid(0) * ROWS, 0), shape=(1, WIDTH))
    for _ in range(steps):
        for _ in ct.static_iter(range(8)):
            values = values * 0.5 + 1.0
    ct.store(y, index=(ct.bid(0), 0), tile=values)


@ct.kernel
def exp_steps(x, y, steps: ConstInt):
    """Computes 2 to the power of -x per element and step. The values approach the solution of x = 2 ** -x."""
    values = ct.load(x, index=(ct.bid(0) * ROWS, 0), shape=(1, WIDTH))
    for _ in range(steps):
        values = ct.exp2(0.0 - values)
    ct.store(y, index=(ct.bid(0), 0), tile=values)


@ct.kernel
def sum_steps(x, y, steps: ConstInt):
    """Computes a sum over the row per step. The values approach the row's mean."""
    values = ct.load(x, index=(ct.bid(0) * ROWS, 0), shape=(1, WIDTH))
    for _ in range(steps):
        values = values * 0.5 + ct.sum(values, axis=1, keepdims=True) * (0.5 / WIDTH)
    ct.store(y, index=(ct.bid(0), 0), tile=values)


@ct.kernel
def load_steps(x, y, steps: ConstInt):
    """Loads a row from L2 per step. The result is the largest value of each column."""
    largest = ct.load(x, index=(ct.bid(0) * ROWS, 0), shape=(1, WIDTH))
    for step in range(steps):
        largest = ct.maximum(largest, ct.load(x, index=(ct.bid(0) * ROWS + step % ROWS, 0), shape=(1, WIDTH)))
    ct.store(y, index=(ct.bid(0), 0), tile=largest)


@ct.kernel
def mma_steps(a, y, steps: ConstInt):
    """Computes a product of 64x64x64 bfloat16 values per step, and adds it to half of the sum of the steps before it.
    The sum approaches twice the product."""
    part = ct.load(a, index=(ct.bid(0), 0), shape=(64, 64))
    total = ct.full((64, 64), 0.0, dtype=ct.float32)
    for _ in range(steps):
        total = ct.mma(part, part, total * 0.5)
    ct.store(y, index=(ct.bid(0), 0), tile=total)


def parse(text: str) -> Problem:
    """Reads the number of steps, such as "8000"."""
    if not text.isdecimal() or not int(text) or int(text) % 8000:
        raise BadProblem(f"'{text}' is no multiple of 8000 steps")
    return Problem(text, {"steps": int(text)})


def row_arrays(_: Problem) -> tuple[Array, ...]:
    return Array("x", (BLOCKS * ROWS, WIDTH), "float32"), Array("y", (BLOCKS, WIDTH), "float32", output=True)


def mma_arrays(_: Problem) -> tuple[Array, ...]:
    return Array("a", (BLOCKS * 64, 64), "bfloat16"), Array("y", (BLOCKS * 64, 64), "float32", output=True)


def constants(problem: Problem, _: Config) -> tuple[int, ...]:
    return (problem.sizes["steps"] // 8000 * (8000 + MORE_STEPS_OF_8000),)


def constant_reference(value: float) -> Any:
    """Returns a reference whose outputs all have this value."""

    def reference(_: Mapping[str, Any], xp: Any) -> dict[str, Any]:
        return {"y": xp.full((BLOCKS, WIDTH), value, xp.float32)}

    return reference


def sum_reference(inputs: Mapping[str, Any], xp: Any) -> dict[str, Any]:
    first = inputs["x"].reshape(BLOCKS, ROWS, WIDTH)[:, 0]
    return {"y": xp.repeat(first.mean(axis=1, keepdims=True), WIDTH, axis=1)}


def load_reference(inputs: Mapping[str, Any], _: Any) -> dict[str, Any]:
    return {"y": inputs["x"].reshape(BLOCKS, ROWS, WIDTH).max(axis=1)}


def mma_reference(inputs: Mapping[str, Any], _: Any) -> dict[str, Any]:
    parts = inputs["a"].reshape(BLOCKS, 64, 64)
    return {"y": 2 * (parts @ parts).reshape(BLOCKS * 64, 64)}


def make_kernel(name: str, entry: Any, arrays: Any, reference: Any) -> Kernel:
    return Kernel(
        name=name,
        entry=entry,
        problems=tuple(map(parse, ("8000", "16000"))),
        parse=parse,
        space=lambda _: Space((("num_worker_warps", (4,)),)),
        arrays=arrays,
        constants=constants,
        grid=lambda *_: (BLOCKS, 1, 1),
        reference=reference,
        tolerance=lambda _: 1e-3,
        flops=lambda problem: problem.sizes["steps"] * BLOCKS * WIDTH,
        bytes=lambda _: BLOCKS * ROWS * WIDTH * 4,
        baselines=(),
    )


KERNELS = (
    make_kernel("fma_steps", fma_steps, row_arrays, constant_reference(2.0)),
    make_kernel("exp_steps", exp_steps, row_arrays, constant_reference(0.6411857445)),
    make_kernel("sum_steps", sum_steps, row_arrays, sum_reference),
    make_kernel("load_steps", load_steps, row_arrays, load_reference),
    make_kernel("mma_steps", mma_steps, mma_arrays, mma_reference),
)
