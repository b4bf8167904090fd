"""Describes a watched operator for the process that measures it, and hands over what its memory holds and its
reference. Runs inside the library's child, on PyTorch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import cupy

from tilewatch.kernels.catalog.loading import LibraryOperator
from tilewatch.kernels.gpu import shared_arrays
from tilewatch.kernels.gpu.host_code import device_memory, operator_results
from tilewatch.kernels.gpu.host_code.described_operator import ConfigLaunches, Memory
from tilewatch.kernels.gpu.host_code.input_sets import INPUT_BUDGET, count_sets
from tilewatch.kernels.gpu.host_code.tracing import HostCode, NotReplayable, Run
from tilewatch.kernels.library_errors import first_line
from tilewatch.kernels.results import config_key
from tilewatch.kernels.watching.configs import PlainConfig
from tilewatch.kernels.watching.declare import Case
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

LARGEST_WHOLE = 1 << 24
"""Whole numbers up to here are exact in float32, which references are handed over in."""


@dataclass
class _Contents:
    """What memory holds before its first launch, each different value once. `known` are copies."""

    budget_bytes: float
    known: list[Any] = field(default_factory=list)
    handles: list[str] = field(default_factory=list)

    def find_or_add(self, values: Any) -> int:
        """Returns the number of a content. Raises NotReplayable where there are too many."""
        for number, each in enumerate(self.known):
            if device_memory.is_equal(each, values):
                return number
        if sum(each.size for each in self.known) + values.size > self.budget_bytes:
            raise NotReplayable("gives kernels too much memory with values to hand it over")
        self.known.append(values)
        self.handles.append(shared_arrays.share_bytes(values.data.ptr, values.size))
        return len(self.known) - 1


def describe_operator(loaded: LibraryOperator, request: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a description as JSON can hold it, of the request's configs, else of all. Raises NotReplayable, and
    LibraryError where the operator cannot be measured at all."""
    operator, seed = loaded.kernel, request["seed"]
    problem = operator.parse(request["problem"])
    device = cupy.cuda.Device()
    activate(loaded.project)

    def make(turn: int) -> Case:
        with operator_results.poisoned_outputs():
            return make_case(operator, problem, seed + turn)

    case = make(0)
    remember_globals(loaded.project)
    given = find_given(operator, problem, f"sm_{device.compute_capability}")
    traced = run_config(case, loaded.project, operator, given, find_first_config(case, given))
    configs = request["configs"] or (list_configs(traced) if given is None else given.configs)
    facts = _describe_facts(case, list_arrays(traced.launches))
    del case, traced  # their memory
    expected = operator_results.expected_values(make(0).reference())
    host_code = HostCode(loaded, given, make(0), expected)
    contents = _Contents(INPUT_BUDGET * device.mem_info[1])
    described: dict[str, ConfigLaunches | str] = {}
    first: tuple[PlainConfig, Run, ConfigLaunches] | None = None
    for config in configs:
        try:
            run = host_code.trace(config)
        except NotReplayable as error:
            raise NotReplayable(f"{error} (with the config {config_key(config)})") from None
        except Exception as error:  # noqa: BLE001 - the edge of a trial: host code may raise anything
            described[config_key(config)] = f"the host code fails: {first_line(error)}"
            continue
        found = described[config_key(config)] = ConfigLaunches(
            _list_memory(run, contents), tuple(run.launches), run.results
        )
        first = first or (config, run, found)
    sets = [contents.handles]
    if first is not None:
        known = first[2].memory
        used = sum(each.nbytes for each in known if each.content is not None)
        for turn in range(1, count_sets(used, sum(each.size for each in contents.known) - used)):
            other = HostCode(loaded, given, make(turn), expected).trace_once(first[0])
            handles = _hand_over_like(other, first[1], known)
            if handles is None:  # what is launched depends on the values
                break
            sets.append(handles)
    return {
        "kernel": operator.name,
        **facts,
        "contents": [each.size for each in contents.known],
        "sets": sets,
        "reference": [None if each is None else _share_reference(each) for each in expected],
        "configs": {
            key: {"failure": each} if isinstance(each, str) else asdict(each) for key, each in described.items()
        },
    }


def _describe_facts(case: Case, arrays: Sequence[Any]) -> dict[str, Any]:
    work = describe_work(case, arrays)
    return {
        "flops": int(work["flops"]),
        "bytes": int(work["bytes"]),
        "dtypes": work["dtypes"],
        "element_bytes": arrays[0].element_size() if arrays else 1,
        "tolerance": float(operator_results.tolerance(case, arrays)),
        "bytes_moved": int(case.moves or sum(each.nbytes for each in arrays)),
    }


def _list_memory(run: Run, contents: _Contents) -> tuple[Memory, ...]:
    """Describes the memory of a run, whose values are handed over unless one byte says them all."""
    found = []
    for each in run.seen.values():
        fill = device_memory.find_fill(each.before)
        content = contents.find_or_add(each.before) if fill is None else None
        found.append(Memory(each.before.size, content, fill))
    return tuple(found)


def _hand_over_like(run: Run, first: Run, memory: tuple[Memory, ...]) -> list[str] | None:
    """Hands over the values of another set of inputs, by the numbers that the first set's have; None where it does not
    launch the same."""
    if not run.is_like(first):
        return None
    values: dict[int, Any] = {}
    for known, seen in zip(memory, run.seen.values(), strict=True):
        if known.content is None:
            if not device_memory.is_filled(seen.before, known.fill or 0):
                return None
        elif not device_memory.is_equal(values.setdefault(known.content, seen.before), seen.before):
            return None
    ordered = [values[number] for number in range(len(values))]
    return [shared_arrays.share_bytes(each.data.ptr, each.size) for each in ordered]


def _share_reference(value: Any) -> dict[str, Any]:
    """Describes a reference value as float32. Raises NotReplayable if float32 cannot hold it."""
    import torch

    if not value.dtype.is_floating_point and float(value.to(torch.float64).abs().max()) > LARGEST_WHOLE:
        raise NotReplayable(f"has a reference of whole numbers over {LARGEST_WHOLE:,}, which only its process compares")
    wide = value.to(torch.float32).contiguous()
    return {
        "handle": shared_arrays.share_bytes(wide.data_ptr(), wide.numel() * wide.element_size()),
        "shape": list(wide.shape),
    }
