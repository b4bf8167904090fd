"""Prepares one problem of a kernel on the GPU, and launches and checks its configs, without library code."""

import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import cupy

from tilewatch.kernels.baselines import makers
from tilewatch.kernels.baselines.baseline import BaselineLaunch, BaselineMissing, Call
from tilewatch.kernels.catalog.parameters import Scalar
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.kernels.contract import Array
from tilewatch.kernels.gpu import arrays, shared_arrays, timing
from tilewatch.kernels.gpu.described_launch import DescribedLaunch
from tilewatch.kernels.gpu.described_problem import ConfigLaunch, DescribedProblem, read_problem
from tilewatch.kernels.gpu.guards import WRITES_OUTSIDE, Guards
from tilewatch.kernels.gpu.input_copies import InputCopies
from tilewatch.kernels.gpu.result_error import Reference, Result, ResultError, judge
from tilewatch.kernels.gpu.rounds import CHECKED_SETS, Entry, count_input_sets
from tilewatch.kernels.gpu.telemetry import Telemetry
from tilewatch.kernels.library_errors import LibraryError
from tilewatch.kernels.problems.given_values import decode_values

INPUT_BUDGET = 0.25
"""Share of the GPU's memory that all input sets together may take."""


@dataclass(frozen=True)
class LoadedConfig:
    launch: ConfigLaunch
    function: Any
    arguments: tuple[Array | Scalar, ...]
    """Arguments of a launch in the order of the kernel's parameters, without compile-time constants."""


