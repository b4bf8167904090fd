"""Lists the values that a library file gives for its inputs, as they are handed from process to process."""

import json
from collections.abc import Mapping
from typing import Any

from tilewatch.kernels.contract import Kernel, Problem
from tilewatch.kernels.library_errors import LibraryError

MOST_TEXT_BYTES = 48 << 20
"""Of all values together, written as JSON. An answer may have 64 MiB (kernels/child_process.py), with the launches."""

FEWEST_BYTES = 3
"""Of a number in a list: one digit, a comma, a space."""


def list_given(kernel: Kernel, problem: Problem) -> dict[str, list[Any]]:
    """Returns the values of each input with fill "given", as nested lists. Raises LibraryError where they are too
    many."""
    given: Mapping[str, Any] = kernel.given(problem) if kernel.given else {}
    numbers = sum(values.size for values in given.values())
    if numbers * FEWEST_BYTES > MOST_TEXT_BYTES:  # their lists could fill the memory
        raise _too_large(kernel, given, f"at least {numbers * FEWEST_BYTES >> 20} MiB")
    listed = {name: values.tolist() for name, values in given.items()}
    text_bytes = sum(len(json.dumps(each)) for each in listed.values())
    if text_bytes > MOST_TEXT_BYTES:
        raise _too_large(kernel, given, f"{text_bytes >> 20} MiB")
    return listed


def _too_large(kernel: Kernel, given: Mapping[str, Any], size: str) -> LibraryError:
    counts = ", ".join(f"'{name}' {values.size:,}" for name, values in given.items())
    return LibraryError(
        f"kernel {kernel.name}: `given` gives too many numbers: {counts}, {size} as text of at most "
        f'{MOST_TEXT_BYTES >> 20} MiB; give fewer, or let inputs be random (fill="normal" or fill="scale")'
    )
