"""Child role `gpu`: owns one GPU's context; prepares a problem, checks and times configs, runs paired rounds.

The parent (kernels/measuring/sweep.py) decides what to try next and survives what happens here.
"""

import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import cupy

from tilewatch.kernels import baselines
from tilewatch.kernels.gpu import canary, timing
from tilewatch.kernels.gpu.prepared_problem import PreparedProblem, find_misfit, load_cubin, prepare
from tilewatch.kernels.gpu.rounds import Entry, time_rounds
from tilewatch.kernels.gpu.stdout_capture import StdoutCapture
from tilewatch.kernels.signature import element_bytes

HOPELESS = 5.0
"""A checked launch this many times slower than the best known gets no further samples: the unluckiest sample seen on an
H200 was 3 times its median (2026-11), and launches this slow would take most of the sweep's GPU time."""

_prepared: PreparedProblem | None = None


def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
    global _prepared
    if request["ask"] == "prepare":
        _prepared = prepare(request, _uuid())
        return _introduction(_prepared)
    assert _prepared is not None, "prepare comes first"
    return ANSWERS[request["ask"]](_prepared, request)


def _introduction(prepared: PreparedProblem) -> Mapping[str, Any]:
    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    return {
        "gpu_name": properties["name"].decode(),
        "gpu_uuid": _uuid(),
        "timer": prepared.timer.name,
        "cuda_driver": _version(cupy.cuda.runtime.driverGetVersion()),
        "sm_count": prepared.sm_count,
        "element_bytes": element_bytes(prepared.kernel, prepared.problem),
        "telemetry": prepared.telemetry.read("prepared"),
    }


