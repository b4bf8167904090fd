"""Launches stored cubins for Nsight Compute: `python -m tilewatch.kernels.gpu.profiled_launches FILE STORE`.

FILE holds a JSON list of described launches. Only what runs between the profiler's start and stop is counted, so that
making the inputs is not. Nothing is timed or checked: that was done before, in other processes. This process is not
confined, because Nsight Compute talks to it through a socket; so it reads no library file.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import cupy

from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.kernels.contract import Array
from tilewatch.kernels.gpu import arrays
from tilewatch.kernels.gpu.described_launch import TIMES, DescribedLaunch, read_launch

SEED = 1
"""Counts hardly depend on the values of the inputs; equal ones make them comparable."""


def launch_each(launches: list[DescribedLaunch], store: CubinStore) -> None:
    with tempfile.TemporaryDirectory(prefix="tilewatch-profiled-") as folder:
        for number, described in enumerate(launches):
            path = Path(folder) / f"{number}.cubin"  # one path per cubin: CuPy remembers modules by path
            path.write_bytes(store.cubin(described.content_key))
            _launch(described, path)
            cupy.get_default_memory_pool().free_all_blocks()


def _launch(described: DescribedLaunch, cubin: Path) -> None:
    function = cupy.RawModule(path=str(cubin)).get_function(described.symbol)
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
        return cupy.asarray(described.given[array.name], dtype=arrays.raw_dtype(array))
    if array.output:
        return cupy.zeros(array.shape, dtype=arrays.raw_dtype(array))
    return arrays.random(array, cupy.random.default_rng(SEED))


if __name__ == "__main__":
    launch_each([read_launch(each) for each in json.loads(Path(sys.argv[1]).read_text())], CubinStore(sys.argv[2]))
