"""Times two cubins of one kernel beside each other. Needs only CuPy, NumPy and a GPU.

    python time_pair.py [PROCESSES]

Reads case.json, base.cubin and head.cubin in its own folder. Each process first compares the outputs of both cubins."""

import base64
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PROCESSES = 12
ROUNDS, WARM_UP_ROUNDS = 60, 20
REST_EVERY_S, REST_S = 0.008, 0.04
"""Seconds of launches before a rest, and of the rest. Without rests, a GPU's power cap makes times depend on load."""


def main() -> None:
    if sys.argv[1:] == ["--one"]:
        print(json.dumps(time_one_process()))
        return
    ratios = []
    for number in range(1, int(sys.argv[1]) + 1 if sys.argv[1:] else PROCESSES + 1):
        done = subprocess.run([sys.executable, __file__, "--one"], capture_output=True, text=True, check=True)
        base_us, head_us, difference = json.loads(done.stdout)
        ratios.append(head_us / base_us)
        ratio = f"head / base {ratios[-1]:.4f}, outputs {difference:.2g} apart"
        print(f"{number:3}: base {base_us:.2f} us, head {head_us:.2f} us, {ratio}")
    print(f"head takes {100 * (statistics.median(ratios) - 1):+.2f} % ({min(ratios):.4f} to {max(ratios):.4f})")


def time_one_process() -> tuple[float, float, float]:
    """Returns the median microseconds of base and head, and the relative difference of their outputs."""
    import cupy

    case = json.loads((HERE / "case.json").read_text(encoding="utf-8"))
    arrays = {each["name"]: _make_array(each) for each in case["arguments"] if "shape" in each}
    values = [value for each in case["arguments"] for value in _list_values(each, arrays)]
    functions = [
        cupy.RawModule(path=str(HERE / f"{side}.cubin")).get_function(case["symbols"][side])
        for side in ("base", "head")
    ]
    before = {each["name"]: arrays[each["name"]].copy() for each in case["arguments"] if each.get("written")}
    outputs: list[dict[str, Any]] = []
    for function in functions:
        for name, kept in before.items():
            arrays[name][...] = kept
        function(tuple(case["grid"]), (1,), tuple(values))
        outputs.append({name: _as_float(arrays[name], case["dtypes"][name]) for name in before})
    flushed = cupy.empty(2 * cupy.cuda.Device().attributes["L2CacheSize"], dtype=cupy.uint8)
    times: list[list[float]] = [[], []]
    busy_s = 0.0
    for number in range(WARM_UP_ROUNDS + ROUNDS):
        for side in (0, 1) if number % 2 else (1, 0):
            start, stop = cupy.cuda.Event(), cupy.cuda.Event()
            flushed.data.memset_async(0, flushed.nbytes)
            start.record()
            functions[side](tuple(case["grid"]), (1,), tuple(values))
            stop.record()
            stop.synchronize()
            time_ms = cupy.cuda.get_elapsed_time(start, stop)
            busy_s += time_ms / 1000
            if number >= WARM_UP_ROUNDS:
                times[side].append(1000 * time_ms)
        if busy_s > REST_EVERY_S:
            time.sleep(REST_S)
            busy_s = 0.0
    return statistics.median(times[0]), statistics.median(times[1]), max(_compare(outputs, name) for name in before)


def _make_array(argument: dict[str, Any]) -> Any:
    """Returns an array for an argument, with its given values, zeros or random values."""
    import cupy
    import numpy as np

    shape, dtype = tuple(argument["shape"]), argument["dtype"]
    if argument["values"] is not None:
        given = argument["values"]
        values = np.frombuffer(base64.b64decode(given["base64"]), np.dtype(given["dtype"]).newbyteorder("<"))
        return cupy.asarray(values.reshape(given["shape"]).astype(RAW.get(dtype, dtype)))
    if argument["output"]:
        return cupy.zeros(shape, dtype=RAW.get(dtype, dtype))
    values = cupy.random.standard_normal(shape, dtype=cupy.float32)
    if argument["fill"] == "scale":
        values = cupy.exp2(values if dtype == "float8_e8m0fnu" else 0.25 * values)
    if dtype == "float8_e8m0fnu":
        return (cupy.rint(cupy.log2(values)) + 127).astype(cupy.uint8)
    if dtype == "bfloat16":
        return (values.view(cupy.uint32) >> 16).astype(cupy.uint16)
    if dtype == "float8_e4m3fn":  # a sign, 4 bits of exponent biased by 7, 3 bits of fraction
        bits = values.view(cupy.uint32)
        exponent = ((bits >> 23) & 0xFF).astype(cupy.int32) - 127 + 7
        code = (cupy.maximum(exponent, 1) << 3) | ((bits >> 20) & 7).astype(cupy.int32)
        return (code | ((bits >> 24) & 0x80).astype(cupy.int32)).astype(cupy.uint8)
    return values.astype(dtype)


RAW = {"float8_e4m3fn": "uint8", "float8_e8m0fnu": "uint8", "bfloat16": "uint16"}


def _list_values(argument: dict[str, Any], arrays: dict[str, Any]) -> list[Any]:
    """Returns the values that cuTile passes for an argument, such as an array's pointer, shape and strides."""
    import cupy

    if "shape" not in argument:
        return [getattr(cupy, argument["dtype"])(argument["value"])]
    shape, strides = argument["shape"], [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return [arrays[argument["name"]], *(cupy.int32(size) for size in (*shape, *strides))]


def _as_float(array: Any, dtype: str) -> Any:
    import cupy

    if dtype == "bfloat16":
        return (array.astype(cupy.uint32) << 16).view(cupy.float32)
    return array.astype(cupy.float32)


def _compare(outputs: list[dict[str, Any]], name: str) -> float:
    import cupy

    base, head = (each[name] for each in outputs)
    is_same = (base == head) | (cupy.isnan(base) & cupy.isnan(head))
    distance = cupy.where(is_same, 0.0, cupy.abs(base - head))
    distance = cupy.where(cupy.isnan(distance), cupy.inf, distance)
    largest = cupy.where(cupy.isfinite(base), cupy.abs(base), 0.0).max()
    return float(distance.max() / cupy.maximum(largest, 1e-30))


if __name__ == "__main__":
    main()
