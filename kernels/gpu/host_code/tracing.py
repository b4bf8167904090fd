"""Records the launches of a watched operator's host code as data, so that another process can repeat them.

No kernel is launched: each launch fills its memory with a fixed byte instead. The host code runs twice, with different
bytes. Its launches cannot be repeated if they differ between the runs, or if host code overwrites the bytes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewatch.kernels.catalog.loading import LibraryOperator
from tilewatch.kernels.gpu.host_code import device_memory, operator_results
from tilewatch.kernels.gpu.host_code.described_operator import (
    COMPARED,
    ITEM_BYTES,
    MOST_LAUNCHES,
    MOST_MEMORY,
    NUMBER_TYPES,
    Number,
    OneLaunch,
    View,
)
from tilewatch.kernels.library_errors import LibraryError
from tilewatch.kernels.watching.configs import GivenConfigs, PlainConfig
from tilewatch.kernels.watching.declare import Case
from tilewatch.kernels.watching.device_array import DeviceArray, describe_array, is_array
from tilewatch.kernels.watching.project import activate
from tilewatch.kernels.watching.traced_operator import hash_launch, run_config
from tilewatch.kernels.watching.tracer import TracedLaunch, find_signature, list_arrays

BYTES = (0x55, 0x2A)
"""Bytes that stand in for the output of kernels in the two runs. Host code itself often writes 0x00 and 0xFF."""

CONVENTIONS = (1, 2)
"""cuTile's calling conventions that pass an array as pointer, shape and strides, and a tuple as its items (cuda-tile
1.7). Both pass the same values, and differ only in which values are constants of the code."""


class NotReplayable(LibraryError):
    """Raised if an operator's launches cannot be repeated. The message is shown after "its host code "."""


@dataclass
class _Seen:
    """An allocation of one run. `holder` is an array that keeps it from being freed."""

    number: int
    address: int
    holder: Any
    before: Any
    """A copy of the allocation's content from before the first launch."""

    @property
    def end(self) -> int:
        return int(self.address + self.before.size)


