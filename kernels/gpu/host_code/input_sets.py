"""Counts the sets of inputs that timed launches use in turn."""

import cupy

from tilewatch.kernels.gpu.rounds import count_input_sets

MOST_INPUT_SETS = 4
INPUT_BUDGET = 0.1
"""Share of the GPU's memory that all inputs may take. It is small because each config has its own outputs, and because
the inputs are in memory twice: in the library's process and in the measuring process."""


def count_sets(set_bytes: int, more_bytes: int = 0) -> int:
    """Returns how many sets of inputs to make. Fewer are made if memory is short."""
    device = cupy.cuda.Device()
    budget_bytes = INPUT_BUDGET * device.mem_info[1] * max(1, set_bytes) / max(1, set_bytes + more_bytes)
    sets = count_input_sets(set_bytes, l2_bytes=device.attributes["L2CacheSize"], budget_bytes=budget_bytes)
    return min(sets, MOST_INPUT_SETS)