@dataclass
class PreparedProblem:
    """One problem with its inputs, its right results, and the configs and baselines loaded so far."""

    described: DescribedProblem
    sides: Mapping[str, DescribedProblem | None]  # by library; None without the kernel
    store: CubinStore
    timer: timing.Timer
    telemetry: Telemetry
    sm_count: int
    guards: Guards
    inputs: list[dict[str, Any]]
    copies: InputCopies
    outputs: dict[str, Any]
    expected: tuple[Mapping[str, Reference], ...] = ()
    written_bytes: int = 0
    loaded: dict[int, LoadedConfig] = field(default_factory=dict)
    baselines: dict[str, tuple[BaselineLaunch, tuple[str, ...]]] = field(default_factory=dict)
    modules: tempfile.TemporaryDirectory[str] = field(
        default_factory=lambda: tempfile.TemporaryDirectory(prefix="tilewatch-cubins-")
    )

    def expect(self, references: Sequence[Mapping[str, Reference]]) -> None:
        """Adds the right results, which completes the preparation."""
        self.expected = tuple(references)
        self.written_bytes = sum(
            self.outputs[each].itemsize * value.numbers for each, value in self.expected[0].items()
        )
        self.reset_outputs(0)
        self.error(0)  # compiles the comparing kernels, so that no trial's time includes it

    def launch(self, config: LoadedConfig, turn: int) -> None:
        """Launches a config on input set number `turn`."""
        find = partial(self._find_array, turn)
        config.function(config.launch.grid, (1,), arrays.list_launch_values(config.arguments, find))

    def _find_array(self, turn: int, array: Array) -> Any:
        return self.outputs[array.name] if array.written else self.inputs[turn][array.name]

    def reset_outputs(self, turn: int) -> None:
        """Fills outputs with NaN. Outputs that are also inputs get their input values."""
        for name, output in self.outputs.items():
            if name in self.inputs[turn]:
                output[...] = self.inputs[turn][name]
            else:
                arrays.poison(output)

    def error(self, turn: int, slack: float = 1.0) -> ResultError:
        """Returns the error of the outputs after a launch. `slack` multiplies the tolerance."""
        return self._judge(self.outputs, turn, slack)

    def _judge(self, outputs: Mapping[str, Any], turn: int, slack: float = 1.0) -> ResultError:
        dtypes = {spec.name: spec.dtype for spec in self.described.arrays}
        return judge(
            Result(f"'{name}'", output, dtypes[name], self.expected[turn][name], slack * self.tolerance)
            for name, output in outputs.items()
        )

    def restore_inputs(self) -> str | None:
        """Restores changed inputs. Returns the name of a changed input, or None."""
        names = list(self.inputs[0])
        return next((names[each % len(names)] for each in self.copies.restore()), None)

    def restore_guards(self) -> str | None:
        return self.guards.restore()

    @property
    def tolerance(self) -> float:
        return self.described.tolerance

    @property
    def element_bytes(self) -> int:
        return self.described.element_bytes

    @property
    def work(self) -> Mapping[str, Any]:
        here = self.described
        return {"flops": here.flops, "bytes": max(here.bytes, self.written_bytes), "dtypes": here.input_dtypes}

    @property
    def input_sets(self) -> int:
        return len(self.inputs)

    @property
    def checked_sets(self) -> Sequence[int]:
        return range(min(CHECKED_SETS, len(self.inputs)))

    def find_misfit(self, request: Mapping[str, Any]) -> str | None:
        """Returns why a config cannot be launched on the prepared arrays, or None if it can."""
        side = self._find_side(request)
        if side is None:
            return f"the library of that commit has no kernel {self.described.kernel}"
        if side.arrays != self.described.arrays:
            return "that commit lays the arrays out differently, so it is not the same work"
        launch = side.find_launch(request["config"])
        return launch if isinstance(launch, str) else None

    def load(self, request: Mapping[str, Any]) -> LoadedConfig:
        """Returns a config that is ready to launch."""
        # One path per cubin: CuPy's RawModule remembers modules by path.
        path = Path(self.modules.name) / f"{request['content_key']}.cubin"
        if not path.exists():
            path.write_bytes(self.store.cubin(request["content_key"]))
        function = cupy.RawModule(path=str(path)).get_function(request["symbol"])
        launch, given = self._find_launch(request)
        return LoadedConfig(launch, function, given)

    def _find_launch(self, request: Mapping[str, Any]) -> tuple[ConfigLaunch, tuple[Array | Scalar, ...]]:
        """Returns a config's launch and the launch's arguments."""
        side = self._find_side(request)
        assert side is not None
        launch = side.find_launch(request["config"])
        assert isinstance(launch, ConfigLaunch), launch
        return launch, side.list_arguments(launch)

    def _find_side(self, request: Mapping[str, Any]) -> DescribedProblem | None:
        library = request.get("library")
        return self.described if library is None else self.sides[library]

    def verify(self, config: LoadedConfig, turn: int) -> tuple[float, ResultError]:
        """Launches a config once on an input set. Returns the microseconds and the error."""
        self.reset_outputs(turn)
        (checked_us,) = self.timer.time([lambda: self.launch(config, turn)], [self.kernel_names])
        return checked_us, self.error(turn)

    def keep(self, identity: int, config: LoadedConfig) -> None:
        """Keeps a checked config, so that later requests can time it."""
        self.loaded[identity] = config

    def entry(self, identity: int, *, as_graph: bool = False) -> Entry:  # noqa: ARG002 - a kernel is one launch
        launch = partial(self.launch, self.loaded[identity])
        return Entry(launch, self.kernel_names, self._capture, sum(each.nbytes for each in self.outputs.values()))

    def time_parts(self, identity: int, rounds: int) -> dict[str, float]:  # noqa: ARG002 - a kernel is one launch
        return {}

    def describe(self, request: Mapping[str, Any]) -> DescribedLaunch:
        """Describes the launch of a config for a profiler."""
        launch, given = self._find_launch(request)
        return DescribedLaunch(request["content_key"], request["symbol"], launch.grid, given, self.described.given)

    def build_baseline(self, name: str, turn: int = 0) -> BaselineLaunch:
        """Returns the launch of a baseline. Raises BaselineMissing if it cannot be built."""
        call = Call(
            self.described.kernel,
            {name: array for name, array in self.inputs[turn].items() if name not in self.outputs},
            self.outputs,
            {spec.name: spec.dtype for spec in self.described.arrays},
            self.described.sizes,
            self.described.bytes,
        )
        return makers.build(name, call)

    def verify_baseline(self, baseline: BaselineLaunch, turn: int, slack: float) -> ResultError:
        """Launches a baseline and returns its error. Raises BaselineMissing if it writes outside of its arrays."""
        self.reset_outputs(turn)
        baseline.launch()
        if baseline.settle is not None:
            baseline.settle()
        cupy.cuda.get_current_stream().synchronize()
        error = self.error(turn, slack)
        if (outside := self.guards.restore()) is not None:
            raise BaselineMissing(f"{WRITES_OUTSIDE}: {outside}")
        return error

    def _capture(self, turn: int) -> Callable[[], ResultError]:
        copies = {name: output.copy() for name, output in self.outputs.items()}
        return lambda: self._judge(copies, turn)

    @property
    def kernel_names(self) -> tuple[str, ...]:
        """Returns the names by which the timer reports the kernels of one launch of a config."""
        return (self.described.kernel,) if self.timer.name == "cupti" else ("launch",)