@dataclass
class Run:
    """One recorded run of host code. `refused` says why it cannot be repeated."""

    byte: int  # fills memory given to kernels
    seen: dict[int, _Seen] = field(default_factory=dict)  # by address
    launches: list[OneLaunch] = field(default_factory=list)
    results: tuple[View | None, ...] = ()
    refused: str | None = None

    def is_like(self, other: "Run") -> bool:
        """Returns whether two runs launch the same kernels with equal arguments."""
        sizes = [[each.before.size for each in run.seen.values()] for run in (self, other)]
        return (self.launches, self.results, sizes[0]) == (other.launches, other.results, sizes[1])

    def take(self, launch: TracedLaunch) -> None:
        """Records a launch instead of launching. Raises NotReplayable if it cannot be repeated."""
        if self.refused is None:
            try:
                self._take(launch)
                return
            except NotReplayable as error:
                self.refused = str(error)
        raise NotReplayable(self.refused)

    def _take(self, launch: TracedLaunch) -> None:
        if len(self.launches) == MOST_LAUNCHES:
            raise NotReplayable(f"launches more than {MOST_LAUNCHES:,} kernels")
        touched = {each.number: each for each in map(self._see, list_arrays([launch]))}
        signature = find_signature(launch)
        if signature.calling_convention.version not in CONVENTIONS:
            raise NotReplayable(f"launches by cuTile's calling convention {signature.calling_convention.code}")
        arguments: list[View | Number] = []
        for constraint, value in zip(signature.parameters, launch.args, strict=True):
            arguments += self._describe(constraint, value)
        x, y, z = (*launch.grid, 1, 1)[:3]
        key, symbol = hash_launch(launch.kernel, signature), launch.kernel._pyfunc.__name__
        is_dependent = launch.programmatic_dependent_launch
        self.launches.append(OneLaunch(key, symbol, (x, y, z), tuple(arguments), is_dependent))
        for each in touched.values():
            device_memory.fill(each.address, self.byte, each.before.size)

    def _see(self, given: Any) -> _Seen:
        """Returns an array's allocation. Raises NotReplayable if host code changed it after a launch."""
        array = describe_array(given)
        address, nbytes = array.memory, array.memory_bytes
        if not array.on_gpu or not nbytes or address % 16:
            raise NotReplayable("gives a kernel an array that is empty or not in the GPU's memory")
        if address not in self.seen:
            if len(self.seen) == MOST_MEMORY:
                raise NotReplayable(f"gives kernels more than {MOST_MEMORY:,} allocations")
            if any(each.address < address + nbytes and address < each.end for each in self.seen.values()):
                raise NotReplayable("gives kernels memory of two owners that is the same")
            before = device_memory.copy_from(address, nbytes)
            self.seen[address] = _Seen(len(self.seen), address, given, before)
        elif not self._is_untouched(self.seen[address]):
            raise NotReplayable("writes between launches into memory that a kernel was given before")
        return self.seen[address]

    def _is_untouched(self, seen: _Seen) -> bool:
        return device_memory.is_filled(device_memory.copy_from(seen.address, seen.before.size), self.byte)

    def _describe(self, constraint: Any, value: Any) -> list[View | Number]:
        """Returns the arguments that a kernel gets for one parameter. A constant gives none."""
        match type(constraint).__name__:
            case "ConstantConstraint":
                return []
            case "ScalarConstraint" if constraint.dtype.name in NUMBER_TYPES:
                return [Number(value, constraint.dtype.name)]
            case "TupleConstraint":
                pairs = zip(constraint.items, value, strict=True)
                return [each for item, part in pairs for each in self._describe(item, part)]
            case "ArrayConstraint" if is_array(value):
                return [self._view(describe_array(value), wide=constraint.index_dtype.name == "int64")]
        raise NotReplayable(f"gives a kernel a {type(value).__name__}")

    def _view(self, array: DeviceArray, *, wide: bool = False) -> View:
        if array.dtype not in ITEM_BYTES or 0 in array.shape:
            raise NotReplayable(f"has an array of {array.dtype} in the shape {array.shape}")
        offset, rest = divmod(array.address - array.memory, array.item_bytes)
        if rest:
            raise NotReplayable("has an array that begins inside of an element of its memory")
        return View(self.seen[array.memory].number, offset, array.shape, array.strides, array.dtype, wide)

    def find_results(self, result: Any, expected: Sequence[Any]) -> tuple[View | None, ...]:
        """Returns where the results lie in memory. Raises NotReplayable if no launch uses this memory."""
        values = operator_results.flatten(result)
        operator_results.require_shapes(values, expected)
        return tuple(
            None if wanted is None else self._find_result(number, value)
            for number, (value, wanted) in enumerate(zip(values, expected, strict=False), start=1)
        )

    def _find_result(self, number: int, value: Any) -> View:
        array = describe_array(value) if is_array(value) else None
        seen = None if array is None else self.seen.get(array.memory)
        if array is None or seen is None:
            raise NotReplayable(f"makes its result {number} itself: it is in memory that no kernel was given")
        if not self._is_untouched(seen):
            raise NotReplayable(f"finishes its result {number} itself, after its last launch")
        view = self._view(array)
        if view.dtype not in COMPARED:
            raise NotReplayable(f"has a result of {view.dtype}, which only its own process can compare")
        return view

    def restore(self) -> None:
        """Restores all memory to its content before the first launch."""
        for each in self.seen.values():
            device_memory.copy(each.address, each.before.data.ptr, each.before.size)


@dataclass(frozen=True)
class HostCode:
    """An operator's host code with one set of inputs, and the right results."""

    loaded: LibraryOperator
    given: GivenConfigs | None
    case: Case
    expected: tuple[Any, ...]

    def trace(self, config: PlainConfig) -> "Run":
        """Returns a recorded run of a config's host code. Raises NotReplayable if a second run differs."""
        first, second = (self.trace_once(config, byte) for byte in BYTES)
        if not first.is_like(second) or not all(
            device_memory.is_equal(one.before, other.before)
            for one, other in zip(first.seen.values(), second.seen.values(), strict=True)
        ):
            raise NotReplayable("looks at what a kernel wrote, or does something else each time")
        return first

    def trace_once(self, config: PlainConfig, byte: int = BYTES[0]) -> Run:
        activate(self.loaded.project)
        run = Run(byte)
        try:
            with operator_results.poisoned_outputs():
                trace = run_config(
                    self.case, self.loaded.project, self.loaded.kernel, self.given, config, execute=run.take
                )
            if run.refused is not None:
                raise NotReplayable(run.refused)
            if trace.kept is not None:
                run.launches = [run.launches[place] for place in trace.kept]
            run.results = run.find_results(trace.result, self.expected)
            return run
        except Exception:
            if run.refused is not None:  # host code may raise another error when it catches ours
                raise NotReplayable(run.refused) from None
            raise
        finally:
            run.restore()
