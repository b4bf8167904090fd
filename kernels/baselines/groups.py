"""Finds the group of each row, for libraries that need it. Our kernels may get only the ends of groups."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewatch.kernels.baselines.baseline import Call, tensor, torch_module

BLOCK = 128
"""Groups start at multiples of this many rows."""


def find_groups(ends: Sequence[int], rows: int) -> np.ndarray:
    """Returns each row's group, or -1 for padding. Group i begins at a multiple of BLOCK and ends before `ends[i]`."""
    groups = np.full(rows, -1, dtype=np.int32)
    start = 0
    for group, end in enumerate(ends):
        groups[start:end] = group
        start = -(-end // BLOCK) * BLOCK
    return groups


def list_ranges(call: Call) -> list[tuple[int, int]]:
    """Returns two indices for each group: the end of the previous group (0 for the first group), and the group's own
    end. A group along K starts at the first index, a group of rows at the first multiple of BLOCK from there on."""
    ends = [int(end) for end in tensor(call, "end_of_group").cpu()]
    return list(zip([0, *ends], ends, strict=False))


def find_group_of_row(call: Call) -> Any:
    """Returns each row's group as a tensor; -1 is padding. Computes it from the groups' ends if the call lacks it."""
    if "group_of_row" in call.inputs:
        return tensor(call, "group_of_row")
    ends = [end for _, end in list_ranges(call)]
    return torch_module().from_numpy(find_groups(ends, call.inputs["a"].shape[0])).cuda()
