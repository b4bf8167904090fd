"""Finds the configs of a watched operator, and the kernels that each config launches."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from cuda.tile.compilation import KernelSignature

from tilewatch.kernels import NAMING
from tilewatch.kernels.contract import Problem
from tilewatch.kernels.watching import no_gpu
from tilewatch.kernels.watching.captured_values import describe_captured
from tilewatch.kernels.watching.configs import (
    KERNEL_OPTIONS,
    GivenConfigs,
    PlainConfig,
    drop_repetitions,
    list_axes,
    make_like,
    make_plain,
    read_given,
)
from tilewatch.kernels.watching.cuda_stand_ins.modules import is_in_use
from tilewatch.kernels.watching.declare import BadWatchFile, Case, WatchedOperator
from tilewatch.kernels.watching.device_array import DeviceArray, describe_array
from tilewatch.kernels.watching.expected_results import find_own_results, list_wrong_results
from tilewatch.kernels.watching.inputs import ProblemInputs
from tilewatch.kernels.watching.project import Project, activate, own_modules, remember_globals, restore_globals
from tilewatch.kernels.watching.timed_launches import events_traced, settle
from tilewatch.kernels.watching.tracer import (
    Execute,
    LaunchTrace,
    TracedLaunch,
    TracingError,
    find_part,
    find_signature,
    launch_for_real,
    list_arrays,
    open_trace,
    trace_launches,
)

SEED = 0


@dataclass(frozen=True)
class CompilableLaunch:
    """A kernel launch that can be compiled. Launches with equal `launch_key` have equal code."""

    kernel: Any
    signature: KernelSignature
    grid: tuple[int, ...]
    launch_key: str
    programmatic_dependent_launch: bool

    @property
    def symbol(self) -> str:
        return str(self.signature.symbol)

    @property
    def identity(self) -> tuple[str, bool]:
        """Returns the launch's key, and whether the launch may begin before the previous kernel ends."""
        return self.launch_key, self.programmatic_dependent_launch


def make_case(operator: WatchedOperator, problem: Problem, seed: int) -> Case:
    """Returns the Case that a watch file's function makes for a problem. Raises BadWatchFile if the Case is invalid."""
    found = operator.make_case(ProblemInputs(problem, seed))
    if not isinstance(found, Case):
        raise BadWatchFile(f"{operator.place}: {operator.name} returns {type(found).__name__}; expected case(...)")
    if (found.reference is None) != bool(operator.unchecked):
        raise BadWatchFile(
            f"{operator.place}: the case of {operator.name} needs either a reference, or a reason in `unchecked` why "
            "its result is not compared"
        )
    for name in operator.baselines:
        if name not in found.baselines and name not in BUILT_IN:
            known = ", ".join((*found.baselines, *BUILT_IN))
            raise BadWatchFile(f"{operator.place}: {operator.name} has no baseline '{name}'; it has {known}")
    return found


BUILT_IN = ("copy",)
"""Baselines that every operator has. "copy" copies as many bytes as the operator moves."""


def run_config(
    case: Case,
    project: Project,
    operator: WatchedOperator,
    given: GivenConfigs | None,
    config: PlainConfig | None,
    *,
    execute: Execute | None = None,
) -> LaunchTrace:
    """Traces one run of host code with a config. If `config` is None, each search finds its first config. Kernels run
    only if `execute` is given."""
    restore_globals(project)
    with events_traced(module for _, module in own_modules(project)):
        if case.before is not None:
            # On a GPU cuTile compiles its kernels: what `run` is given must hold their values.
            with open_trace(launch_for_real if project.arch is None else None):
                made = case.before()
            case = replace(case, run=partial(case.run, made), before=None)
        trace = _trace_config(case, operator, given, config, execute)
    settle(trace)
    return trace


