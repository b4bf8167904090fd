"""Computes shapes and strides by PyTorch's rules. Strides are in elements."""

import math
from collections.abc import Sequence

Shape = tuple[int, ...]


def contiguous(shape: Sequence[int]) -> Shape:
    """Returns row-major strides. A size of 0 counts as 1, as in PyTorch."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(1, size)
    return tuple(reversed(strides))


def dense_like(shape: Sequence[int], strides: Sequence[int]) -> Shape:
    """Returns strides without gaps that keep the order of the dimensions in memory."""
    found, step = [0] * len(shape), 1
    for place in sorted(range(len(shape)), key=lambda each: (strides[each], -each)):
        found[place] = step
        step *= max(1, shape[place])
    return tuple(found)


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    wanted = contiguous(shape)
    return all(size == 1 or have == want for size, have, want in zip(shape, strides, wanted, strict=True))


def broadcast(*shapes: Sequence[int]) -> Shape:
    """Returns the shape to which these shapes broadcast. Raises ValueError if they cannot be broadcast."""
    found = [1] * max((len(each) for each in shapes), default=0)
    for shape in shapes:
        for back, size in enumerate(reversed(shape), start=1):
            if size != 1 and found[-back] not in (1, size):
                raise ValueError(f"shapes {' and '.join(str(tuple(each)) for each in shapes)} do not fit together")
            if size != 1:
                found[-back] = size
    return tuple(found)


def fill_in(shape: Sequence[int], numel: int) -> Shape:
    """Returns a shape with -1 replaced so that it has `numel` elements. Raises ValueError if no size fits."""
    known = math.prod(size for size in shape if size != -1)
    found = tuple(numel // known if size == -1 and known else size for size in shape)
    if math.prod(found) != numel:
        raise ValueError(f"shape {tuple(shape)} is invalid for input of size {numel}")
    return found


def view(shape: Sequence[int], strides: Sequence[int], wanted: Sequence[int]) -> Shape | None:
    """Returns the strides of a view, or None if the view would need a copy (ATen's computeStride)."""
    if math.prod(shape) == 0:
        return contiguous(wanted)
    found: list[int] = []
    left = list(reversed(wanted))
    place = 0
    chunk_stride = strides[-1] if strides else 1
    chunk, taken = 1, 1
    for dim in reversed(range(len(shape))):
        chunk *= shape[dim]
        if dim and (shape[dim - 1] == 1 or strides[dim - 1] == chunk * chunk_stride):
            continue
        while place < len(left) and (taken < chunk or left[place] == 1):
            found.append(taken * chunk_stride)
            taken *= left[place]
            place += 1
        if taken != chunk:
            return None
        if dim:
            chunk_stride, chunk, taken = strides[dim - 1], 1, 1
    found += [chunk_stride if not shape else taken * chunk_stride] * (len(left) - place)
    return tuple(reversed(found))
