"""Replays two stored cubins of one kernel on one GPU, launch after launch in new processes.

A launch is its own GPU child: it checks both sides against the reference, times them in interleaved rounds, and yields
one median of each. What varies between processes (addresses, clocks, a mode that a process falls into) varies between
launches, so the spread of launches shows how certain the difference is. Each side brings its own commit's library,
because its grid may have changed too. This module does not judge the difference; if there is one, both sides are
profiled once after the last timing.
"""

import datetime as dt
import itertools
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from tilewatch.errors import ExpectedError
from tilewatch.kernels import device
from tilewatch.kernels.children.child_process import ChildDied, ChildHung
from tilewatch.kernels.gpu.host_code.described_run import Described
from tilewatch.kernels.measuring.description_schema import BadDescription
from tilewatch.kernels.measuring.gpu_processes import WATCHED, GpuProcesses, describe_side
from tilewatch.kernels.measuring.measure import MeasureFailed, usable_gpu
from tilewatch.kernels.measuring.preparation import Preparation
from tilewatch.kernels.measuring.profiling import count_pair
from tilewatch.kernels.measuring.sweep import (
    PREPARE_DEADLINE_S,
    GpuChild,
    GpuSetup,
    SweepFailed,
    describe,
    trial_request,
)
from tilewatch.kernels.results import Cubin, Params
from tilewatch.kernels.statistics import median_interval, ratio_interval