def _trace_config(
    case: Case,
    operator: WatchedOperator,
    given: GivenConfigs | None,
    config: PlainConfig | None,
    execute: Execute | None,
) -> LaunchTrace:
    if config is None:
        return trace_launches(case.run, execute=execute)
    if case.own_parameters:
        return trace_launches(partial(case.run, **(given.make_original(config) if given else config)), execute=execute)
    hints = {name: value for name, value in config.items() if name in KERNEL_OPTIONS} if given else {}
    searched = False

    def choose(number: int, configs: tuple[Any, ...]) -> Any:
        nonlocal searched
        searched = True
        wanted = find_part(config, number)
        for each in configs:
            if make_plain(each) == wanted:
                return each
        return make_like(configs[0], wanted)

    def execute_hinted(launch: TracedLaunch) -> None:
        assert execute is not None
        execute(launch if searched else _with_hints(launch, hints))

    hinted = execute_hinted if execute and hints else execute
    trace = trace_launches(case.run, choose=choose, execute=hinted, config=config)
    if searched or trace.regions or not config:
        return trace
    if given is None:
        raise BadWatchFile(
            f"{operator.place}: the host code of {operator.name} searches only once: it remembers what it found where "
            "Tilewatch does not see it; give it the config with `configs` and arguments of `run`"
        )
    if set(config) - set(KERNEL_OPTIONS):
        unknown = ", ".join(sorted(set(config) - set(KERNEL_OPTIONS)))
        raise BadWatchFile(
            f"{operator.place}: `configs` of {operator.name} has {unknown}, but `run` takes no arguments and its host "
            "code searches nothing"
        )
    trace.launches = [_with_hints(launch, hints) for launch in trace.launches]
    return trace


def find_given(operator: WatchedOperator, problem: Problem, arch: str) -> GivenConfigs | None:
    """Returns the configs that a watch file states, or None. Raises BadWatchFile if they are invalid."""
    if operator.configs is None:
        return None
    try:
        return read_given(operator.configs, problem, arch)
    except BadWatchFile as error:
        raise BadWatchFile(f"{operator.place}: {operator.name}: {error}") from None


def find_first_config(case: Case, given: GivenConfigs | None) -> PlainConfig | None:
    """Returns the watch file's first config. Returns None if there is no config or if `run` needs no config."""
    if given is None or not given.configs or _runs_by_itself(case):
        return None
    return given.configs[0]


def describe_work(case: Case, arrays: Sequence[DeviceArray]) -> dict[str, Any]:
    """Returns a case's "flops", "bytes" and "dtypes". "bytes" is 0 if the watch file does not give `moves`."""
    # Not the bytes of the arrays: a launch may read only a part of an array, such as a part of a paged cache.
    return {"flops": case.flops, "bytes": case.moves or 0, "dtypes": sorted({each.dtype for each in arrays})}


def _with_hints(launch: TracedLaunch, hints: Mapping[str, Any]) -> TracedLaunch:
    return replace(launch, kernel=launch.kernel.replace_hints(**hints))


def to_launch(traced: TracedLaunch) -> CompilableLaunch:
    """Returns a traced launch with the signature for which `ct.launch` would compile it."""
    name = traced.kernel._pyfunc.__name__
    if not name.isascii() or name == "<lambda>":
        raise TracingError(f"the tile compiler compiles no kernel named {name}: name it with letters from a to z")
    named = find_signature(traced).with_symbol(name)
    key = hash_launch(traced.kernel, named)
    return CompilableLaunch(traced.kernel, named, traced.grid, key, traced.programmatic_dependent_launch)


def hash_launch(kernel: Any, signature: KernelSignature) -> str:
    """Returns a hash of the compiler's input for a launch."""
    function = kernel._pyfunc
    asked = [
        function.__module__,
        function.__qualname__,
        repr(asdict(kernel._compiler_options)),
        repr(signature.parameters),
        signature.calling_convention.code,
        # Absent if the kernel captures nothing, so that keys in stored bundles stay valid.
        *([captured] if (captured := describe_captured(function)) else []),
    ]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


