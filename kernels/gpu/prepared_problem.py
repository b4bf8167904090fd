"""Prepares one problem on the GPU, and launches and checks its configs. Runs inside the GPU child."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cupy

from tilewatch.kernels import baselines
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.kernels.contract import Array, Config, Kernel, Problem
from tilewatch.kernels.gpu import arrays, timing
from tilewatch.kernels.gpu.described_launch import DescribedLaunch, describe_launch
from tilewatch.kernels.gpu.rounds import Entry, WrongWhenTimed, count_input_sets
from tilewatch.kernels.gpu.telemetry import Telemetry
from tilewatch.kernels.library_errors import LibraryError
from tilewatch.kernels.loading import LibraryKernel, load
from tilewatch.kernels.parameters import Constant, Scalar, arguments
from tilewatch.kernels.signature import element_bytes, input_dtypes

INPUT_BUDGET = 0.25
"""Share of the GPU's memory that input sets may take."""


@dataclass(frozen=True)
class LoadedConfig:
    config: Config
    grid: tuple[int, int, int]
    function: Any
    arguments: tuple[Array | Scalar, ...]
    """What each launch is given, in the kernel's order: constants are part of the code."""


@dataclass
class PreparedProblem:
    """One problem with its inputs, its expected output, and the configs and baselines loaded so far.

    `untouched` are copies of the first input set; `scale` is the largest magnitude of each expected output; `modules`
    the folder that cubins are loaded from.
    """

    kernel: Kernel
    problem: Problem
    store: CubinStore
    timer: timing.Timer
    telemetry: Telemetry
    sm_count: int
    specs: tuple[Array, ...]
    inputs: list[dict[str, Any]]
    untouched: dict[str, Any]
    outputs: dict[str, Any]
    expected: dict[str, Any]
    scale: dict[str, float]
    loaded: dict[int, LoadedConfig]
    rivals: dict[str, tuple[baselines.Rival, tuple[str, ...]]]
    modules: tempfile.TemporaryDirectory[str]

    def launch(self, config: LoadedConfig, turn: int) -> None:
        """`turn` is the number of the input set."""
        find = partial(self._find_array, turn)
        config.function(config.grid, (1,), arrays.list_launch_values(config.arguments, find))

    def _find_array(self, turn: int, array: Array) -> Any:
        return self.outputs[array.name] if array.written else self.inputs[turn][array.name]

    def reset_outputs(self) -> None:
        """Poisons what is only written, and gives what is changed in place the values of the first input set again."""
        for name, output in self.outputs.items():
            if name in self.untouched:
                output[...] = self.untouched[name]
            else:
                arrays.poison(output)

    def error(self) -> float:
        """Largest difference of the outputs from the reference, as a share of the reference's largest magnitude."""
        dtypes = {spec.name: spec.dtype for spec in self.specs}
        return max(
            arrays.largest_error(output, dtypes[name], self.expected[name]) / self.scale[name]
            for name, output in self.outputs.items()
        )

    def restore_inputs(self) -> str | None:
        """Gives the first input set its values again, and returns the name of one that a launch changed; None where it
        changed none."""
        changed = None
        for name, values in self.untouched.items():
            if arrays.differ(self.inputs[0][name], values):
                changed = name
                self.inputs[0][name][...] = values
        return changed

    @property
    def tolerance(self) -> float:
        return self.kernel.tolerance(self.problem)

    @property
    def element_bytes(self) -> int:
        return element_bytes(self.kernel, self.problem)

    @property
    def work(self) -> Mapping[str, Any]:
        return {
            "flops": self.kernel.flops(self.problem),
            "bytes": self.kernel.bytes(self.problem),
            "dtypes": input_dtypes(self.kernel, self.problem),
        }

    @property
    def input_sets(self) -> int:
        return len(self.inputs)

    def find_misfit(self, request: Mapping[str, Any]) -> str | None:
        """Says why a side of a replay is not comparable with the prepared library; None when it is."""
        kernel = self._kernel_of(request)
        if kernel is None:
            return f"the library of that commit has no kernel {self.kernel.name}"
        if tuple(kernel.arrays(self.problem)) != self.specs:
            return "that commit lays the arrays out differently, so it is not the same work"
        return None

    def load(self, request: Mapping[str, Any]) -> LoadedConfig:
        """Loads the cubin of a config."""
        # One path per cubin: CuPy's RawModule remembers modules by path.
        path = Path(self.modules.name) / f"{request['content_key']}.cubin"
        if not path.exists():
            path.write_bytes(self.store.cubin(request["content_key"]))
        function = cupy.RawModule(path=str(path)).get_function(request["symbol"])
        kernel = self._kernel_of(request) or self.kernel
        grid = kernel.grid(self.problem, request["config"], self.sm_count)
        given = arguments(kernel, self.problem, request["config"])
        launched = tuple(each for each in given if not isinstance(each, Constant))
        return LoadedConfig(request["config"], grid, function, launched)

    def check(self, config: LoadedConfig) -> tuple[float, float]:
        """Launches a config once and returns its microseconds and its error."""
        self.reset_outputs()
        (checked_us,) = self.timer.time([lambda: self.launch(config, 0)], [self.kernel_names])
        return checked_us, self.error()

    def keep(self, identity: int, config: LoadedConfig) -> None:
        """Keeps a checked config for rounds."""
        self.loaded[identity] = config

    def entry(self, identity: int) -> Entry:
        return Entry(partial(self.launch, self.loaded[identity]), self.kernel_names, self._check_timed)

    def time_parts(self, identity: int, rounds: int) -> dict[str, float]:  # noqa: ARG002 - a kernel is one launch
        return {}

    def describe(self, request: Mapping[str, Any]) -> DescribedLaunch:
        """Describes the launch of a config for a profiler's process."""
        return describe_launch(
            self.kernel,
            self.problem,
            request["config"],
            content_key=request["content_key"],
            symbol=request["symbol"],
            sm_count=self.sm_count,
        )

    def build_rival(self, name: str) -> baselines.Rival:
        """Raises BaselineMissing."""
        call = baselines.Call(
            self.kernel.name,
            {name: array for name, array in self.inputs[0].items() if name not in self.outputs},
            self.outputs,
            {spec.name: spec.dtype for spec in self.specs},
            self.problem.sizes,
            self.kernel.bytes(self.problem),
        )
        return baselines.build(name, call)

    def check_rival(self, rival: baselines.Rival) -> float:
        """Resets the outputs, launches the rival, and returns the largest error."""
        self.reset_outputs()
        rival.launch()
        if rival.settle is not None:
            rival.settle()
        cupy.cuda.get_current_stream().synchronize()
        return self.error()

    def _check_timed(self) -> None:
        failure = describe_error(self.error(), self.tolerance)
        if failure is not None:
            raise WrongWhenTimed(f"when it was timed, {failure}")

    @property
    def kernel_names(self) -> tuple[str, ...]:
        """The kernels that one launch of a config runs, as the timer names them."""
        return (self.kernel.name,) if self.timer.name == "cupti" else ("launch",)

    def _kernel_of(self, request: Mapping[str, Any]) -> Kernel | None:
        """Returns the kernel as its own commit has it: a side of a replay comes with its library, for its grid is from
        there. None when that library has no such kernel."""
        if request.get("library") is None:
            return self.kernel
        entry = load(Path(request["library"])).get(self.kernel.name)
        return entry.kernel if isinstance(entry, LibraryKernel) else None


