"""Times the kernels of launches by CUPTI, or by CUDA events where CUPTI is missing. Times by events include 2 to 3 us
of launch cost (H200, 2026-11)."""

import contextlib
import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import cupy


class TimingError(Exception):
    """Raised if a config cannot be launched or timed."""


def do_nothing() -> None:
    """Does nothing before a launch."""


class Timer(Protocol):
    """Times launches. `spans_us` has the last launches' times from first kernel start to last kernel end."""

    name: Literal["cupti", "events"]
    spans_us: list[float]

    def names(self, launch: Callable[[], None]) -> tuple[str, ...]:
        """Launches once, and returns the names of the kernels that ran, in order."""

    def time(
        self,
        launches: Sequence[Callable[[], None]],
        names: Sequence[tuple[str, ...]],
        before: Callable[[], None] = do_nothing,
    ) -> list[float]:
        """Times each launch in microseconds, after a call of `before`. `names` has the kernel names of each launch,
        which `before` must not run."""


def timer(wanted: str | None = None) -> Timer:
    """Returns the best timer of this machine, or the event timer if "events" is wanted."""
    if wanted == "events":
        return EventTimer()
    try:
        return CuptiTimer()
    except Exception:  # noqa: BLE001 - no package, library or permission: each raises its own, all mean "use events"
        return EventTimer()


PERSISTING_L2_SIZE = 0x06  # cudaLimitPersistingL2CacheSize


def forbid_persisting_l2() -> None:
    """Forbids persisting lines in the L2 cache, which a flush would not remove."""
    with contextlib.suppress(OSError, AttributeError, cupy.cuda.runtime.CUDARuntimeError):
        # A GPU of 864 GB/s seemed to read 3,530 GB/s: github.com/NVIDIA/nvbench/issues/458.
        cupy.cuda.runtime.deviceSetLimit(PERSISTING_L2_SIZE, 0)
        # CuPy 14.2 does not wrap this function; it acts on the current context.
        ctypes.CDLL("libcuda.so.1").cuCtxResetPersistingL2Cache()


class Flush:
    """Empties the L2 cache with a memset of twice the cache's size, which the timer does not record as a kernel."""

    def __init__(self) -> None:
        forbid_persisting_l2()
        self._buffer = cupy.empty(2 * cupy.cuda.Device().attributes["L2CacheSize"], dtype=cupy.uint8)

    def __call__(self) -> None:
        self._buffer.data.memset_async(0, self._buffer.nbytes)


class CuptiTimer:
    name: Literal["cupti", "events"] = "cupti"

    def __init__(self) -> None:
        from cupti import cupti

        self._cupti = cupti
        self.spans_us: list[float] = []
        self._records: list[tuple[int, int, str]] = []
        self._flush_l2 = Flush()
        cupti.activity_register_callbacks(lambda: (8 << 20, 0), self._add_records)
        cupti.activity_enable(cupti.ActivityKind.CONCURRENT_KERNEL)
        self._probe()

    def names(self, launch: Callable[[], None]) -> tuple[str, ...]:
        self._collect()
        launch()
        return tuple(name for _, _, name in self._collect())

    def time(
        self,
        launches: Sequence[Callable[[], None]],
        names: Sequence[tuple[str, ...]],
        before: Callable[[], None] = do_nothing,
    ) -> list[float]:
        wanted = {name for kernels in names for name in kernels}
        for launch in launches:
            before()
            self._flush_l2()
            launch()
        records = [record for record in self._collect() if record[2] in wanted]
        if len(records) != sum(map(len, names)):
            raise TimingError(f"{len(records)} kernel records for {sum(map(len, names))} kernels launched")
        times, at = [], 0
        self.spans_us = []
        for kernels in names:
            mine = records[at : at + len(kernels)]
            if tuple(name for _, _, name in mine) != kernels:
                raise TimingError(f"kernels {[name for _, _, name in mine]} ran where {list(kernels)} were launched")
            times.append(_find_busy_us([(start, end) for start, end, _ in mine]))
            self.spans_us.append((max(end for _, end, _ in mine) - mine[0][0]) / 1000)
            at += len(kernels)
        return times

    def _collect(self) -> list[tuple[int, int, str]]:
        """Returns the kernels that ran since the last call as (start, end, name), in nanoseconds."""
        cupy.cuda.get_current_stream().synchronize()
        self._cupti.activity_flush_all(1)
        records, self._records = sorted(self._records), []
        return records

    def _add_records(self, activities: list[Any]) -> None:
        for activity in activities:
            if activity.kind == self._cupti.ActivityKind.CONCURRENT_KERNEL:
                self._records.append((activity.start, activity.end, activity.name))

    def _probe(self) -> None:
        """Raises TimingError if CUPTI may not record."""
        x = cupy.zeros(16, dtype=cupy.float32)
        if not self.names(lambda: cupy.add(x, x, out=x)):
            raise TimingError("CUPTI recorded no kernel")


def _find_busy_us(records: Sequence[tuple[int, int]]) -> float:
    """Returns the microseconds during which at least one kernel ran. Overlaps count once."""
    busy, ended = 0, 0
    for start, end in records:
        busy += max(0, end - max(start, ended))
        ended = max(end, ended)
    return busy / 1000


class EventTimer:
    name: Literal["cupti", "events"] = "events"

    def __init__(self) -> None:
        self.spans_us: list[float] = []
        self._flush_l2 = Flush()

    def names(self, launch: Callable[[], None]) -> tuple[str, ...]:
        launch()
        cupy.cuda.get_current_stream().synchronize()
        return ("launch",)

    def time(
        self,
        launches: Sequence[Callable[[], None]],
        names: Sequence[tuple[str, ...]],  # noqa: ARG002 - events see launches, not kernels
        before: Callable[[], None] = do_nothing,
    ) -> list[float]:
        events = [(cupy.cuda.Event(), cupy.cuda.Event()) for _ in launches]
        for launch, (start, stop) in zip(launches, events, strict=True):
            before()
            self._flush_l2()
            start.record()
            launch()
            stop.record()
        cupy.cuda.get_current_stream().synchronize()
        self.spans_us = [1000 * cupy.cuda.get_elapsed_time(start, stop) for start, stop in events]
        return self.spans_us