class TracedOperator:
    """An operator with one problem on one architecture. `launches` runs the host code each time."""

    def __init__(self, operator: WatchedOperator, project: Project, problem: Problem) -> None:
        assert project.arch is not None, "on a GPU, kernels/gpu/host_code/prepared_operator.py runs the host code"
        self.operator, self.project, self.problem, self.arch = operator, project, problem, project.arch
        activate(project)
        remember_globals(project)
        self._gpu = no_gpu.PretendGpu(self.arch)
        self._given = find_given(operator, problem, self.arch)
        with self._gpu.in_use():
            self.case = make_case(operator, problem, SEED)
        config = find_first_config(self.case, self._given)
        if config is None and not _runs_by_itself(self.case):
            raise BadWatchFile(
                f"{operator.place}: `run` of {operator.name} takes arguments, so `configs` must say which"
            )
        first = self._run(config)
        try:
            self.configs = list_configs(first) if self._given is None else self._given.configs
        except BadWatchFile as error:
            raise BadWatchFile(f"{operator.place}: {operator.name}: {error}") from None
        runs_its_own = config is None and not first.searches
        self._shipped = [to_launch(each).identity for each in first.launches] if runs_its_own else None
        self.arrays = tuple(map(describe_array, list_arrays(first.launches)))

    @property
    def axes(self) -> tuple[tuple[str, tuple[Any, ...]], ...]:
        return list_axes(self.configs)

    @property
    def bytes_moved(self) -> int:
        """Returns the bytes that the watch file gives as `moves`, or by default the size of all launched arrays."""
        if self.case.moves is not None:
            return int(self.case.moves)
        return sum(each.nbytes for each in self.arrays)

    @property
    def element_bytes(self) -> int:
        return self.arrays[0].item_bytes if self.arrays else 1

    def launches(self, config: PlainConfig) -> tuple[CompilableLaunch, ...]:
        """Returns the host code's launches with this config, in order."""
        return tuple(to_launch(each) for each in self._run(config).launches)

    def find_shipped(self, launched: Sequence[tuple[CompilableLaunch, ...]]) -> PlainConfig | None:
        """Returns the config that launches the same as the host code's default, or None without one."""
        found = [[each.identity for each in launches] for launches in launched]
        return self.configs[found.index(self._shipped)] if self._shipped in found else None

    def list_wrong_results(self) -> tuple[str, ...]:
        """Returns messages about mistakes that show without a GPU; () if PyTorch is not installed."""
        if is_in_use("torch") or self.operator.unchecked:
            return ()
        activate(self.project)
        with self._gpu.in_use():
            trace = run_config(self.case, self.project, self.operator, self._given, self.configs[0])
        own = set[int]() if self.operator.not_apart else find_own_results(trace.result, list_arrays(trace.launches))
        # A new trace: the reference may read whole numbers that a kernel was given, and baselines may launch kernels.
        with self._gpu.in_use(), open_trace(execute=None, guess=0):
            return list_wrong_results(self.case, trace.result, own)

    def code_key(self, source_sha256: str, launches: tuple[CompilableLaunch, ...]) -> str:
        """Returns a hash of all that compiled code depends on, except the compiler."""
        asked = [NAMING, source_sha256, self.arch, [each.identity for each in launches]]
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()

    def _run(self, config: PlainConfig | None) -> LaunchTrace:
        activate(self.project)
        with self._gpu.in_use():
            return run_config(self.case, self.project, self.operator, self._given, config)


def list_configs(first: LaunchTrace) -> tuple[PlainConfig, ...]:
    """Returns the configs that host code searches; ({},) if host code does not search."""
    if len(first.searches) == 1:
        return drop_repetitions(make_plain(each) for each in first.searches[0])
    return drop_repetitions(_vary_one_search(first))


def _vary_one_search(trace: LaunchTrace) -> list[PlainConfig]:
    """Combines the configs of several searches, varying one search at a time from the first config."""
    named = [
        [{f"{number + 1}.{name}": value for name, value in make_plain(each).items()} for each in configs]
        for number, configs in enumerate(trace.searches)
    ]
    first = {name: value for configs in named for name, value in configs[0].items()}
    return [first, *({**first, **config} for configs in named for config in configs[1:])]  # the kernels' times add up


def _runs_by_itself(case: Case) -> bool:
    return all(each.default is not each.empty for each in case.own_parameters)
