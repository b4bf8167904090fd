"""Prepares a problem of a watched operator, and repeats its described launches on copied memory."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import cupy

from tilewatch.kernels.baselines import makers
from tilewatch.kernels.baselines.baseline import BaselineLaunch, BaselineMissing, Call
from tilewatch.kernels.baselines.names import COPY
from tilewatch.kernels.compiling.operator_code import read_bundle
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.kernels.gpu import shared_arrays, timing
from tilewatch.kernels.gpu.host_code import dependent_launch, launched_arrays
from tilewatch.kernels.gpu.host_code.copied_memory import Allocation, CopiedMemory
from tilewatch.kernels.gpu.host_code.described_operator import (
    ConfigLaunches,
    DescribedOperator,
    OneLaunch,
    View,
    read_operator,
)
from tilewatch.kernels.gpu.host_code.described_run import DescribedRun, NotDescribable, describe_run
from tilewatch.kernels.gpu.result_error import Reference, Result, ResultError, find_tolerance, judge
from tilewatch.kernels.gpu.rounds import Entry, WrongWhenTimed
from tilewatch.kernels.gpu.telemetry import Telemetry
from tilewatch.kernels.library_errors import LibraryError

_Results = Sequence[tuple[Any, str] | None]
"""Results of a run with their types. A result that is not compared is None."""


class ComputedBefore(WrongWhenTimed):
    """Raised if memory holds the right result before the first launch."""


@dataclass(frozen=True)
class Side:
    """One commit's version of an operator: the described launches, and copies of their memory."""

    described: DescribedOperator
    memory: CopiedMemory


@dataclass
class LoadedLaunches:
    """A config's launches and memory for each input set."""

    memory: CopiedMemory
    names: tuple[str, ...]
    turns: tuple[tuple[Callable[[], None], ...], ...]
    places: tuple[tuple[Allocation, ...], ...]
    results: tuple[_Results, ...]
    was_launched: bool = False  # whether a check has found the inputs that it writes


