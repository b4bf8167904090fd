"""Runs a library's code in a child process beside the measuring process.

This process describes the launches and computes the right results. It ends before the first timed launch, unless an
operator can only be measured by running its host code."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cupy

from tilewatch.kernels.catalog.loading import LibraryKernel, LibraryOperator, find, load
from tilewatch.kernels.contract import Array, Kernel
from tilewatch.kernels.gpu import arrays, gpu_child, shared_arrays
from tilewatch.kernels.gpu.described_problem import describe_problem
from tilewatch.kernels.gpu.host_code.describing import OperatorDescription
from tilewatch.kernels.gpu.host_code.tracing import NotReplayable
from tilewatch.kernels.gpu.prepared_problem import count_sets
from tilewatch.kernels.gpu.rounds import CHECKED_SETS
from tilewatch.kernels.library_errors import LibraryError, first_line

MOST_DESCRIBED = 32 << 20
"""Most bytes of an operator's description, half of what an answer may have (kernels/children/child_process.py)."""


def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
    match request["ask"]:
        case "import":
            return _import(Path(request["library"]))
        case "describe problem":
            return {"problem": _describe(_find(request), request)}
        case "describe side":
            found = load(Path(request["library"])).get(request["kernel"])
            return {"problem": found and _describe(found, request), "is_watched": isinstance(found, LibraryOperator)}
        case "describe operator":
            return _describe_operator(request)
        case "hand over":
            return _hand_over(request["seed"])
        case "reference":
            return {"outputs": _compute_references(request)}
        case "prepare":
            return _prepare_operator(request)
    return gpu_child.answer(request)


def _import(library: Path) -> Mapping[str, Any]:
    """Imports the library and creates the CUDA context."""
    # Done later, this would take 0.5 s of GPU time (H100, 2026-11-28).
    load(library)
    values = cupy.random.default_rng(0).standard_normal((16, 16), dtype=cupy.float32)
    arrays.encode(values @ values, "bfloat16")
    cupy.cuda.get_current_stream().synchronize()
    return {}


def _describe(found: LibraryKernel | LibraryOperator, request: Mapping[str, Any]) -> dict[str, Any] | None:
    """Describes a problem and its launches. Returns None for a watched operator."""
    if isinstance(found, LibraryOperator):
        return None
    kernel = found.kernel
    device = cupy.cuda.Device()
    configs = request["configs"]
    if configs is None:
        configs = kernel.list_nightly(f"sm_{device.compute_capability}")
    problem = kernel.parse(request["problem"])
    return describe_problem(kernel, problem, configs, device.attributes["MultiProcessorCount"])


_described: OperatorDescription | None = None
"""The operator described last, kept until the contents of its memory have been handed over."""


def _describe_operator(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the description of a watched operator, or why this process must measure it."""

    found = _find_operator(request)

    def describe() -> dict[str, Any]:
        global _described
        _described = OperatorDescription(found, request)
        return _described.as_json

    return {**_answer_with_operator(describe), "stated": found.kernel.not_apart}


def _hand_over(seed: int) -> Mapping[str, Any]:
    """Returns handles of an operator's inputs and right results, or why this process must measure it."""
    global _described
    assert _described is not None, "describe operator comes first"
    described, _described = _described, None
    return _answer_with_operator(lambda: described.hand_over(seed))


def _answer_with_operator(make: Callable[[], dict[str, Any]]) -> Mapping[str, Any]:
    try:
        described = make()
        if len(json.dumps(described)) <= MOST_DESCRIBED:
            return {"operator": described}
        why = f"the description of its launches has more than {MOST_DESCRIBED >> 20} MiB"
    except NotReplayable as error:
        why = f"its host code {error}"
    except Exception as error:  # noqa: BLE001 - host code may raise anything; if it matters it is raised again
        why = f"its host code could not be traced: {first_line(error)}"
    shared_arrays.free()
    cupy.get_default_memory_pool().free_all_blocks()
    return {"stays": why}


def _compute_references(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns handles of the right results on the first sets of inputs."""
    # The measuring process holds inputs at the same time.
    shared_arrays.free()
    cupy.get_default_memory_pool().free_all_blocks()
    found = _find(request)
    assert isinstance(found, LibraryKernel)
    kernel = found.kernel
    problem = kernel.parse(request["problem"])
    specs = kernel.arrays(problem)
    inputs = [spec for spec in specs if not spec.output]
    given = kernel.given(problem) if kernel.given else {}
    sets = arrays.make_input_sets(inputs, given, request["seed"], min(CHECKED_SETS, count_sets(inputs)))
    return [_compute_reference(kernel, specs, sets.pop(0)) for _ in range(len(sets))]


def _compute_reference(kernel: Kernel, specs: Sequence[Array], inputs: dict[str, Any]) -> dict[str, Any]:
    dtypes = {spec.name: spec.dtype for spec in specs}
    decoded = {name: arrays.decode(inputs.pop(name), dtypes[name]) for name in list(inputs)}
    with arrays.without_cub():
        outputs = kernel.reference(decoded, cupy)
    return {
        name: shared_arrays.share(value, shared_arrays.find_shared_type(str(value.dtype), dtypes.get(name, "float32")))
        for name, value in outputs.items()
    }


def _prepare_operator(request: Mapping[str, Any]) -> Mapping[str, Any]:
    from tilewatch.kernels.gpu.host_code.prepared_operator import PreparedOperator  # it needs PyTorch

    loaded = _find_operator(request)
    return gpu_child.begin(lambda uuid, timer: PreparedOperator(loaded, request, uuid, timer), request.get("timer"))


def _find_operator(request: Mapping[str, Any]) -> LibraryOperator:
    found = _find(request)
    if not isinstance(found, LibraryOperator):
        raise LibraryError(f"{request['kernel']} is not a watched operator")
    return found


def _find(request: Mapping[str, Any]) -> LibraryKernel | LibraryOperator:
    return find(Path(request["library"]), request["kernel"])
