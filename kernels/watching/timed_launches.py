"""Finds the configs that host code compares by timing launches, without running a kernel.

Each timed region (the launches between two time stamps) is a candidate config. Host code reads invented times; the
candidate that Tilewatch selects has the shortest time."""

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

from tilewatch.kernels.watching import tracer
from tilewatch.kernels.watching.device_array import describe_array, is_array
from tilewatch.kernels.watching.tracer import LaunchTrace, TracedLaunch

CHOSEN_MS, OTHER_MS = 0.5, 1.0
"""Milliseconds that host code reads for the chosen region and for others. Not 0, as host code may divide by them."""


class TracedEvent:
    """Replaces a CUDA event. Stores the number of earlier launches instead of a time."""

    done = True

    def __init__(
        self,
        block: bool = False,  # noqa: ARG002 - how an event waits and is shared
        disable_timing: bool = False,  # noqa: ARG002
        interprocess: bool = False,  # noqa: ARG002
        *,
        enable_timing: bool = False,  # noqa: ARG002
        blocking: bool = False,  # noqa: ARG002
        external: bool = False,  # noqa: ARG002
    ) -> None:
        self.launches = 0

    def record(self, stream: Any = None) -> None:  # noqa: ARG002
        self.launches = tracer.count_launches()

    def synchronize(self) -> None:
        pass

    wait = synchronize

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: "TracedEvent") -> float:
        """Returns an invented time in milliseconds, which is shortest for the config that host code shall choose."""
        return CHOSEN_MS if tracer.time_region(self.launches, end.launches, _is_chosen) else OTHER_MS


def time_call(call: Callable[[], Any]) -> float:
    """Calls a function once and returns an invented time in milliseconds."""
    start, end = TracedEvent(), TracedEvent()
    start.record()
    call()
    end.record()
    return start.elapsed_time(end)


def do_bench(
    fn: Callable[[], Any],
    warmup: int = 25,  # noqa: ARG001 - how it times is left to the sweep
    rep: int = 100,  # noqa: ARG001
    grad_to_none: Any = None,  # noqa: ARG001
    quantiles: Any = None,
    return_mode: str = "mean",
) -> Any:
    time_ms = time_call(fn)
    several = len(quantiles) if quantiles is not None else 1
    return [time_ms] * several if several > 1 or return_mode == "all" else time_ms


def benchmark(
    func: Callable[..., Any],
    args: Any = (),
    kwargs: Any = None,
    n_repeat: int = 10000,  # noqa: ARG001 - how it times is left to the sweep
    *,
    name: str | None = None,
    n_warmup: int = 10,  # noqa: ARG001
    max_duration: float = 0.0,  # noqa: ARG001
) -> Any:
    import numpy as np  # CuPy brings it; an owner's environment may have neither

    times = np.array([[time_call(lambda: func(*args, **(kwargs or {}))) / 1000]])
    return SimpleNamespace(gpu_times=times, cpu_times=times[0], name=name or func.__name__)


def get_elapsed_time(start: TracedEvent, end: TracedEvent) -> float:
    return start.elapsed_time(end)


REPLACED: Mapping[str, Mapping[str, Any]] = {
    "torch.cuda": {"Event": TracedEvent},
    "cupy.cuda": {"Event": TracedEvent, "get_elapsed_time": get_elapsed_time},
    "cupyx.profiler": {"benchmark": benchmark},
    "triton.testing": {"do_bench": do_bench},
}


@contextlib.contextmanager
def events_traced(modules: Iterable[ModuleType]) -> Iterator[None]:
    """Replaces CUDA events and benchmark functions inside the context, in libraries and in the given modules."""
    with contextlib.ExitStack() as stack:
        found: dict[int, Any] = {}
        for name, replaced in REPLACED.items():
            package, _, inner = name.partition(".")
            place = getattr(sys.modules.get(package), inner, None)
            for key, own in replaced.items() if place is not None else ():
                if hasattr(place, key):
                    found[id(getattr(place, key))] = own
                stack.enter_context(mock.patch.object(place, key, own, create=True))
        for module in modules:
            for key, value in list(vars(module).items()):
                if id(value) in found:
                    stack.enter_context(mock.patch.object(module, key, found[id(value)]))
        yield


