"""Reads from a config how a kernel cuts its problem into tiles, by any of the names that people give its parameters."""

import re
from collections.abc import Mapping

TILE = re.compile(r"(tile|block)(_size)?_", re.IGNORECASE)
"""How the name of a tile's side begins."""

GROUP = re.compile(r"group(_size)?(_m)?", re.IGNORECASE)
"""The name of a swizzle's group: the number of tiles down M before a step along N."""

BLOCKS_AT_ONCE = 132
"""One on each multiprocessor of an H200. With the 148 of a B200 eight rows read 8 % more tiles."""


def read_sizes(problem: str) -> tuple[int, ...]:
    """Returns the numbers of "320x32576x7168-bfloat16"; empty for a problem of another form."""
    found = re.fullmatch(r"(\d+(?:x\d+)+)(?:[-:]\w+)?", problem)
    return tuple(map(int, found[1].split("x"))) if found else ()


def list_tiles(params: Mapping[str, int]) -> dict[str, int]:
    return {name: value for name, value in params.items() if TILE.match(name) or name == "num_ctas"}


def count_loaded(params: Mapping[str, int]) -> float | None:
    """Returns how many elements of both operands are loaded for each multiplication; None for no matrix product."""
    m, n, k = (_find_side(params, axis) for axis in ("m", "n", "k"))
    return None if m is None or n is None or k is None else 1 / m + 1 / n


def count_read_together(params: Mapping[str, int], sizes: tuple[int, ...]) -> float | None:
    """Returns how many rows and columns of the operands the blocks that run at once read, by the group of the swizzle:
    with one row of 132 tiles 133 tiles, with eight rows 25. None for a config without a group."""
    m, n = (_find_side(params, axis) for axis in ("m", "n"))
    group = next((value for name, value in params.items() if GROUP.fullmatch(name)), None)
    if m is None or n is None or not group:
        return None
    rows = min(group, -(-sizes[0] // m)) if len(sizes) == 3 else group
    return rows * m + BLOCKS_AT_ONCE / rows * n


def find_padded_share(params: Mapping[str, int], sizes: tuple[int, ...]) -> float | None:
    """Returns the work of whole tiles over that of the problem (1.25: a fifth is padding); None for a problem whose
    sizes are not those of its tiles: three of no matrix product, which has a tile_k."""
    axes = {2: ("rows", "columns"), 3: ("m", "n", "k")}.get(len(sizes), ())
    sides = [_find_side(params, axis) for axis in axes]
    if not any(sides) or (len(sizes) == 3 and None in sides):
        return None
    share = 1.0
    for side, size in zip(sides, sizes, strict=True):
        share *= -(-size // (side or 1)) * (side or 1) / size
    return share


def _find_side(params: Mapping[str, int], axis: str) -> int | None:
    """Returns the tile's side along an axis ("m", "rows"), by any of the names that people give it: TILE_SIZE_M."""
    return next((value for name, value in params.items() if TILE.sub("", name).lower() == axis), None)
