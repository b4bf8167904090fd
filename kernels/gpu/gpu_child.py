"""Prepares a problem, and checks and times its configs and baselines, in a child process that holds the GPU."""

import gc
import math
import os
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import cupy

from tilewatch.kernels.baselines.baseline import BaselineLaunch, BaselineMissing
from tilewatch.kernels.baselines.names import find_library
from tilewatch.kernels.baselines.stdout_capture import StdoutCapture
from tilewatch.kernels.gpu import references, timing
from tilewatch.kernels.gpu.guards import WRITES_OUTSIDE, WROTE_OUTSIDE
from tilewatch.kernels.gpu.health import canary
from tilewatch.kernels.gpu.host_code import prepared_launches
from tilewatch.kernels.gpu.host_code.prepared_launches import PreparedLaunches
from tilewatch.kernels.gpu.loaded_libraries import read_loaded_versions
from tilewatch.kernels.gpu.prepared_problem import PreparedProblem, prepare, take_references
from tilewatch.kernels.gpu.result_error import NO_ERROR, ResultError
from tilewatch.kernels.gpu.rounds import Checks, Entry, TimedRounds, WrongWhenTimed, time_rounds
from tilewatch.kernels.library_errors import LibraryError

if TYPE_CHECKING:  # it needs PyTorch
    from tilewatch.kernels.gpu.host_code.prepared_operator import PreparedOperator

HOPELESS = 5.0
"""A config whose first launch takes this many times the best median so far gets no further samples. Such configs would
take most of the GPU time. The largest single sample on an H200 was 3 times its config's median (2026-11)."""


MOST_TOLERANCE = 0.25
"""The largest tolerance that a library file may state, as a share of the reference's largest magnitude. Our own library
files state 0.04 at most (2026-11). With a tolerance of 1, an output of zeros would pass."""

BASELINE_SLACK = 4.0
"""Factor on the tolerance of baselines, because other libraries round differently. torch_mla_decode rounds scores to
bfloat16. Its error is 1.3 to 2.9 tolerances, depending on the random inputs (H200, 2026-11-29). With a factor of 2 it
was accepted in one night and refused in the next night."""

UUID_BYTES = 16
Prepared: TypeAlias = "PreparedProblem | PreparedLaunches | PreparedOperator"
"""One problem prepared on this GPU. It is a problem of a library file's kernel, of a watched operator whose launches
are repeated from a description, or of a watched operator whose host code this process runs."""

_prepared: "Prepared | None" = None
_timer: timing.Timer | None = None
"""The timer that all problems share, because CUPTI allows one timer per process."""

MOST_SERIES = 32
"""Most series that one process measures, because their machine code stays loaded until the process ends."""

_series = 0
_has_failed = False
"""Whether anything failed in this process, in any series. After a failure the process measures no further series."""

_draws = random.SystemRandom()
"""Draws which launches are compared. It is not seeded, so no commit can predict them."""


def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
    if request["ask"] == "start timer":  # creates the CUDA context too, while the library is still imported elsewhere
        _start_timer(None)
        return {}
    if request["ask"] == "take reference":
        return references.take_ahead(request)
    if request["ask"] == "prepare":
        return begin(
            partial(prepared_launches.prepare if "operators" in request else prepare, request), request.get("timer")
        )
    if request["ask"] == "is fit":
        return {"is_fit": _is_fit()}
    if request["ask"] == "free":
        _free_prepared()
        return {}
    assert _prepared is not None, "prepare comes first"
    began_unix_s = time.time()
    try:
        answered = ANSWERS[request["ask"]](_prepared, request)
    except WrongWhenTimed as wrong:
        changed = _prepared.restore_inputs()  # later configs read the same inputs
        answered = {"wrong": str(wrong) if changed is None else f"{wrong}; '{changed}', which is an input, was changed"}
        if wrong.entry is not None and changed is None:  # a changed input makes the results of other entries wrong
            answered["id"] = request["ids"][wrong.entry]
    if "wrong" in answered or answered.get("status", "timed") != "timed":
        _note_failure()
        return answered
    if request["ask"] not in WITH_LOOK:
        return answered
    return {**answered, "seen": _prepared.telemetry.list_processes(began_unix_s)}