def prepare(loaded: LibraryKernel, request: Mapping[str, Any], gpu_uuid: str, timer: timing.Timer) -> PreparedProblem:
    kernel = loaded.kernel
    problem = kernel.parse(request["problem"])
    specs = kernel.arrays(problem)
    inputs = _inputs(kernel, problem, request["seed"])
    outputs = {spec.name: arrays.make_poisoned(spec) for spec in specs if spec.written}
    decoded = {spec.name: arrays.decode(inputs[0][spec.name], spec.dtype) for spec in specs if not spec.output}
    expected = {name: value.astype(cupy.float32) for name, value in kernel.reference(decoded, cupy).items()}
    del decoded
    _check_reference(kernel, expected, outputs)
    prepared = PreparedProblem(
        kernel=kernel,
        problem=problem,
        store=CubinStore(request["store"]),
        timer=timer,
        telemetry=Telemetry(gpu_uuid),
        sm_count=cupy.cuda.Device().attributes["MultiProcessorCount"],
        specs=specs,
        inputs=inputs,
        untouched={name: array.copy() for name, array in inputs[0].items()},
        outputs=outputs,
        expected=expected,
        scale={name: float(cupy.nanmax(cupy.abs(value))) for name, value in expected.items()},
        loaded={},
        rivals={},
        modules=tempfile.TemporaryDirectory(prefix="tilewatch-cubins-"),
    )
    cupy.get_default_memory_pool().free_all_blocks()
    prepared.reset_outputs()
    prepared.error()  # the comparing kernel is compiled now, outside the time of any trial
    return prepared


def describe_error(error: float, tolerance: float) -> str | None:
    """Says what is wrong with an output; None where its error is accepted."""
    if error <= tolerance:
        return None
    what = "left elements unwritten" if error == float("inf") else f"is off by {error:.3g} of its largest value"
    return f"the output {what}; at most {tolerance:.3g} is accepted"


def _check_reference(kernel: Kernel, expected: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
    """Raises LibraryError where the reference has other outputs than the kernel, others in shape, or no number."""
    if expected.keys() != outputs.keys():
        raise LibraryError(
            f"kernel {kernel.name}: its reference gives {', '.join(expected) or 'nothing'}, but it writes "
            f"{', '.join(outputs) or 'no array'}"
        )
    for name, value in expected.items():
        if value.shape != outputs[name].shape:
            raise LibraryError(
                f"kernel {kernel.name}: its reference gives '{name}' in shape {tuple(value.shape)}, expected "
                f"{tuple(outputs[name].shape)}"
            )
        if cupy.isnan(value).all():  # where it is NaN, any value is right
            raise LibraryError(f"kernel {kernel.name}: its reference gives no number for '{name}'")


def _inputs(kernel: Kernel, problem: Problem, seed: int) -> list[dict[str, Any]]:
    """Makes as many sets of inputs as rounds rotate over."""
    specs = [spec for spec in kernel.arrays(problem) if not spec.output]
    generator = cupy.random.default_rng(seed)
    device = cupy.cuda.Device()
    set_bytes = sum(_bytes(spec) for spec in specs)
    sets = count_input_sets(
        set_bytes, l2_bytes=device.attributes["L2CacheSize"], budget_bytes=INPUT_BUDGET * device.mem_info[1]
    )
    given = kernel.given(problem) if kernel.given else {}
    return [
        {
            spec.name: cupy.asarray(given[spec.name]) if spec.fill == "given" else arrays.random(spec, generator)
            for spec in specs
        }
        for _ in range(sets)
    ]


def _bytes(spec: Array) -> int:
    size: int = arrays.raw_dtype(spec)().itemsize
    for length in spec.shape:
        size *= length
    return size
