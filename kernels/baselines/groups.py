"""Finds each row's group, for libraries that need it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewatch.kernels.baselines.baseline import Call, tensor, torch_module

BLOCK = 128
"""Groups start at multiples of this many rows."""


def find_groups(ends: Sequence[int], rows: int) -> np.ndarray:
    """Returns each row's group, or -1 for padding. Every group begins at a multiple of BLOCK."""
    groups = np.full(rows, -1, dtype=np.int32)
    start = 0
    for group, end in enumerate(ends):
        groups[start:end] = group
        start = -(-end // BLOCK) * BLOCK
    return groups


def list_ranges(call: Call) -> list[tuple[int, int]]:
    """Returns a pair of rows for each group: the end of the previous group, and the end of this group."""
    ends = [int(end) for end in tensor(call, "end_of_group").cpu()]
    return list(zip([0, *ends], ends, strict=False))


def find_group_of_row(call: Call) -> Any:
    """Returns each row's group as a tensor, with -1 for padding."""
    if "group_of_row" in call.inputs:
        return tensor(call, "group_of_row")
    ends = [end for _, end in list_ranges(call)]
    return torch_module().from_numpy(find_groups(ends, call.inputs["a"].shape[0])).cuda()