@dataclass
class PreparedLaunches:
    """One problem of a watched operator, with the configs and baselines loaded so far."""

    sides: Mapping[str, Side]  # an operator for each library folder
    library: str  # gives the right results for all
    store: CubinStore
    timer: timing.Timer
    telemetry: Telemetry
    sm_count: int
    expected: tuple[tuple[Reference | None, ...], ...]
    loaded: dict[int, LoadedLaunches] = field(default_factory=dict)
    baselines: dict[str, tuple[BaselineLaunch, tuple[str, ...]]] = field(default_factory=dict)
    modules: tempfile.TemporaryDirectory[str] = field(
        default_factory=lambda: tempfile.TemporaryDirectory(prefix="tilewatch-cubins-")
    )

    @property
    def described(self) -> DescribedOperator:
        return self.sides[self.library].described

    @property
    def unchecked(self) -> str:
        return self.described.unchecked

    @property
    def tolerance(self) -> float | None:
        return self.described.tolerance

    @property
    def element_bytes(self) -> int:
        return self.described.element_bytes

    @property
    def work(self) -> Mapping[str, Any]:
        here = self.described
        return {"flops": here.flops, "bytes": here.bytes, "dtypes": list(here.dtypes)}

    @property
    def input_sets(self) -> int:
        return min(len(each.described.sets) for each in self.sides.values())

    @property
    def checked_sets(self) -> Sequence[int]:
        return range(min(len(self.expected), self.input_sets))

    def find_misfit(self, request: Mapping[str, Any]) -> str | None:
        """Returns why two commits' results cannot be compared, or None if they can."""
        shapes = [[each and each["shape"] for each in side.described.reference[0]] for side in self._find_pair(request)]
        return None if shapes[0] == shapes[1] else "that commit has results of other shapes, so it is not the same work"

    def _find_pair(self, request: Mapping[str, Any]) -> tuple[Side, Side]:
        """Returns the operator under test and the operator that the request names."""
        return self.sides[self.library], self.sides[request.get("library") or self.library]

    def load(self, request: Mapping[str, Any]) -> LoadedLaunches:
        """Returns a config that is ready to launch. Raises TimingError if it cannot be launched."""
        _, side = self._find_pair(request)
        config = side.described.find_config(request["config"])
        if isinstance(config, str):
            raise timing.TimingError(config)
        functions = self._load_functions(config, request["content_key"])
        try:
            return self._lay_out(config, functions, side.memory)
        except MemoryError:
            raise timing.TimingError("the GPU has no room for the memory that its kernels are given") from None

    def _load_functions(self, config: ConfigLaunches, content_key: str) -> list[Any]:
        cubins = read_bundle(self.store.cubin(content_key))
        functions = []
        for launch in config.launches:
            if launch.key not in cubins:
                raise timing.TimingError(
                    f"on this GPU ct.launch asks for other code of {launch.symbol} than was compiled: its host code "
                    "sees another GPU here (multiprocessors, memory) or other values"
                )
            # One path per cubin: CuPy's RawModule remembers modules by path.
            path = Path(self.modules.name) / f"{content_key}-{sorted(cubins).index(launch.key)}.cubin"
            if not path.exists():
                path.write_bytes(cubins[launch.key])
            functions.append(cupy.RawModule(path=str(path)).get_function(launch.symbol))
        return functions

    def _lay_out(self, config: ConfigLaunches, functions: Sequence[Any], memory: CopiedMemory) -> LoadedLaunches:
        turns, places = [], []
        for turn in range(self.input_sets):
            found = memory.place(config.memory, turn)
            if found is None:  # later sets lack the contents that this config alone uses
                break
            places.append(found)
            memory_of_set = [each.own for each in found]
            pairs = zip(functions, config.launches, strict=True)
            turns.append(tuple(_make_launch(function, launch, memory_of_set) for function, launch in pairs))
        results = tuple(
            tuple(None if each is None else self._find_result(each, of_set) for each in config.results)
            for of_set in places
        )
        names = tuple(each.symbol for each in config.launches)
        return LoadedLaunches(memory, names, tuple(turns), tuple(places), results)

    def _find_result(self, view: View, places: Sequence[Allocation]) -> tuple[Any, str]:
        return launched_arrays.view(places[view.memory].own, view), view.dtype

    def launch(self, config: LoadedLaunches, turn: int) -> None:
        turn %= len(config.turns)
        config.memory.expect_writes(config.places[turn])
        for each in config.turns[turn]:
            each()

    def verify(self, config: LoadedLaunches, turn: int) -> tuple[float, ResultError]:
        """Returns one launch's microseconds and error. Raises ComputedBefore if the result existed beforehand."""
        turn %= len(config.turns)
        config.memory.restore_all(config.places[turn])
        if any(self.expected[turn]) and self._judge(config.results[turn], turn).failure is None:
            raise ComputedBefore("its result is there before its first launch, so that its launches do not compute it")
        (checked_us,) = self.timer.time([lambda: self.launch(config, turn)], [config.names])
        error = self._judge(config.results[turn], turn)
        config.memory.find_written(config.places, turn)
        config.was_launched = True
        return checked_us, error

    def keep(self, identity: int, config: LoadedLaunches) -> None:
        """Keeps a checked config, so that later requests can time it."""
        # Another process has checked it.
        if not config.was_launched:
            self.verify(config, 0)
        self.loaded[identity] = config

    def entry(self, identity: int, *, as_graph: bool = False) -> Entry:
        config = self.loaded[identity]
        launched = replace(config, turns=tuple((_record(each),) for each in config.turns)) if as_graph else config
        result_bytes = sum(each[0].nbytes for each in config.results[0] if each is not None)
        return Entry(partial(self.launch, launched), config.names, partial(self._capture, config), result_bytes)

    def describe(self, request: Mapping[str, Any]) -> DescribedRun | str:
        """Describes a config's launches for a profiler, or returns why they cannot be repeated."""
        _, side = self._find_pair(request)
        config = side.described.find_config(request["config"])
        if isinstance(config, str):
            return config
        try:
            return describe_run(config, request["content_key"], side.memory.contents)
        except NotDescribable as reason:
            return str(reason)

    def reset_outputs(self, turn: int = 0) -> None:  # noqa: ARG002 - each set has memory of its own
        """Restores all memory that earlier launches wrote."""
        for side in self.sides.values():
            side.memory.restore_written()

    def restore_inputs(self) -> str | None:
        """Restores the memory that launches wrote. Returns the name of a changed input, or None."""
        self.reset_outputs()
        changed = [each.memory.restore_changed(self.checked_sets) for each in self.sides.values()]
        return next((f"input {number + 1}" for number in changed if number is not None), None)

    def restore_guards(self) -> str | None:
        found = [side.memory.guards.restore() for side in self.sides.values()]
        return next((each for each in found if each is not None), None)

    def time_parts(self, identity: int, rounds: int) -> dict[str, float]:
        config = self.loaded[identity]
        if len(config.names) < 2:
            return {}
        config.memory.expect_writes(config.places[0])
        names = [(name,) for name in config.names]
        samples = []
        for _ in range(rounds):
            self.reset_outputs()
            config.memory.expect_writes(config.places[0])
            samples.append(self.timer.time(config.turns[0], names))
        times = [sorted(each)[rounds // 2] for each in zip(*samples, strict=True)]
        return {f"{place}. {name}": time for place, (name, time) in enumerate(zip(config.names, times, strict=True), 1)}

    def build_baseline(self, name: str, turn: int = 0) -> BaselineLaunch:  # noqa: ARG002 - it solves nothing
        """Returns the baseline that copies memory. Raises BaselineMissing for any other name."""
        if name != COPY:  # the only baseline that is not the watch file's own
            raise BaselineMissing("it is the watch file's own, which runs in another process")
        return makers.build(name, Call(self.described.kernel, {}, {}, {}, {}, self.described.bytes_moved))

    def verify_baseline(self, baseline: BaselineLaunch, turn: int, slack: float) -> ResultError:
        raise AssertionError(f"{baseline} solves nothing on set {turn}, with slack {slack}")

    def _judge(self, results: _Results, turn: int) -> ResultError:
        """Compares the results for input set `turn` with the correct results, and returns the largest error."""
        pairs = zip(results, self.expected[turn], strict=False)
        return judge(
            Result(str(number), values, dtype, wanted, find_tolerance(dtype) if stated is None else stated)
            for number, (result, wanted) in enumerate(pairs, start=1)
            if result is not None and wanted is not None
            for stated, (values, dtype) in ((self.tolerance, result),)
        )

    def _capture(self, config: LoadedLaunches, turn: int) -> Callable[[], ResultError]:
        turn %= len(config.turns)
        copies = [each and (each[0].copy(), each[1]) for each in config.results[turn]]
        return lambda: self._judge(copies, turn)


def _record(launches: Sequence[Callable[[], None]]) -> Callable[[], None]:
    """Returns a function that repeats all launches as one CUDA graph."""
    stream = cupy.cuda.Stream(non_blocking=True)  # the null stream cannot be recorded
    with stream:
        stream.begin_capture()
        for launch in launches:
            launch()
        graph = stream.end_capture()
    launch_graph: Callable[[], None] = graph.launch
    return launch_graph


def _make_launch(function: Any, launch: OneLaunch, memory: Sequence[Any]) -> Callable[[], None]:
    values = launched_arrays.list_values(launch.arguments, memory)
    if launch.programmatic_dependent_launch:
        return dependent_launch.make_launch(function, launch.grid, values)
    return partial(function, launch.grid, (1,), values)


def prepare(request: Mapping[str, Any], gpu_uuid: str, timer: timing.Timer) -> PreparedLaunches:
    """Prepares a described operator. Raises LibraryError if its memory or right results are unusable."""
    read = {library: read_operator(each) for library, each in request["operators"].items()}
    sides = {library: Side(each, CopiedMemory.take(each.contents, each.sets)) for library, each in read.items()}
    described = read[request["library"]]
    expected = tuple(
        tuple(_take_reference(described.kernel, each, number) for number, each in enumerate(results, start=1))
        for results in described.reference
    )
    return PreparedLaunches(
        sides=sides,
        library=request["library"],
        store=CubinStore(request["store"]),
        timer=timer,
        telemetry=Telemetry(gpu_uuid),
        sm_count=cupy.cuda.Device().attributes["MultiProcessorCount"],
        expected=expected,
    )


def _take_reference(kernel: str, shared: Mapping[str, Any] | None, number: int) -> Reference | None:
    """Copies an output's reference result from another process. Returns None if the output is not compared."""
    if shared is None:
        return None
    reference = Reference.of(shared_arrays.take(shared, f"output {number}", tuple(shared["shape"])))
    if reference.numbers == 0:  # any value passes for NaN
        raise LibraryError(f"kernel {kernel}: its reference gives no number for output {number}")
    return reference
