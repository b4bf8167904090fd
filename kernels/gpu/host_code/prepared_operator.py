"""Prepares one problem of a watched operator, and runs its host code with stored cubins."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import cuda.tile as ct
import cupy

from tilewatch.kernels.baselines import makers
from tilewatch.kernels.baselines.baseline import BaselineLaunch, Call
from tilewatch.kernels.catalog.loading import LibraryOperator, load
from tilewatch.kernels.compiling.operator_code import read_bundle
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.kernels.gpu import timing
from tilewatch.kernels.gpu.host_code import operator_results
from tilewatch.kernels.gpu.host_code.input_sets import count_sets
from tilewatch.kernels.gpu.result_error import ResultError
from tilewatch.kernels.gpu.rounds import CHECKED_SETS, Entry
from tilewatch.kernels.gpu.telemetry import Telemetry
from tilewatch.kernels.library_errors import LibraryError
from tilewatch.kernels.watching.configs import GivenConfigs, PlainConfig
from tilewatch.kernels.watching.declare import Case
from tilewatch.kernels.watching.device_array import describe_array
from tilewatch.kernels.watching.project import activate, remember_globals
from tilewatch.kernels.watching.traced_operator import (
    BUILT_IN,
    describe_work,
    find_first_config,
    find_given,
    hash_launch,
    make_case,
    run_config,
)
from tilewatch.kernels.watching.tracer import (
    Execute,
    LaunchTrace,
    TracedLaunch,
    launch_for_real,
    list_arrays,
    open_trace,
)


class CodeMissing(timing.TimingError):
    """Raised if `ct.launch` needs a cubin that was not compiled for this config."""


@dataclass(frozen=True)
class _Side:
    """One commit's version of an operator, with the input sets that all configs share."""

    loaded: LibraryOperator
    given: GivenConfigs | None
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class LoadedOperator:
    """A config with its cubins and its launches on each set of inputs."""

    config: PlainConfig
    side: _Side
    cubins: Mapping[str, bytes]
    launches: list[list[TracedLaunch]]
    kernels: dict[int, tuple[Any, Any]] = field(default_factory=dict)  # by id; the copy is for this config

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.kernel._pyfunc.__name__ for each in self.launches[0])

    def launch(self, launch: TracedLaunch) -> None:
        if id(launch.kernel) not in self.kernels:
            self.kernels[id(launch.kernel)] = (launch.kernel, launch.kernel.replace_hints())
        _, kernel = self.kernels[id(launch.kernel)]
        with _serve_cubins(self.cubins):
            launch_for_real(replace(launch, kernel=kernel))