def begin(make: Callable[[str, timing.Timer], Prepared], wanted_timer: str | None) -> Mapping[str, Any]:
    """Prepares a new problem in place of the old one. Returns facts about the problem and the GPU."""
    global _prepared, _series
    _free_prepared()  # before the arrays of the new problem are made
    _series += 1
    _prepared = make(_read_uuid(), _start_timer(wanted_timer))
    if (tolerance := _prepared.tolerance) is not None and not 0 <= tolerance <= MOST_TOLERANCE:
        raise LibraryError(f"its tolerance is {tolerance:g}; at most {MOST_TOLERANCE:g} is accepted")
    return _introduce(_prepared)


def _is_fit() -> bool:
    """Returns whether this process may measure another problem."""
    # No kernel is launched, because another process may measure now.
    return not _has_failed and _series < MOST_SERIES and not _is_context_dead(may_launch=False)


def _free_prepared() -> None:
    global _prepared
    if _prepared is None:
        return
    if isinstance(_prepared, PreparedProblem | PreparedLaunches):
        _prepared.modules.cleanup()
    _prepared = None
    gc.collect()
    cupy.get_default_memory_pool().free_all_blocks()
    if "torch" in sys.modules:
        sys.modules["torch"].cuda.empty_cache()


def _note_failure() -> None:
    global _has_failed
    _has_failed = True


def _start_timer(wanted: str | None) -> timing.Timer:
    global _timer
    _timer = _timer or timing.timer(wanted)
    return _timer


def _introduce(prepared: Prepared) -> Mapping[str, Any]:
    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    cuda_driver = cupy.cuda.runtime.driverGetVersion()
    return {
        "gpu_name": properties["name"].decode(),
        "gpu_uuid": _read_uuid(),
        "timer": prepared.timer.name,
        "cuda_driver": f"{cuda_driver // 1000}.{cuda_driver % 1000 // 10}",
        "sm_count": prepared.sm_count,
        "element_bytes": prepared.element_bytes,
        "sizes": dict(prepared.described.sizes) if isinstance(prepared, PreparedProblem) else {},
        "work": prepared.work,
        "unchecked": getattr(prepared, "unchecked", ""),
        "telemetry": prepared.telemetry.read("prepared"),
    }


