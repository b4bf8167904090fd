"""Launches stored cubins under Nsight Compute: `python -m tilewatch.kernels.gpu.profiled_launches FILE`.

FILE describes the launches as data, because this process has no sandbox and must not run library code."""

import base64
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from tilewatch.kernels.compiling.operator_code import read_bundle
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.kernels.contract import Array
from tilewatch.kernels.gpu import arrays
from tilewatch.kernels.gpu.described_launch import TIMES, DescribedLaunch
from tilewatch.kernels.gpu.host_code import launched_arrays
from tilewatch.kernels.gpu.host_code.described_operator import ITEM_BYTES
from tilewatch.kernels.gpu.host_code.described_run import Described, DescribedRun, FirstContent, read_described
from tilewatch.kernels.problems.given_values import decode_values

WAIT_S = 0.01
SEED = 1
"""Seed of the random inputs. Counters hardly depend on the values, and equal inputs make counters comparable."""


def launch_each(described: Described, store: CubinStore) -> None:
    with tempfile.TemporaryDirectory(prefix="tilewatch-profiled-") as folder:
        for number, each in enumerate(described):
            place = Path(folder) / str(number)
            place.mkdir()
            if isinstance(each, DescribedRun):
                _run(each, read_bundle(store.cubin(each.content_key)), place)
            else:
                _launch(each, _load(store.cubin(each.content_key), each.symbol, place))
            cupy.get_default_memory_pool().free_all_blocks()


def _load(cubin: bytes, symbol: str, place: Path) -> Any:
    path = place / f"{len(list(place.iterdir()))}.cubin"  # one path per cubin: CuPy remembers modules by path
    path.write_bytes(cubin)
    return cupy.RawModule(path=str(path)).get_function(symbol)


def _run(described: DescribedRun, cubins: Mapping[str, bytes], place: Path) -> None:
    """Launches all kernels of a run several times, each time with the same initial memory."""
    memory = [_make_memory(each) for each in described.memory]
    before = [each.copy() for each in memory]
    launches = [
        (_load(cubins[each.key], each.symbol, place), each.grid, launched_arrays.list_values(each.arguments, memory))
        for each in described.launches
    ]
    for _ in range(TIMES):
        # Launches may write lengths and indices that later launches read.
        for own, first in zip(memory, before, strict=True):
            own[...] = first
        cupy.cuda.runtime.deviceSynchronize()
        cupy.cuda.runtime.profilerStart()
        for function, grid, values in launches:
            function(grid, (1,), values)
            cupy.cuda.runtime.deviceSynchronize()
        cupy.cuda.runtime.profilerStop()


def _make_memory(content: FirstContent) -> Any:
    """Returns an allocation with the described initial content, as bytes."""
    if content.values is not None:
        return cupy.asarray(np.frombuffer(base64.b64decode(content.values), dtype=np.uint8))
    if content.dtype is None:
        filled = cupy.empty(content.nbytes, dtype=cupy.uint8)
        filled.fill(content.fill)
        return filled
    items = Array("memory", (-(-content.nbytes // ITEM_BYTES[content.dtype]),), content.dtype)
    return arrays.random(items, cupy.random.default_rng(SEED)).view(cupy.uint8)[: content.nbytes]


def _launch(described: DescribedLaunch, function: Any) -> None:
    made = {each.name: _make(each, described) for each in described.arguments if isinstance(each, Array)}
    values = arrays.list_launch_values(described.arguments, lambda array: made[array.name])
    cupy.cuda.runtime.deviceSynchronize()
    cupy.cuda.runtime.profilerStart()
    for _ in range(TIMES):
        function(described.grid, (1,), values)
        cupy.cuda.runtime.deviceSynchronize()
    cupy.cuda.runtime.profilerStop()


def _make(array: Array, described: DescribedLaunch) -> Any:
    if array.name in described.given:
        return cupy.asarray(arrays.fit(array, decode_values(array.name, described.given[array.name])))
    if array.output:
        return cupy.zeros(array.shape, dtype=arrays.raw_dtype(array))
    return arrays.random(array, cupy.random.default_rng(SEED))


def _wait_for(file: Path) -> Any:
    """Waits for a file and returns its content. Ends this process if the profiler has ended."""
    profiler = os.getppid()
    while not file.exists():
        if os.getppid() != profiler:
            raise SystemExit("the profiler that started this process has ended")
        time.sleep(WAIT_S)
    return json.loads(file.read_text())


if __name__ == "__main__":
    asked = _wait_for(Path(sys.argv[1]))
    launch_each([read_described(each) for each in asked["described"]], CubinStore(asked["store"]))
