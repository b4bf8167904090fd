"""Child role `gpu`: owns one GPU's context; prepares a problem, checks and times configs, runs paired rounds.

Each request names what to do; the parent (kernels/measuring/sweep.py) decides what to try next and survives what
happens here.
"""

import os
import random
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cupy

from tilewatch.kernels import baselines
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.kernels.contract import Array, Config, Kernel, Problem
from tilewatch.kernels.gpu import arrays, canary, timing
from tilewatch.kernels.gpu.telemetry import Telemetry
from tilewatch.kernels.loading import load
from tilewatch.kernels.signature import element_bytes, strides

INPUT_L2S = 4
"""Inputs rotate over at least this many times L2, so that no launch finds its own there, beyond flushing it."""

INPUT_BUDGET = 0.25
"""Share of the GPU's memory that input sets may take."""

BURST_US = 8_000.0
REST_S = 0.04
"""Launches come in bursts with rests between them. Without rests an H200 meets its power cap after some 50 ms of FP8
products, and the same cubin goes from 174 us to 199 us while DeepGEMM goes from 150 us to 156 us (2026-11): the ratio
would tell how long the GPU had been busy. With rests the clock stays where it is."""

HOPELESS = 5.0
"""A checked launch this many times slower than the best known gets no further samples: the unluckiest sample seen on an
H200 was 3 times its median (2026-11), and launches this slow would take most of the sweep's GPU time."""


@dataclass(frozen=True)
class Loaded:
    config: Config
    grid: tuple[int, int, int]
    function: Any


@dataclass
class Session:
    """One prepared problem: its inputs, its expected output, and the configs loaded so far by id."""

    kernel: Kernel
    problem: Problem
    store: CubinStore
    timer: timing.Timer
    telemetry: Telemetry
    sm_count: int
    specs: tuple[Array, ...]
    inputs: list[dict[str, Any]]
    outputs: dict[str, Any]
    expected: dict[str, Any]
    scale: dict[str, float]
    loaded: dict[int, Loaded]
    rivals: dict[str, tuple[baselines.Rival, tuple[str, ...]]]
    modules: tempfile.TemporaryDirectory[str]


Entry = tuple[Callable[[int], None], tuple[str, ...]]
"""A launch that takes the number of the input set, and the names of the kernels it runs."""

_session: Session | None = None


def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
    global _session
    if request["ask"] == "prepare":
        _session = _prepare(request)
        return _introduction(_session)
    assert _session is not None, "prepare comes first"
    asks: dict[str, Callable[[Session, Mapping[str, Any]], Mapping[str, Any]]] = {
        "trial": _trial,
        "load": _load,
        "time": _time,
        "baselines": _baselines,
        "rounds": _rounds,
        "canary": lambda session, asked: {"telemetry": {"when": asked["when"], **canary.canary(session.timer)}},
        "telemetry": lambda session, asked: {"telemetry": session.telemetry.read(asked["when"])},
    }
    return asks[request["ask"]](_session, request)