def _trial(prepared: PreparedProblem, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Loads, checks against the reference, then times: a wrong config is never timed."""
    misfit = find_misfit(prepared, request)
    if misfit is not None:
        return {"status": "wrong", "error": None, "failure": misfit}
    try:
        config = load_cubin(prepared, request)
        prepared.reset_outputs()
        (checked_us,) = prepared.timer.time([lambda: prepared.launch(config, 0)], [prepared.kernel_names])
        error = prepared.error()
    except cupy.cuda.driver.CUDADriverError as failure:
        return _failure("launch_error", failure)
    except (cupy.cuda.runtime.CUDARuntimeError, timing.TimingError) as failure:
        return _failure("crashed" if _context_is_dead() else "launch_error", failure)
    limit = prepared.kernel.tolerance(prepared.problem)
    if not error <= limit:
        what = "left elements unwritten" if error == float("inf") else f"is off by {error:.3g} of its largest value"
        return {"status": "wrong", "error": None if error == float("inf") else error,
                "failure": f"the output {what}; at most {limit:.3g} is accepted"}  # fmt: skip
    prepared.loaded[request["id"]] = config
    if request["best_us"] is not None and checked_us > HOPELESS * request["best_us"]:
        return {"status": "timed", "error": error, "samples_us": [checked_us]}
    try:
        # No rests here: hundreds of configs would wait, and racing.py knows that a first sample may meet the power cap.
        samples = _sample(prepared, [request["id"]], request["samples"], rest=False)[0]
    except (cupy.cuda.runtime.CUDARuntimeError, timing.TimingError) as failure:
        return _failure("crashed" if _context_is_dead() else "launch_error", failure)
    return {"status": "timed", "error": error, "samples_us": samples}


def _load(prepared: PreparedProblem, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Loads a config that was checked before this process was started."""
    prepared.loaded[request["id"]] = load_cubin(prepared, request)
    return {}


def _time(prepared: PreparedProblem, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Takes more samples of configs already checked, in rounds of random order."""
    return {"samples_us": _sample(prepared, request["ids"], request["samples"])}


def _baselines(prepared: PreparedProblem, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Prepares the rivals and checks them against the same reference."""
    details: dict[str, Any] = {}
    call = baselines.Call(
        prepared.kernel.name,
        {name: array for name, array in prepared.inputs[0].items() if name not in prepared.outputs},
        prepared.outputs,
        {spec.name: spec.dtype for spec in prepared.specs},
        prepared.problem.sizes,
        prepared.kernel.bytes(prepared.problem),
    )
    for name in request["names"]:
        try:
            printed = StdoutCapture()
            with printed:
                rival = baselines.build(name, call)
                error = _check(prepared, rival) if rival.solves else 0.0
            kernels = prepared.timer.names(rival.launch)
        except (baselines.BaselineMissing, Exception) as failure:  # noqa: BLE001 - a rival's failure must not cost the run
            lines = str(failure).strip().splitlines()
            details[name] = {"missing": lines[0] if lines else type(failure).__name__}
            continue
        detail = {**rival.detail, "kernels": list(kernels), "error": error, "chose": printed.lines}
        if not error <= 2 * prepared.kernel.tolerance(prepared.problem):
            details[name] = {**detail, "missing": f"its output is off by {error:.3g} of the largest value"}
            continue
        prepared.rivals[name] = (rival, kernels)
        details[name] = detail
    return {"baselines": details}


def _rounds(prepared: PreparedProblem, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Runs paired rounds of configs and rivals."""
    entries = [_entry(prepared, identity) for identity in request["ids"]]
    for name in request["names"]:
        rival, kernels = prepared.rivals[name]
        entries.append((partial(_launch_rival, rival), kernels))
    order = random.Random(request["seed"])  # noqa: S311 - an order, not a secret
    before = prepared.telemetry.read("before rounds")
    samples = time_rounds(prepared.timer, entries, request["rounds"], input_sets=len(prepared.inputs), order=order)
    return {"samples_us": samples, "telemetry": [before, prepared.telemetry.read("after rounds")]}


def _canary(prepared: PreparedProblem, request: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"telemetry": {"when": request["when"], **canary.canary(prepared.timer)}}


ANSWERS: Mapping[str, Callable[[PreparedProblem, Mapping[str, Any]], Mapping[str, Any]]] = {
    "trial": _trial,
    "load": _load,
    "time": _time,
    "baselines": _baselines,
    "rounds": _rounds,
    "canary": _canary,
}


def _sample(prepared: PreparedProblem, ids: list[int], rounds: int, *, rest: bool = True) -> list[list[float]]:
    order = random.Random(len(prepared.loaded))  # noqa: S311 - an order, not a secret
    entries = [_entry(prepared, identity) for identity in ids]
    return time_rounds(prepared.timer, entries, rounds, input_sets=len(prepared.inputs), order=order, rest=rest)


def _entry(prepared: PreparedProblem, identity: int) -> Entry:
    return partial(prepared.launch, prepared.loaded[identity]), prepared.kernel_names


def _check(prepared: PreparedProblem, rival: baselines.Rival) -> float:
    """Resets the outputs, launches the rival, and returns the largest error."""
    prepared.reset_outputs()
    rival.launch()
    if rival.settle is not None:
        rival.settle()
    cupy.cuda.get_current_stream().synchronize()
    return prepared.error()


def _launch_rival(rival: baselines.Rival, _: int) -> None:
    rival.launch()  # rivals hold on to the first input set; L2 is flushed before every launch all the same


def _failure(status: str, failure: Exception) -> dict[str, Any]:
    return {"status": status, "failure": f"{type(failure).__name__}: {failure}".splitlines()[0]}


def _context_is_dead() -> bool:
    """After a fault every later call fails too; the parent then replaces this process."""
    try:
        cupy.cuda.runtime.deviceSynchronize()
        cupy.zeros(1).sum().get()
    except cupy.cuda.runtime.CUDARuntimeError:
        return True
    return False


def _uuid() -> str:
    raw = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["uuid"]
    hexed = bytes(raw).hex()[:32]
    return f"GPU-{hexed[:8]}-{hexed[8:12]}-{hexed[12:16]}-{hexed[16:20]}-{hexed[20:]}"


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"
