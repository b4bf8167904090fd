"""Describes a watched operator's launches, and shares the operator's GPU memory with the measuring process."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import cupy

from tilewatch.configs import config_key
from tilewatch.kernels.catalog.loading import LibraryOperator
from tilewatch.kernels.gpu import shared_arrays
from tilewatch.kernels.gpu.host_code import device_memory, operator_results
from tilewatch.kernels.gpu.host_code.described_operator import ConfigLaunches, Memory
from tilewatch.kernels.gpu.host_code.input_sets import INPUT_BUDGET, count_sets
from tilewatch.kernels.gpu.host_code.tracing import HostCode, NotReplayable, Run
from tilewatch.kernels.gpu.rounds import CHECKED_SETS
from tilewatch.kernels.library_errors import first_line
from tilewatch.kernels.watching.configs import PlainConfig
from tilewatch.kernels.watching.declare import Case
from tilewatch.kernels.watching.device_array import DeviceArray, describe_array
from tilewatch.kernels.watching.project import activate, remember_globals
from tilewatch.kernels.watching.traced_operator import (
    describe_work,
    find_first_config,
    find_given,
    list_configs,
    make_case,
    run_config,
)
from tilewatch.kernels.watching.tracer import list_arrays


@dataclass
class _Contents:
    """The different initial contents of an operator's allocations, numbered from 0."""

    budget_bytes: float
    known: list[Any] = field(default_factory=list)

    def find_or_add(self, values: Any) -> int:
        """Returns the number of a memory content. Raises NotReplayable if all contents together are too large."""
        for number, each in enumerate(self.known):
            if device_memory.is_equal(each, values):
                return number
        if sum(each.size for each in self.known) + values.size > self.budget_bytes:
            raise NotReplayable("gives kernels too much memory with values to hand it over")
        self.known.append(values)
        return len(self.known) - 1