@dataclass(frozen=True)
class _Candidate:
    """One repetition of the launches in a timed region. `fields` maps names to scalar arguments, hints and grids."""

    launches: tuple[TracedLaunch, ...]
    fields: Mapping[str, Any]

    @property
    def kernels(self) -> tuple[Any, ...]:
        return tuple(each.kernel._pyfunc for each in self.launches)


def _make_candidate(launches: Sequence[TracedLaunch]) -> _Candidate:
    names = [_identify(each) for each in launches]
    period = next(
        size
        for size in range(1, len(names) + 1)
        if len(names) % size == 0 and names == names[:size] * (len(names) // size)
    )
    once = tuple(launches[:period])
    fields: dict[str, Any] = {}
    for number, each in enumerate(once):
        prefix = f"{each.kernel._pyfunc.__name__}.{number}." if period > 1 else ""
        fields |= {f"{prefix}{name}": value for name, value in _list_plain(each).items()}
    return _Candidate(once, fields)


def _identify(launch: TracedLaunch) -> tuple[Any, ...]:
    kinds = [(each.dtype, each.shape, each.strides) for each in map(describe_array, tracer.list_arrays([launch]))]
    return launch.kernel._pyfunc, repr(_list_plain(launch)), repr(kinds)


def _list_plain(launch: TracedLaunch) -> dict[str, Any]:
    """Returns a launch's numbers, texts, compiler hints and grid, by name."""
    pairs = zip(inspect.signature(launch.kernel._pyfunc).parameters, launch.args, strict=False)
    given = {
        name: value for name, value in pairs if isinstance(value, bool | int | float | str) and not is_array(value)
    }
    hints = {name: value for name, value in asdict(launch.kernel._compiler_options).items() if name != "opt_level"}
    return {**given, **hints, "grid": "x".join(map(str, launch.grid))}


def _is_chosen(trace: LaunchTrace, start: int, end: int, config: Mapping[str, Any] | None) -> bool:
    """Returns whether a timed region uses `config`. Without a config, each kernel's first region is chosen."""
    found = _make_candidate(trace.launches[start:end])
    earlier = [_make_candidate(trace.launches[each[0] : each[1]]).kernels for each in trace.regions]
    if config is None:
        return found.kernels not in earlier
    number = list(dict.fromkeys([*earlier, found.kernels])).index(found.kernels) + len(trace.searches)
    part = tracer.find_part(config, number)
    return all(str(found.fields.get(name)) == str(value) for name, value in part.items())


def settle(trace: LaunchTrace) -> None:
    """Converts a trace's timed regions to searches for a config, and removes warm-up launches."""
    if not trace.regions:
        return
    groups: dict[tuple[Any, ...], list[_Candidate]] = {}
    chosen: dict[tuple[Any, ...], int] = {}
    last: dict[Any, int] = {}
    for start, end, is_best in trace.regions:
        candidate = _make_candidate(trace.launches[start:end])
        groups.setdefault(candidate.kernels, []).append(candidate)
        if is_best or candidate.kernels not in chosen:
            chosen[candidate.kernels] = start
        last |= dict.fromkeys(candidate.kernels, end)
    for candidates in groups.values():
        configs = _list_differing([each.fields for each in candidates])
        if len(configs) > 1:
            trace.searches.append(configs)
    # Repetitions in a region count once. A kernel's launches up to its last region are warm-ups. All other launches are
    # the operator's. If all are warm-ups, the chosen regions are the operator's launches.
    trace.kept = [
        place for place, launch in enumerate(trace.launches) if place >= last.get(launch.kernel._pyfunc, 0)
    ] or [start + place for kernels, start in chosen.items() for place in range(len(groups[kernels][0].launches))]
    trace.launches = [trace.launches[place] for place in trace.kept]


def _list_differing(fields: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Returns the distinct values of the fields that vary. Omits the grid if any other field varies."""
    names = [name for name in fields[0] if len({str(each.get(name)) for each in fields}) > 1]
    names = [name for name in names if not name.endswith("grid")] or names  # usually, the others determine it
    found = {repr(config): config for config in ({name: each.get(name) for name in names} for each in fields)}
    return tuple(found.values())