def _expect(prepared: Prepared, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Adds reference results to a prepared problem. Returns facts about the problem and the GPU."""
    assert isinstance(prepared, PreparedProblem)
    if "place" in request:
        prepared.expect(references.use(request["place"]))
    else:
        prepared.expect(take_references(prepared.described, request["outputs"]))
    return _introduce(prepared)


def _try_config(prepared: Prepared, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Checks and times a config. Returns a status, and samples in microseconds or an error message."""
    misfit = prepared.find_misfit(request)
    if misfit is not None:
        return {"status": "wrong", "error": None, "failure": misfit}
    try:
        config: Any = prepared.load(request)
        turn = _draws.choice(prepared.checked_sets)
        checked_us, error = prepared.verify(config, turn)
    except WrongWhenTimed as wrong:
        return {"status": "wrong", "error": None, "failure": str(wrong), "is_final": True}
    except cupy.cuda.driver.CUDADriverError as failed:
        return _make_failure("launch_error", failed)
    except (cupy.cuda.runtime.CUDARuntimeError, timing.TimingError) as failed:
        return _make_launch_failure(prepared, failed)
    failure = error.failure
    changed = prepared.restore_inputs()
    outside = prepared.restore_guards()
    if outside is not None:
        return {"status": "wrong", "error": None, "failure": f"{WRITES_OUTSIDE}: {outside}", "is_final": True}
    if failure is None and changed is not None:
        failure = f"it writes into '{changed}', which is an input"
    if failure is not None:
        share = None if math.isinf(error.largest) else error.largest
        return {"status": "wrong", "error": share, "failure": failure}
    prepared.keep(request["id"], config)
    if request["best_us"] is not None and checked_us > HOPELESS * request["best_us"]:
        return {"status": "timed", "error": error.largest, "samples_us": [checked_us]}
    try:
        # No rests here: they would delay hundreds of configs, and racing.py allows for a first sample at the power cap.
        others = [each for each in prepared.checked_sets if each != turn]
        samples = _take_samples(prepared, [request["id"]], request["samples"], sets=others, rest=False)[0]
    except WrongWhenTimed as wrong:
        prepared.restore_inputs()
        return {"status": "wrong", "error": None, "failure": str(wrong), "is_final": True}
    except (cupy.cuda.runtime.CUDARuntimeError, timing.TimingError) as failed:
        return _make_launch_failure(prepared, failed)
    return {"status": "timed", "error": error.largest, "samples_us": samples}


def _load(prepared: Prepared, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Loads a config that an earlier process has checked."""
    config: Any = prepared.load(request)
    prepared.keep(request["id"], config)
    return {}


def _time(prepared: Prepared, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns further samples of checked configs, in microseconds."""
    return {"samples_us": _take_samples(prepared, request["ids"], request["samples"])}


def _prepare_baselines(prepared: Prepared, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Prepares baselines, checks their results unless `only_launched`, and returns details by baseline name."""
    details: dict[str, Any] = {}
    for name in request["names"]:
        try:
            printed = StdoutCapture()
            with printed:
                baseline = prepared.build_baseline(name)
                error = NO_ERROR
                if baseline.solves and not request.get("only_launched"):
                    error = _verify_baseline(prepared, name, baseline)
            kernels = prepared.timer.names(baseline.launch)
            versions = read_loaded_versions(find_library(name))
        except (BaselineMissing, Exception) as failure:  # noqa: BLE001 - a baseline's failure must not cost the run
            if not (isinstance(failure, BaselineMissing) or request.get("only_launched")):
                _note_failure()
            lines = str(failure).strip().splitlines()
            details[name] = {"missing": lines[0] if lines else type(failure).__name__}
            continue
        detail = {**baseline.detail, "error": error.largest, "chose": printed.lines}
        if versions:
            detail["library"] = " and ".join(versions)
        if prepared.timer.name == "cupti":  # events see no kernels
            detail["kernels"] = list(kernels)
            if not kernels or baseline.kernels not in (None, len(kernels)):  # no time is taken of copies
                sentence = f"its launch runs {len(kernels)} kernels, where it should run {baseline.kernels or 'some'}"
                details[name] = {**detail, "missing": sentence}
                continue
        if error.failure is not None:
            details[name] = {**detail, "missing": error.failure}
            continue
        prepared.baselines[name] = (baseline, kernels)
        details[name] = detail
    return {"baselines": details}


def _verify_baseline(prepared: Prepared, name: str, baseline: BaselineLaunch) -> ResultError:
    """Returns the error of a baseline's results on several sets of inputs."""
    error = prepared.verify_baseline(baseline, 0, BASELINE_SLACK)
    # A baseline is bound to one set of inputs.
    for turn in prepared.checked_sets[1:]:
        if error.failure is None:
            with StdoutCapture():  # it prints its choice once more
                error = prepared.verify_baseline(prepared.build_baseline(name, turn), turn, BASELINE_SLACK)
    return error


def _run_rounds(prepared: Prepared, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Times configs and baselines in rounds. Returns microseconds and GPU telemetry, or a reason under "no_graph"."""
    before = prepared.telemetry.read("before rounds")
    try:
        entries = [prepared.entry(identity, as_graph=request.get("as_graph", False)) for identity in request["ids"]]
        for name in request["names"]:
            baseline, kernels = prepared.baselines[name]
            entries.append(Entry(partial(_launch_baseline, baseline), kernels))
        timed = _time_entries(prepared, entries, request["rounds"], seed=request["seed"])
        if not request["names"]:  # nothing shows beforehand whether a baseline writes into its inputs
            _refuse_changed_input(prepared)
    except (cupy.cuda.driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError, timing.TimingError) as failed:
        if not request.get("as_graph"):
            raise
        return {"no_graph": f"{type(failed).__name__}: {failed}".splitlines()[0]}
    telemetry = [before, prepared.telemetry.read("after rounds")]
    return {"samples_us": timed.times_us, "spans_us": timed.spans_us, "telemetry": telemetry}


def _describe(prepared: Prepared, request: Mapping[str, Any]) -> Mapping[str, Any]:
    described = prepared.describe(request)
    return {"missing": described} if isinstance(described, str) else {"described": asdict(described)}


def _run_canary(prepared: Prepared, request: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"telemetry": {"when": request["when"], **canary.canary(prepared.timer)}}


def _look(_: Prepared, __: Mapping[str, Any]) -> Mapping[str, Any]:
    """Does nothing. `answer` adds the GPU's other processes to the empty result."""
    return {}


ANSWERS: Mapping[str, Callable[[Prepared, Mapping[str, Any]], Mapping[str, Any]]] = {
    "look": _look,
    "expect": _expect,
    "trial": _try_config,
    "load": _load,
    "time": _time,
    "baselines": _prepare_baselines,
    "rounds": _run_rounds,
    "parts": lambda prepared, request: {"parts_us": prepared.time_parts(request["id"], request["rounds"])},
    "describe": _describe,
    "canary": _run_canary,
}

WITH_LOOK = ("look", "trial", "time", "rounds", "parts", "canary")
"""Requests whose answers list the other processes that used the GPU while the request was answered. Times measured
beside such a process are discarded (kernels/measuring/other_processes.py)."""


def _take_samples(
    prepared: Prepared, ids: list[int], rounds: int, *, sets: Sequence[int] = (), rest: bool = True
) -> list[list[float]]:
    """Returns samples in microseconds, one list per config. Raises WrongWhenTimed if a result is wrong."""
    entries = [prepared.entry(identity) for identity in ids]
    timed = _time_entries(prepared, entries, rounds, seed=len(prepared.loaded), sets=sets, rest=rest)
    _refuse_changed_input(prepared)
    return timed.times_us


def _refuse_changed_input(prepared: Prepared) -> None:
    if (changed := prepared.restore_inputs()) is not None:
        raise WrongWhenTimed(f"when it was timed, it wrote into '{changed}', which is an input")


def _time_entries(
    prepared: Prepared, entries: list[Entry], rounds: int, *, seed: int, sets: Sequence[int] = (), rest: bool = True
) -> TimedRounds:
    timing.forbid_persisting_l2()  # host code in this process may have allowed it
    try:
        return time_rounds(
            prepared.timer,
            entries,
            rounds,
            input_sets=prepared.input_sets,
            checks=Checks(sets or prepared.checked_sets, _draws),
            order=random.Random(seed),  # noqa: S311 - an order, not a secret
            before=prepared.reset_outputs,
            rest=rest,
        )
    finally:
        if (outside := prepared.restore_guards()) is not None:
            raise WrongWhenTimed(f"{WROTE_OUTSIDE}: {outside}")


def _launch_baseline(baseline: BaselineLaunch, _: int) -> None:
    baseline.launch()  # a baseline keeps its first input set; L2 is flushed before every launch all the same


def _make_launch_failure(prepared: Prepared, failure: Exception) -> dict[str, Any]:
    if _is_context_dead():
        return _make_failure("crashed", failure)
    prepared.restore_inputs()  # the next config is not to blame for what this one wrote
    prepared.restore_guards()
    return _make_failure("launch_error", failure)


def _make_failure(status: str, failure: Exception) -> dict[str, Any]:
    return {"status": status, "failure": f"{type(failure).__name__}: {failure}".splitlines()[0]}


def _is_context_dead(*, may_launch: bool = True) -> bool:
    """Returns whether a fault makes every further CUDA call fail."""
    try:
        cupy.cuda.runtime.deviceSynchronize()
        if may_launch:
            cupy.zeros(1).sum().get()
    except cupy.cuda.runtime.CUDARuntimeError:
        return True
    return False


def _read_uuid() -> str:
    """Returns the GPU's UUID."""
    # CuPy 14.2 cuts a UUID off at its first zero byte, and one in 17 has such a byte (H200, 2026-11-23).
    raw = bytes(cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["uuid"])[:UUID_BYTES]
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if len(raw) < UUID_BYTES and named.removeprefix("GPU-").replace("-", "").startswith(f"{raw.hex()}00"):
        return named
    hexed = raw.ljust(UUID_BYTES, b"\0").hex()
    return f"GPU-{hexed[:8]}-{hexed[8:12]}-{hexed[12:16]}-{hexed[16:20]}-{hexed[20:]}"