class OperatorDescription:
    """A description of the kernel launches of a watched operator's configs."""

    def __init__(self, loaded: LibraryOperator, request: Mapping[str, Any], seed: int | None = None) -> None:
        """Traces the configs in the request, or all configs if it has none. Raises NotReplayable or LibraryError."""
        self._loaded, self._request = loaded, request
        self._seed = secrets.randbelow(2**31) if seed is None else seed
        operator = loaded.kernel
        self._problem = operator.parse(request["problem"])
        device = cupy.cuda.Device()
        activate(loaded.project)
        case = self._make_case(self._seed)
        remember_globals(loaded.project)
        self._given = find_given(operator, self._problem, f"sm_{device.compute_capability}")
        traced = run_config(case, loaded.project, operator, self._given, find_first_config(case, self._given))
        configs = request["configs"] or (list_configs(traced) if self._given is None else self._given.configs)
        self._facts = _describe_facts(case, tuple(map(describe_array, list_arrays(traced.launches))))
        del case, traced  # frees their memory
        self._expected = operator_results.expected_values(self._make_case(self._seed).reference)
        self._contents = _Contents(INPUT_BUDGET * device.mem_info[1])
        self._described: dict[str, ConfigLaunches | str] = {}
        self._needed: list[tuple[PlainConfig, ConfigLaunches]] = []  # together they use all contents
        self._describe(configs)
        self._sizes = [each.size for each in self._contents.known]

    @property
    def as_json(self) -> dict[str, Any]:
        return {
            "kernel": self._loaded.kernel.name,
            "unchecked": self._loaded.kernel.unchecked,
            **self._facts,
            "contents": self._sizes,
            "configs": {
                key: {"failure": each} if isinstance(each, str) else asdict(each)
                for key, each in self._described.items()
            },
        }

    def hand_over(self, seed: int) -> dict[str, Any]:
        """Returns CUDA IPC handles of the memory contents and reference results for a seed's inputs."""
        first = self._take_set(seed)
        if first is None:
            # The launches depend on input values, so they are described again.
            again = OperatorDescription(self._loaded, self._request, seed)
            return {**again.as_json, **again._share([again._contents.known], [again._expected])}
        self._contents.known.clear()  # frees their memory
        values, references = [first[0]], [first[1]]
        used = sum(each.nbytes for each in self._needed[0][1].memory if each.content is not None) if self._needed else 0
        for turn in range(1, count_sets(used, sum(self._sizes) - used) if self._needed else 1):
            other = self._take_set(seed + turn, None if turn < CHECKED_SETS else references[0])
            if other is None:  # what is launched depends on the values
                break
            values.append(other[0])
            references.append(other[1])
        return self._share(values, references[:CHECKED_SETS])

    def _make_case(self, seed: int) -> Case:
        with operator_results.poisoned_outputs():
            return make_case(self._loaded.kernel, self._problem, seed)

    def _describe(self, configs: Sequence[PlainConfig]) -> None:
        host_code = HostCode(self._loaded, self._given, self._make_case(self._seed), self._expected)
        for config in configs:
            try:
                run = host_code.trace(config)
            except NotReplayable as error:
                raise NotReplayable(f"{error} (with the config {config_key(config)})") from None
            except Exception as error:  # noqa: BLE001 - the edge of a trial: host code may raise anything
                self._described[config_key(config)] = f"the host code fails: {first_line(error)}"
                continue
            before = len(self._contents.known)
            found = ConfigLaunches(_list_memory(run, self._contents), tuple(run.launches), run.results)
            self._described[config_key(config)] = found
            if not self._needed or len(self._contents.known) > before:
                self._needed.append((config, found))

    def _take_set(self, seed: int, expected: tuple[Any, ...] | None = None) -> tuple[list[Any], tuple[Any, ...]] | None:
        """Returns the memory contents and reference results for one seed, or None if the launches differ."""
        try:
            if expected is None:
                expected = operator_results.expected_values(self._make_case(seed).reference)
            host_code = HostCode(self._loaded, self._given, self._make_case(seed), expected)
            values: dict[int, Any] = {}
            for config, known in self._needed:
                run = host_code.trace_once(config)
                if not _is_like(run, known) or not _find_values(run, known, values):
                    return None
        except Exception:  # noqa: BLE001 - host code may raise anything
            return None
        return [values[number] for number in sorted(values)], expected

    def _share(self, sets: Sequence[Sequence[Any]], references: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
        return {
            "sets": [[shared_arrays.share_bytes(each.data.ptr, each.size) for each in values] for values in sets],
            "reference": [
                [None if each is None else self._share_reference(place, each) for place, each in enumerate(expected)]
                for expected in references
            ],
        }

    def _share_reference(self, place: int, value: Any) -> dict[str, Any]:
        own = operator_results.name_type(value)
        view = self._needed[0][1].results[place] if self._needed else None
        dtype = shared_arrays.find_shared_type(own, view.dtype if view else own)
        return shared_arrays.share(operator_results.convert(value, dtype), dtype)


def _describe_facts(case: Case, arrays: Sequence[DeviceArray]) -> dict[str, Any]:
    work = describe_work(case, arrays)
    return {
        "flops": int(work["flops"]),
        "bytes": int(work["bytes"]),
        "dtypes": work["dtypes"],
        "element_bytes": arrays[0].item_bytes if arrays else 1,
        "tolerance": None if case.tolerance is None else float(case.tolerance),
        "bytes_moved": int(case.moves or sum(each.nbytes for each in arrays)),
    }


def _list_memory(run: Run, contents: _Contents) -> tuple[Memory, ...]:
    """Describes a run's allocations, and adds their initial contents to `contents`."""
    found = []
    for each in run.seen.values():
        fill = device_memory.find_fill(each.before)
        content = contents.find_or_add(each.before) if fill is None else None
        found.append(Memory(each.before.size, content, fill))
    return tuple(found)


def _is_like(run: Run, known: ConfigLaunches) -> bool:
    """Returns whether a run has the same launches, results and allocation sizes as the description."""
    sizes = [each.before.size for each in run.seen.values()]
    launched = (tuple(run.launches), run.results, sizes)
    return launched == (known.launches, known.results, [each.nbytes for each in known.memory])


def _find_values(run: Run, known: ConfigLaunches, values: dict[int, Any]) -> bool:
    """Adds a run's memory contents to `values`. Returns False if the contents contradict the description."""
    for memory, seen in zip(known.memory, run.seen.values(), strict=True):
        if memory.content is None:
            if not device_memory.is_filled(seen.before, memory.fill or 0):
                return False
        elif not device_memory.is_equal(values.setdefault(memory.content, seen.before), seen.before):
            return False
    return True