def _prepare(request: Mapping[str, Any]) -> Session:
    kernel = load(Path(request["library"]))[request["kernel"]].kernel
    problem = kernel.parse(request["problem"])
    specs = kernel.arrays(problem)
    generator = cupy.random.default_rng(request["seed"])
    one_set = sum(_bytes(spec) for spec in specs if not spec.output)
    device = cupy.cuda.Device()
    enough = -(-INPUT_L2S * device.attributes["L2CacheSize"] // one_set)
    sets = max(1, min(enough, int(INPUT_BUDGET * device.mem_info[1] / one_set)))
    given = kernel.given(problem) if kernel.given else {}
    inputs = [{spec.name: _input(spec, generator, given) for spec in specs if not spec.output} for _ in range(sets)]
    decoded = {spec.name: arrays.decode(inputs[0][spec.name], spec.dtype) for spec in specs if not spec.output}
    expected = {name: value.astype(cupy.float32) for name, value in kernel.reference(decoded, cupy).items()}
    del decoded
    session = Session(
        kernel=kernel,
        problem=problem,
        store=CubinStore(request["store"]),
        timer=timing.timer(request.get("timer")),
        telemetry=Telemetry(_uuid()),
        sm_count=cupy.cuda.Device().attributes["MultiProcessorCount"],
        specs=specs,
        inputs=inputs,
        outputs={spec.name: arrays.poisoned(spec) for spec in specs if spec.output},
        expected=expected,
        scale={name: float(cupy.nanmax(cupy.abs(value))) for name, value in expected.items()},
        loaded={},
        rivals={},
        modules=tempfile.TemporaryDirectory(prefix="tilewatch-cubins-"),
    )
    cupy.get_default_memory_pool().free_all_blocks()
    for spec in specs:  # the comparing kernel is compiled now, outside the time of any trial
        if spec.output:
            arrays.largest_error(session.outputs[spec.name], spec.dtype, expected[spec.name])
    return session


def _input(spec: Array, generator: Any, given: Mapping[str, Any]) -> Any:
    return cupy.asarray(given[spec.name]) if spec.fill == "given" else arrays.random(spec, generator)


def _introduction(session: Session) -> Mapping[str, Any]:
    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    return {
        "gpu_name": properties["name"].decode(),
        "gpu_uuid": _uuid(),
        "timer": session.timer.name,
        "cuda_driver": _version(cupy.cuda.runtime.driverGetVersion()),
        "sm_count": session.sm_count,
        "element_bytes": element_bytes(session.kernel, session.problem),
        "telemetry": session.telemetry.read("prepared"),
    }


def _trial(session: Session, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Load, check against the reference, then time: a wrong config is never timed."""
    misfit = _misfit(session, request)
    if misfit is not None:
        return {"status": "wrong", "error": None, "failure": misfit}
    try:
        loaded = _load_cubin(session, request)
        _poison(session)
        (checked_us,) = session.timer.time([lambda: _launch(session, loaded, 0)], [_kernel_names(session)])
        error = _error(session)
    except cupy.cuda.driver.CUDADriverError as failure:
        return _failure("launch_error", failure)
    except (cupy.cuda.runtime.CUDARuntimeError, timing.TimingError) as failure:
        return _failure("crashed" if _context_is_dead() else "launch_error", failure)
    limit = session.kernel.tolerance(session.problem)
    if not error <= limit:
        what = "left elements unwritten" if error == float("inf") else f"is off by {error:.3g} of its largest value"
        return {"status": "wrong", "error": None if error == float("inf") else error,
                "failure": f"the output {what}; at most {limit:.3g} is accepted"}  # fmt: skip
    session.loaded[request["id"]] = loaded
    if request["best_us"] is not None and checked_us > HOPELESS * request["best_us"]:
        return {"status": "timed", "error": error, "samples_us": [checked_us]}
    try:
        # No rests here: hundreds of configs would wait, and racing.py knows that a first sample may meet the power cap.
        samples = _sample(session, [request["id"]], request["samples"], rest=False)[0]
    except (cupy.cuda.runtime.CUDARuntimeError, timing.TimingError) as failure:
        return _failure("crashed" if _context_is_dead() else "launch_error", failure)
    return {"status": "timed", "error": error, "samples_us": samples}


def _load(session: Session, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """A config that was checked before this process was started."""
    session.loaded[request["id"]] = _load_cubin(session, request)
    return {}


def _time(session: Session, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """More samples of configs already checked, in rounds of random order."""
    return {"samples_us": _sample(session, request["ids"], request["samples"])}


def _baselines(session: Session, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Prepare the rivals and check them against the same reference."""
    found: dict[str, Any] = {}
    (output,) = session.outputs.values()
    dtypes = {spec.name: spec.dtype for spec in session.specs}
    moved = session.kernel.bytes(session.problem)
    call = baselines.Call(session.kernel.name, session.inputs[0], output, dtypes, session.problem.sizes, moved)
    for name in request["names"]:
        try:
            said = _Capture()
            with said:
                rival = baselines.build(name, call)
                error = _check(session, partial(_answer, rival)) if rival.solves else 0.0
            kernels = session.timer.names(rival.launch)
        except (baselines.BaselineMissing, Exception) as failure:  # noqa: BLE001 - a rival's failure must not cost the run
            found[name] = {"missing": f"{failure}".strip().splitlines()[0] if f"{failure}" else type(failure).__name__}
            continue
        detail = {**rival.detail, "kernels": list(kernels), "error": error, "chose": said.lines}
        if not error <= 2 * session.kernel.tolerance(session.problem):
            found[name] = {**detail, "missing": f"its output is off by {error:.3g} of the largest value"}
            continue
        session.rivals[name] = (rival, kernels)
        found[name] = detail
    return {"baselines": found}


def _rounds(session: Session, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Paired rounds of configs and rivals: each round launches every one of them once, in random order."""
    entries: list[Entry] = []
    for identity in request["ids"]:
        loaded = session.loaded[identity]
        entries.append((partial(_launch, session, loaded), _kernel_names(session)))
    for name in request["names"]:
        rival, kernels = session.rivals[name]
        entries.append((partial(_launch_rival, rival), kernels))
    order = random.Random(request["seed"])  # noqa: S311 - an order, not a secret
    before = session.telemetry.read("before rounds")
    samples = _in_rounds(session.timer, entries, request["rounds"], order, session)
    return {"samples_us": samples, "telemetry": [before, session.telemetry.read("after rounds")]}


def _sample(session: Session, ids: list[int], rounds: int, *, rest: bool = True) -> list[list[float]]:
    names = _kernel_names(session)
    order = random.Random(len(session.loaded))  # noqa: S311 - an order, not a secret
    entries: list[Entry] = [(partial(_launch, session, session.loaded[each]), names) for each in ids]
    return _in_rounds(session.timer, entries, rounds, order, session, rest=rest)


def _in_rounds(
    timer: timing.Timer,
    entries: list[Entry],
    rounds: int,
    order: random.Random,
    session: Session,
    *,
    rest: bool = True,
) -> list[list[float]]:
    """samples[i][r]: microseconds of entry i in round r."""
    samples: list[list[float]] = [[] for _ in entries]
    turn, burst = 0, 1
    while turn < rounds:
        launches, names, places = [], [], []
        for each in range(turn, min(turn + burst, rounds)):
            for index in order.sample(range(len(entries)), len(entries)):
                launch, kernels = entries[index]
                launches.append(partial(launch, each % len(session.inputs)))
                names.append(kernels)
                places.append(index)
        times = timer.time(launches, names)
        for index, time_us in zip(places, times, strict=True):
            samples[index].append(time_us)
        turn += burst
        burst = max(1, int(BURST_US / (sum(times) / burst)))
        if rest and turn < rounds and sum(times) > BURST_US / 4:
            time.sleep(REST_S)
    return samples


def _check(session: Session, launch: Callable[[], None]) -> float:
    """Poison the outputs, launch, and return the largest error."""
    _poison(session)
    launch()
    cupy.cuda.get_current_stream().synchronize()
    return _error(session)


def _poison(session: Session) -> None:
    for output in session.outputs.values():
        arrays.poison(output)


def _error(session: Session) -> float:
    """Largest difference of the outputs from the reference, as a share of the reference's largest magnitude."""
    dtypes = {spec.name: spec.dtype for spec in session.specs}
    return max(
        arrays.largest_error(output, dtypes[name], session.expected[name]) / session.scale[name]
        for name, output in session.outputs.items()
    )


def _load_cubin(session: Session, request: Mapping[str, Any]) -> Loaded:
    # One path per cubin: CuPy's RawModule remembers modules by path.
    path = Path(session.modules.name) / f"{request['content_key']}.cubin"
    if not path.exists():
        path.write_bytes(session.store.cubin(request["content_key"]))
    function = cupy.RawModule(path=str(path)).get_function(request["symbol"])
    kernel = _libraries_kernel(session, request) or session.kernel
    grid = kernel.grid(session.problem, request["config"], session.sm_count)
    return Loaded(request["config"], grid, function)


def _libraries_kernel(session: Session, request: Mapping[str, Any]) -> Kernel | None:
    """The kernel as its own commit has it: a side of a replay comes with its library, for its grid is from there."""
    if request.get("library") is None:
        return session.kernel
    found = load(Path(request["library"])).get(session.kernel.name)
    return None if found is None else found.kernel


def _misfit(session: Session, request: Mapping[str, Any]) -> str | None:
    """Why a side of a replay is not comparable with the session's own library; None when it is."""
    if request.get("library") is None:
        return None
    kernel = _libraries_kernel(session, request)
    if kernel is None:
        return f"the library of that commit has no kernel {session.kernel.name}"
    if tuple(kernel.arrays(session.problem)) != session.specs:
        return "that commit lays the arrays out differently, so it is not the same work"
    return None


def _launch(session: Session, loaded: Loaded, turn: int) -> None:
    """cuTile's calling convention 1: per array its pointer, its shape and its strides, all int32; no constants."""
    arguments: list[Any] = []
    for spec in session.specs:
        arguments.append(session.outputs[spec.name] if spec.output else session.inputs[turn][spec.name])
        arguments += [cupy.int32(size) for size in (*spec.shape, *strides(spec.shape))]
    loaded.function(loaded.grid, (1,), tuple(arguments))


def _answer(rival: baselines.Rival) -> None:
    rival.launch()
    if rival.settle is not None:
        rival.settle()


def _launch_rival(rival: baselines.Rival, _: int) -> None:
    rival.launch()  # rivals hold on to the first input set; L2 is flushed before every launch all the same


def _kernel_names(session: Session) -> tuple[str, ...]:
    return (session.kernel.name,) if session.timer.name == "cupti" else ("launch",)


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


def _bytes(spec: Array) -> int:
    size: int = arrays.raw_dtype(spec)().itemsize
    for length in spec.shape:
        size *= length
    return size


def _uuid() -> str:
    raw = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["uuid"]
    hexed = bytes(raw).hex()[:32]
    return f"GPU-{hexed[:8]}-{hexed[8:12]}-{hexed[12:16]}-{hexed[16:20]}-{hexed[20:]}"


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


class _Capture:
    """What native code prints on standard output meanwhile (DeepGEMM prints the settings it chose)."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __enter__(self) -> None:
        self._file = tempfile.TemporaryFile()
        self._kept = os.dup(1)
        os.dup2(self._file.fileno(), 1)

    def __exit__(self, *_: object) -> None:
        import ctypes

        ctypes.CDLL(None).fflush(None)
        os.dup2(self._kept, 1)
        os.close(self._kept)
        self._file.seek(0)
        self.lines = [line.strip() for line in self._file.read().decode(errors="replace").splitlines() if line.strip()]
        self._file.close()
