"""Reads tile sizes from a config and computes how tiles cover a problem."""

import re
from collections.abc import Mapping

TILE = re.compile(r"(tile|block)(_size)?_", re.IGNORECASE)
"""The pattern of the beginning of a parameter's name that gives a side of the tile."""

GROUP = re.compile(r"group(_size)?(_m)?", re.IGNORECASE)
"""The pattern of the name of a swizzle's group size: the number of tiles down M before a step along N."""

BLOCKS_AT_ONCE = 132
"""The number of concurrent thread blocks: one per multiprocessor of an H200. A B200's 148 read 8 % more tiles."""


def read_sizes(problem: str) -> tuple[int, ...]:
    """Returns the sizes in a name like "320x32576x7168-bfloat16"; () for any other name."""
    found = re.fullmatch(r"(\d+(?:x\d+)+)(?:[-:]\w+)?", problem)
    return tuple(map(int, found[1].split("x"))) if found else ()


def list_tiles(params: Mapping[str, int]) -> dict[str, int]:
    return {name: value for name, value in params.items() if TILE.match(name) or name == "num_ctas"}


def read_size(value: object) -> int | None:
    """Returns a parameter's value if it is a whole number above 0, else None."""
    return value if isinstance(value, int) and value > 0 else None


def count_loaded(params: Mapping[str, int]) -> float | None:
    """Returns how many elements of A and B a tile loads per multiplication; None if a tile size is missing."""
    m, n, k = (_find_side(params, axis) for axis in ("m", "n", "k"))
    return None if m is None or n is None or k is None else 1 / m + 1 / n


def count_read_together(params: Mapping[str, int], sizes: tuple[int, ...]) -> float | None:
    """Returns the rows of A plus the columns of B that concurrent thread blocks read; None if unknown."""
    m, n = (_find_side(params, axis) for axis in ("m", "n"))
    group = next((read_size(value) for name, value in params.items() if GROUP.fullmatch(name)), None)
    if m is None or n is None or group is None:
        return None
    rows = min(group, -(-sizes[0] // m)) if len(sizes) == 3 else group
    return rows * m + BLOCKS_AT_ONCE / rows * n  # square tiles: 133 sides for one row of tiles, 25 for eight rows


def find_padded_share(params: Mapping[str, int], sizes: tuple[int, ...]) -> float | None:
    """Returns the work of whole tiles divided by the problem's work; None if unknown. 1.25 means 25 % extra work."""
    axes = {2: ("rows", "columns"), 3: ("m", "n", "k")}.get(len(sizes), ())
    sides = [_find_side(params, axis) for axis in axes]
    if not any(sides) or 0 in sizes or (len(sizes) == 3 and None in sides):
        return None
    share = 1.0
    for side, size in zip(sides, sizes, strict=True):
        share *= -(-size // (side or 1)) * (side or 1) / size
    return share


def _find_side(params: Mapping[str, int], axis: str) -> int | None:
    """Returns the tile's size along an axis such as "m" or "rows"; None if unknown."""
    return next((read_size(value) for name, value in params.items() if TILE.sub("", name).lower() == axis), None)
