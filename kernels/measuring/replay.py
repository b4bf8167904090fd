"""Compares two stored cubins of one kernel on one GPU, and profiles both if their times differ."""

import datetime as dt
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tilewatch.errors import ExpectedError
from tilewatch.kernels.measuring.measure import MeasureFailed
from tilewatch.kernels.measuring.pair_bench import Launched, PairBench, PairWork, ReplaySide, RoundCounts
from tilewatch.kernels.measuring.profiling import count_pair
from tilewatch.kernels.statistics import ratio_interval
from tilewatch.metrics import Metric

REPLAYED = RoundCounts(warm_up=20, least=60, most=60)
"""Rounds of a launch. With so many, medians vary more between launches than within one (H200, 2026-11)."""

SPARE_LAUNCHES = 2
"""Most launches of a replay that are repeated because the GPU process crashed or the driver failed once."""

LEAST_DIFFERENCE = 0.003
"""Least relative difference between the sides' times at which hardware counters are read. A smaller difference confirms
no change, and reading counters takes 6 s of the GPU."""


class ReplayFailed(ExpectedError):
    """Raised if no launch can compare the two cubins."""


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
    metric: Metric = "time"


@dataclass(frozen=True)
class ReplayResult:
    """The times of two compared cubins. `base_us[i]` and `head_us[i]` are the medians of launch i."""

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
    counters: Mapping[str, Any] | None = None  # None if the times do not differ


def replay(request: ReplayRequest, *, on_launch: Callable[[int], None]) -> ReplayResult:
    """Times two cubins repeatedly, each time in a new process. Raises ReplayFailed if a cubin cannot be launched."""
    with PairBench(request.gpu_index, request.arch, request.store_url, rounds=REPLAYED, may_use_events=True) as bench:
        gpu, started_at = bench.find_gpu(), dt.datetime.now(dt.UTC)
        done = _launch_all(bench, request, on_launch)
        gpu_s = bench.gpu_s
    base_us, head_us = (tuple(times) for times in zip(*((each.base_us, each.head_us) for each in done), strict=True))
    counters = None
    if request.base.cubin.content_key != request.head.cubin.content_key and is_different(base_us, head_us):
        counters = count_pair(done[0].described, store_url=request.store_url, gpu_uuid=gpu.uuid)
    return ReplayResult(
        host=request.host,
        gpu_uuid=gpu.uuid,
        gpu_name=gpu.name,
        timer=done[-1].timer,
        base_us=base_us,
        head_us=head_us,
        telemetry=tuple(reading for each in done for reading in each.telemetry),
        gpu_s=gpu_s,
        started_at=started_at,
        finished_at=dt.datetime.now(dt.UTC),
        counters=counters,
    )


def _launch_all(bench: PairBench, request: ReplayRequest, on_launch: Callable[[int], None]) -> list[Launched]:
    done: list[Launched] = []
    spare = SPARE_LAUNCHES
    while len(done) < request.launches:
        # The sides are described once: an operator's description may hold megabytes, and one is profiled.
        work = PairWork(
            request.kernel,
            request.problem,
            request.base,
            request.head,
            launches=len(done),
            describes=not done,
            metric=request.metric,
        )
        ((_, launch),) = bench.launch_each([work])
        if isinstance(launch, Launched):
            done.append(launch)
            on_launch(len(done))
        elif launch.is_final:
            raise ReplayFailed(f"the sides cannot be replayed: {launch.failure}")
        elif spare == 0:
            raise MeasureFailed(f"the launches of the replay keep dying: {launch.failure}")
        else:
            spare -= 1
    return done


def is_different(base_us: Sequence[float], head_us: Sequence[float]) -> bool:
    """Returns whether two cubins' times differ clearly."""
    ratio = ratio_interval(base_us, head_us)
    return ratio is not None and not ratio.low <= 1.0 <= ratio.high and abs(ratio.median - 1.0) >= LEAST_DIFFERENCE