def prepare(request: Mapping[str, Any], gpu_uuid: str, timer: timing.Timer) -> PreparedProblem:
    """Returns a described problem with arrays on the GPU. The right results are added later."""
    sides = {library: each and read_problem(each) for library, each in request["problems"].items()}
    described = sides[request["library"]]
    assert described is not None
    # Arrays are made first and in a fixed order: times of memory-bound kernels depend on where arrays lie.
    guards = Guards()

    def make(spec: Array) -> Any:
        return guards.make_empty(f"'{spec.name}'", spec.shape, arrays.raw_dtype(spec))

    given = {
        each.name: decode_values(each.name, described.given[each.name])
        for each in described.inputs
        if each.fill == "given"
    }
    # The slots of sets with a reference are drawn, so that no address tells a kernel whether it is compared.
    slots = [[make(spec) for spec in described.inputs] for _ in range(count_sets(described.inputs))]
    random.SystemRandom().shuffle(slots)
    empty = iter([array for slot in slots for array in slot])
    inputs = arrays.make_input_sets(described.inputs, given, request["seed"], len(slots), lambda _: next(empty))
    outputs = {spec.name: arrays.make_poisoned(spec, make) for spec in described.arrays if spec.written}
    guards.restore()
    checked = [array for each in inputs[:CHECKED_SETS] for array in each.values()]
    prepared = PreparedProblem(
        described=described,
        sides=sides,
        store=CubinStore(request["store"]),
        timer=timer,
        telemetry=Telemetry(gpu_uuid),
        sm_count=cupy.cuda.Device().attributes["MultiProcessorCount"],
        guards=guards,
        inputs=inputs,
        copies=InputCopies(checked, [each.copy() for each in checked]),
        outputs=outputs,
    )
    cupy.get_default_memory_pool().free_all_blocks()
    return prepared


def take_references(described: DescribedProblem, shared: Sequence[Mapping[str, Any]]) -> list[dict[str, Reference]]:
    """Copies the reference results of each compared input set, by output name. Raises LibraryError for bad results."""
    wanted = min(CHECKED_SETS, count_sets(described.inputs))
    if len(shared) != wanted:
        raise LibraryError(
            f"kernel {described.kernel}: its reference is there for {len(shared)} sets of inputs, expected {wanted}"
        )
    return [_take_reference(described, each) for each in shared]


def _take_reference(described: DescribedProblem, shared: Mapping[str, Any]) -> dict[str, Reference]:
    name = described.kernel
    shapes = {spec.name: spec.shape for spec in described.arrays if spec.written}
    if shared.keys() != shapes.keys():
        raise LibraryError(
            f"kernel {name}: its reference gives {', '.join(shared) or 'nothing'}, but it writes "
            f"{', '.join(shapes) or 'no array'}"
        )
    try:
        taken = {each: shared_arrays.take(shared[each], each, shape) for each, shape in shapes.items()}
    except LibraryError as error:
        raise LibraryError(f"kernel {name}: {error}") from None
    references = {each: Reference.of(value) for each, value in taken.items()}
    for each, value in references.items():
        if value.numbers == 0:  # any value passes for NaN
            raise LibraryError(f"kernel {name}: its reference gives no number for '{each}'")
    return references


def count_sets(inputs: Sequence[Array]) -> int:
    """Returns the number of input sets that timed launches use in turn on this GPU."""
    device = cupy.cuda.Device()
    return count_input_sets(
        sum(map(_count_bytes, inputs)),
        l2_bytes=device.attributes["L2CacheSize"],
        budget_bytes=INPUT_BUDGET * device.mem_info[1],
    )


def _count_bytes(spec: Array) -> int:
    size: int = arrays.raw_dtype(spec)().itemsize
    for length in spec.shape:
        size *= length
    return size