class PreparedOperator:
    """One problem of a watched operator, with the configs and baselines loaded so far."""

    def __init__(self, loaded: LibraryOperator, request: Mapping[str, Any], gpu_uuid: str, timer: timing.Timer) -> None:
        self.problem = loaded.kernel.parse(request["problem"])
        self.store = CubinStore(request["store"])
        self.timer = timer
        self.telemetry = Telemetry(gpu_uuid)
        self.sm_count: int = cupy.cuda.Device().attributes["MultiProcessorCount"]
        self.loaded: dict[int, LoadedOperator] = {}
        self.baselines: dict[str, tuple[BaselineLaunch, tuple[str, ...]]] = {}
        self._seed: int = request["seed"]
        self._library = Path(request["library"])
        ct.kernel._compile = _serve
        first = self._prepare(loaded, 1)
        traced = self._trace(first, 0, find_first_config(first.cases[0], first.given))
        arrays = tuple(map(describe_array, list_arrays(traced.launches)))
        self.bytes_moved = first.cases[0].moves or sum(each.nbytes for each in arrays)
        self.element_bytes: int = arrays[0].item_bytes if arrays else 1
        self.work = describe_work(first.cases[0], arrays)
        sets = count_sets(sum(each.nbytes for each in arrays))
        self._sides = {self._library: first if sets == 1 else self._prepare(loaded, sets)}
        self._expected = tuple(
            operator_results.expected_values(self._remake_case(self._own, turn).reference)
            for turn in range(min(sets, CHECKED_SETS))
        )
        self.unchecked = loaded.kernel.unchecked
        self.tolerance = first.cases[0].tolerance

    @property
    def input_sets(self) -> int:
        return len(self._own.cases)

    @property
    def checked_sets(self) -> Sequence[int]:
        return range(len(self._expected))

    @property
    def _own(self) -> _Side:
        return self._sides[self._library]

    def find_misfit(self, request: Mapping[str, Any]) -> str | None:
        """Returns why another commit's library cannot be compared, or None if it can."""
        if request.get("library") is None:
            return None
        library = Path(request["library"])
        if library not in self._sides:
            entry = load(library).get(self._own.loaded.kernel.name)
            if not isinstance(entry, LibraryOperator):
                return f"the library of that commit has no operator {self._own.loaded.kernel.name}"
            self._sides[library] = self._prepare(entry, self.input_sets)
        return None

    def load(self, request: Mapping[str, Any]) -> LoadedOperator:
        """Returns a config with its cubins and its traced launches on each set of inputs."""
        side = self._sides[Path(request.get("library") or self._library)]
        traces = [self._trace(side, turn, request["config"]) for turn in range(len(side.cases))]
        cubins = read_bundle(self.store.cubin(request["content_key"]))
        return LoadedOperator(request["config"], side, cubins, [each.launches for each in traces])

    def launch(self, config: LoadedOperator, turn: int) -> None:
        for launch in config.launches[turn]:
            config.launch(launch)

    def verify(self, config: LoadedOperator, turn: int) -> tuple[float, ResultError]:
        """Returns the microseconds and error on input set `turn`, or on the first set whose result is wrong."""
        checked = {each: self._verify(config, each) for each in self.checked_sets}
        wrong = next((each for each in checked.values() if each[1].failure is not None), None)
        # Timed launches are not compared, because host code may change results afterwards.
        return wrong or checked[turn]

    def _verify(self, config: LoadedOperator, turn: int) -> tuple[float, ResultError]:
        case, results = self._remake_case(config.side, turn), []

        def run() -> None:
            with operator_results.poisoned_outputs():
                results.append(self._run(config.side, case, config.config, config.launch).result)

        (checked_us,) = self.timer.time([run], [config.names])
        return checked_us, operator_results.judge_result(results[0], self._expected[turn], self.tolerance)

    def keep(self, identity: int, config: LoadedOperator) -> None:
        """Keeps a checked config, so that later requests can time it."""
        self.loaded[identity] = config

    def entry(self, identity: int, *, as_graph: bool = False) -> Entry:
        if as_graph:
            raise timing.TimingError("its host code launches on the null stream, where CUDA records no graph")
        config = self.loaded[identity]
        return Entry(partial(self.launch, config), config.names)

    def reset_outputs(self, turn: int) -> None:
        """Does nothing, because the outputs of host code are not known."""

    def restore_inputs(self) -> str | None:
        """Returns None (no input was changed), because each check has new inputs."""
        return None

    def restore_guards(self) -> str | None:
        """Returns None (no guard was changed), because memory of host code has no guards."""
        return None

    def describe(self, request: Mapping[str, Any]) -> str:  # noqa: ARG002 - the same for every config
        """Returns why there are no hardware counters."""
        return "its host code runs in a process of its own, which cannot run under a profiler"

    def time_parts(self, identity: int, rounds: int) -> dict[str, float]:
        config = self.loaded[identity]
        if len(config.names) < 2:
            return {}
        parts: list[Callable[[], None]] = [partial(config.launch, launch) for launch in config.launches[0]]
        samples = [self.timer.time(parts, [(name,) for name in config.names]) for _ in range(rounds)]
        times = [sorted(each)[rounds // 2] for each in zip(*samples, strict=True)]
        return {f"{place}. {name}": time for place, (name, time) in enumerate(zip(config.names, times, strict=True), 1)}

    def build_baseline(self, name: str, turn: int = 0) -> BaselineLaunch:
        """Returns the launch of a baseline. Raises BaselineMissing if it cannot be built."""
        case = self._remake_case(self._own, turn)
        if name not in case.baselines:
            assert name in BUILT_IN
            return makers.build(name, Call(self._own.loaded.kernel.name, {}, {}, {}, {}, self.bytes_moved))
        solve = case.baselines[name]

        def launch() -> None:
            with open_trace(launch_for_real):  # it may be a cuTile kernel too
                self._baseline_result = solve()

        return BaselineLaunch(launch, {})

    def verify_baseline(self, baseline: BaselineLaunch, turn: int, slack: float) -> ResultError:
        baseline.launch()
        cupy.cuda.get_current_stream().synchronize()
        return operator_results.judge_result(self._baseline_result, self._expected[turn], self.tolerance, slack)

    def _prepare(self, loaded: LibraryOperator, sets: int) -> _Side:
        activate(loaded.project)
        cases = tuple(make_case(loaded.kernel, self.problem, self._seed + turn) for turn in range(sets))
        remember_globals(loaded.project)
        arch = f"sm_{cupy.cuda.Device().compute_capability}"
        return _Side(loaded, find_given(loaded.kernel, self.problem, arch), cases)

    def _remake_case(self, side: _Side, turn: int) -> Case:
        activate(side.loaded.project)
        return make_case(side.loaded.kernel, self.problem, self._seed + turn)

    def _trace(self, side: _Side, turn: int, config: PlainConfig | None) -> LaunchTrace:
        return self._run(side, side.cases[turn], config, None)

    def _run(self, side: _Side, case: Case, config: PlainConfig | None, execute: Execute | None) -> LaunchTrace:
        activate(side.loaded.project)
        try:
            return run_config(case, side.loaded.project, side.loaded.kernel, side.given, config, execute=execute)
        except (timing.TimingError, cupy.cuda.runtime.CUDARuntimeError, LibraryError):
            raise
        except Exception as error:
            raise timing.TimingError(f"the host code fails: {type(error).__name__}: {error}") from error


_served: list[Mapping[str, bytes]] = []


@contextmanager
def _serve_cubins(cubins: Mapping[str, bytes]) -> Iterator[None]:
    _served.append(cubins)
    try:
        yield
    finally:
        _served.pop()


_compile = ct.kernel._compile


def _serve(kernel: Any, signature: Any, *arguments: Any, **named: Any) -> Any:
    """Returns the stored cubin in place of cuTile's compiler. Raises CodeMissing if no cubin is stored."""
    if not _served:
        return _compile(kernel, signature, *arguments, **named)  # a baseline may be a cuTile kernel
    cubin = _served[-1].get(hash_launch(kernel, signature))
    if cubin is None:
        raise CodeMissing(
            f"on this GPU ct.launch asks for other code of {kernel._pyfunc.__name__} than was compiled: its host code "
            "sees another GPU here (multiprocessors, memory) or other values"
        )
    return cubin, kernel._pyfunc.__name__, None, ()
