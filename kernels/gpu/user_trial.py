"""Tests whether a library's process can use the GPU under a separate operating-system user."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cupy

from tilewatch.kernels.gpu import shared_arrays, timing
from tilewatch.kernels.library_errors import LibraryError

NEEDED_DEVICES = ("nvidia[0-9]*", "nvidiactl", "nvidia-uvm")


def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
    if request["ask"] == "share":
        closed = [str(each) for each in _list_devices() if not os.access(each, os.R_OK | os.W_OK)]
        if closed:
            raise LibraryError(f"its user may not read and write {', '.join(closed)}")
        numbers = cupy.asarray(request["numbers"])
        return {"shared": shared_arrays.share(numbers, "int64"), "user": os.geteuid()}
    if request["ask"] == "take":
        shape = tuple(request["shared"]["shape"])
        return {"numbers": shared_arrays.take(request["shared"], "numbers", shape).get().tolist()}
    return {"timer": timing.timer().name}


def _list_devices() -> list[Path]:
    return [each for pattern in NEEDED_DEVICES for each in Path("/dev").glob(pattern)]