MOST_AHEAD = max(1, min(4, (os.cpu_count() or 1) // 4))
"""Most processes that import ahead at the same time. A launch holds the GPU for about a second, so four processes that
import for 2 to 4 s keep up with it."""

ROUNDS = 60
"""Timed rounds of a launch. Launches vary more than a median of this many rounds is uncertain (H200, 2026-11)."""

WARM_UP_ROUNDS = 20
"""Rounds that warm clocks and caches and are discarded."""

CHECK_SAMPLES = 2
ROUNDS_DEADLINE_S = 120.0

SPARE_LAUNCHES = 2
"""Launches of a replay that may die and are repeated (a GPU process that crashed, a driver that failed once)."""

LEAST_DIFFERENCE = 0.003
"""Least relative difference of the sides at which their counters are read. A smaller one confirms nothing, and reading
takes 6 s of the GPU."""

BASE, HEAD = 0, 1


class ReplayFailed(ExpectedError):
    """The sides cannot be compared, now or later; the message is a sentence that names the side."""


@dataclass(frozen=True)
class ReplaySide:
    """A cubin in the store, and the library folder of its commit."""

    library: Path
    cubin: Cubin


@dataclass(frozen=True)
class ReplayRequest:
    kernel: str
    problem: str
    arch: str
    store_url: str
    base: ReplaySide
    head: ReplaySide
    launches: int
    gpu_index: int
    host: str = field(default_factory=socket.gethostname)


@dataclass(frozen=True)
class ReplayResult:
    """The times of all launches: element i is the median of launch i. `counters` are those of the sides under "good"
    and "bad", or under "missing" why there are none; None if the sides do not differ."""

    host: str
    gpu_uuid: str
    gpu_name: str
    timer: Literal["cupti", "events", "simulated"]
    base_us: tuple[float, ...]
    head_us: tuple[float, ...]
    telemetry: tuple[Mapping[str, Any], ...]
    gpu_s: float
    started_at: dt.datetime
    finished_at: dt.datetime
    counters: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Launch:
    """The median of each side in one new process. `gpu_s` includes processes that died before it. `described` are the
    launches of both sides for a profiler, or why they cannot be described. `not_apart` comes from
    `describe_not_apart`."""

    base_us: float
    head_us: float
    timer: Literal["cupti", "events"]
    telemetry: tuple[Mapping[str, Any], ...]
    gpu_s: float
    described: Described | str = ()
    not_apart: str = ""


def describe_not_apart(introduction: Mapping[str, Any]) -> str:
    """Returns why the process that runs host code also measured it: the watch file's reason if it gives one. Empty if
    another process measured."""
    if introduction.get("library_runs_apart", True):
        return ""
    return str(introduction.get("stated") or introduction.get("not_apart"))


def replay(request: ReplayRequest, *, on_launch: Callable[[int], None]) -> ReplayResult:
    """Times two cubins in turn, each launch in a new process, and returns the times of all launches.

    Raises GpuMissing, GpuBusy, MeasureFailed (this GPU cannot be worked with) or ReplayFailed.
    """
    gpu = usable_gpu(request.gpu_index, request.arch)
    started_at = dt.datetime.now(dt.UTC)
    done: list[Launch] = []
    with ProcessesAhead(request.head.library, gpu, others=find_others(request)) as processes:
        for launch in itertools.islice(launches(request, gpu, processes), request.launches):
            done.append(launch)
            on_launch(len(done))
    base_us, head_us = (tuple(times) for times in zip(*((each.base_us, each.head_us) for each in done), strict=True))
    counters = None
    if request.base.cubin.content_key != request.head.cubin.content_key and is_different(base_us, head_us):
        counters = count_pair(done[-1].described, store_url=request.store_url, gpu_uuid=gpu.uuid)
    return ReplayResult(
        host=request.host,
        gpu_uuid=gpu.uuid,
        gpu_name=gpu.name,
        timer=done[-1].timer,
        base_us=base_us,
        head_us=head_us,
        telemetry=tuple(reading for each in done for reading in each.telemetry),
        gpu_s=sum(each.gpu_s for each in done),
        started_at=started_at,
        finished_at=dt.datetime.now(dt.UTC),
        counters=counters,
    )


def is_different(base_us: Sequence[float], head_us: Sequence[float]) -> bool:
    """Returns whether the interval of the launches' ratios excludes 1 and their median differs by at least
    LEAST_DIFFERENCE."""
    ratio = ratio_interval(base_us, head_us)
    return ratio is not None and not ratio.low <= 1.0 <= ratio.high and abs(ratio.median - 1.0) >= LEAST_DIFFERENCE


class ProcessesAhead:
    """Starts the processes of the next launches while one measures. They import CuPy and the library and touch no GPU;
    a watched operator brings PyTorch, which takes 3 to 4 s of a core. `others` are the libraries of other sides."""

    def __init__(self, library: Path, gpu: device.Gpu, *, others: Sequence[Path] = ()) -> None:
        self._environment = {"CUDA_VISIBLE_DEVICES": gpu.uuid}
        self._library, self._others = library, others
        self._waiting: list[GpuProcesses] = []
        self._with_sides = False

    def start(self) -> None:
        while len(self._waiting) <= MOST_AHEAD:
            self._waiting.append(self._start())

    def start_sides(self) -> None:
        """Makes later launches start one process per side, because the sides run host code."""
        self._with_sides = True
        for each in self._waiting:
            each.start_sides()

    def take(self) -> GpuProcesses:
        self.start()
        return self._waiting.pop(0)

    def close(self) -> None:
        while self._waiting:
            self._waiting.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> GpuProcesses:
        started = GpuProcesses(self._library, environment=self._environment, others=self._others)
        if self._with_sides:
            started.start_sides()
        return started


def launches(request: ReplayRequest, gpu: device.Gpu, processes: ProcessesAhead) -> Iterator[Launch]:
    """Yields launches without end, each when it is requested. Raises MeasureFailed or ReplayFailed."""
    gpu_s, spare = 0.0, SPARE_LAUNCHES
    described: Described | str | None = None
    processes.start()  # its processes import while the base side is described
    environment = {"CUDA_VISIBLE_DEVICES": gpu.uuid}
    configs = (request.base.cubin.config, request.head.cubin.config)
    sides = {str(each): _describe_side(request, each, configs, environment) for each in find_others(request)}
    if WATCHED in sides.values():
        processes.start_sides()
    sides = {library: None if each is WATCHED else each for library, each in sides.items()}
    for number in itertools.count(1):
        while True:
            # Each launch has other inputs, so that a difference does not depend on one set of them.
            setup = GpuSetup(
                request.head.library,
                request.kernel,
                request.problem,
                request.store_url,
                environment,
                sides=sides,
                configs=configs,
            )
            try:
                child = GpuChild(setup, processes.take)
            except SweepFailed as error:
                raise MeasureFailed(str(error)) from None
            try:
                times_us, telemetry = _launch(child, request, seed=number)
                if described is None:  # once: an operator's may hold megabytes, and one pair of counters is read
                    described = describe(child, (_make_request(BASE, request.base), _make_request(HEAD, request.head)))
                break
            except (ChildDied, ChildHung, SweepFailed) as error:
                spare -= 1
                if spare < 0:
                    raise ReplayFailed(f"the launches of the replay keep dying: {error}") from None
            finally:
                child.close()
                gpu_s += child.gpu_s
        base_us, head_us = (median_interval(times_us[side]).median for side in (BASE, HEAD))
        not_apart = describe_not_apart(child.introduction)
        yield Launch(base_us, head_us, child.introduction["timer"], tuple(telemetry), gpu_s, described, not_apart)
        gpu_s = 0.0


def find_others(request: ReplayRequest) -> tuple[Path, ...]:
    """Returns the base's library if it differs from the head's; empty if both sides have one, as with two
    toolchains."""
    return () if request.base.library == request.head.library else (request.base.library,)


def _describe_side(
    request: ReplayRequest, library: Path, configs: tuple[Params, ...], environment: Mapping[str, str]
) -> Mapping[str, Any] | None:
    """Describes the problem once for all launches, because the description does not depend on their inputs."""
    wanted = Preparation(library, request.kernel, request.problem, request.store_url, configs=configs)
    try:
        return describe_side(wanted, environment, deadline_s=PREPARE_DEADLINE_S)
    except (ChildDied, ChildHung, BadDescription) as error:
        raise MeasureFailed(f"the GPU process could not describe {request.problem}: {error}") from None


def _launch(child: GpuChild, request: ReplayRequest, seed: int) -> tuple[list[list[float]], list[Mapping[str, Any]]]:
    """Returns the samples of both sides in one launch, and readings of the GPU around them."""
    for identity, name, side in ((BASE, "base", request.base), (HEAD, "head", request.head)):
        answer = child.ask(_make_request(identity, side))
        if answer["status"] == "crashed":
            raise ChildDied(answer["failure"])
        if answer["status"] != "timed":
            raise ReplayFailed(f"the {name} side cannot be replayed ({answer['status']}): {answer['failure']}")
    asked: dict[str, Any] = {"ask": "rounds", "ids": [BASE, HEAD], "names": [], "seed": seed}
    child.ask({**asked, "rounds": WARM_UP_ROUNDS}, ROUNDS_DEADLINE_S)
    answer = child.ask({**asked, "rounds": ROUNDS}, ROUNDS_DEADLINE_S)
    return answer["samples_us"], answer["telemetry"]


def _make_request(identity: int, side: ReplaySide) -> dict[str, Any]:
    return {**trial_request(identity, side.cubin, CHECK_SAMPLES), "library": str(side.library)}
