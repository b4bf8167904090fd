"""Child role `library`: runs a library on the GPU, beside the process that measures (kernels/gpu/gpu_child.py).

It describes a problem of a library file's kernel, and computes the reference; it ends before the first timed launch.
A watched operator's host code needs a CUDA context and PyTorch, so that this process measures operators too.
"""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cupy

from tilewatch.kernels.contract import Kernel, Problem
from tilewatch.kernels.gpu import arrays, gpu_child, shared_arrays
from tilewatch.kernels.gpu.described_problem import describe_problem
from tilewatch.kernels.library_errors import LibraryError
from tilewatch.kernels.loading import LibraryKernel, LibraryOperator, find, load


def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
    match request["ask"]:
        case "import":
            return _import(tuple(map(Path, request["libraries"])))
        case "describe problem":
            return _describe(request)
        case "reference":
            return {"outputs": _compute_reference(request)}
        case "prepare":
            return _prepare_operator(request)
    return gpu_child.answer(request)


def _import(libraries: tuple[Path, ...]) -> Mapping[str, Any]:
    """Imports what a process needs before it is given its job: the files of both sides, and with them PyTorch."""
    for library in libraries:
        if any(isinstance(each, LibraryOperator) for each in load(library).values()):
            importlib.import_module("tilewatch.kernels.gpu.prepared_operator")
    return {}


def _describe(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Describes the problem as each library has it; None where it has no such kernel. "problems" is None for a watched
    operator. The configs are the request's, else those of the search space."""
    kernel = _find(request)
    if isinstance(kernel, LibraryOperator):
        return {"problems": None}
    problem = kernel.kernel.parse(request["problem"])
    described: dict[str, Any] = {request["library"]: _describe_kernel(kernel.kernel, problem, request)}
    for library in request["others"]:
        other = load(Path(library)).get(request["kernel"])
        described[library] = None
        if isinstance(other, LibraryKernel):
            described[library] = _describe_kernel(other.kernel, problem, request)
    return {"problems": described}


def _describe_kernel(kernel: Kernel, problem: Problem, request: Mapping[str, Any]) -> dict[str, Any]:
    device = cupy.cuda.Device()
    configs = request["configs"]
    if configs is None:
        configs = kernel.space(f"sm_{device.compute_capability}").configs()
    return describe_problem(kernel, problem, configs, device.attributes["MultiProcessorCount"])


def _compute_reference(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Computes the reference on the first set of the inputs that the measuring process makes of the same seed."""
    found = _find(request)
    assert isinstance(found, LibraryKernel)
    kernel = found.kernel
    problem = kernel.parse(request["problem"])
    specs = [spec for spec in kernel.arrays(problem) if not spec.output]
    given = kernel.given(problem) if kernel.given else {}
    (inputs,) = arrays.make_input_sets(specs, given, request["seed"], 1)
    decoded = {spec.name: arrays.decode(inputs[spec.name], spec.dtype) for spec in specs}
    del inputs
    outputs = kernel.reference(decoded, cupy)
    return {name: shared_arrays.share(value) for name, value in outputs.items()}


def _prepare_operator(request: Mapping[str, Any]) -> Mapping[str, Any]:
    from tilewatch.kernels.gpu.prepared_operator import PreparedOperator  # it needs PyTorch

    loaded = _find(request)
    if not isinstance(loaded, LibraryOperator):
        raise LibraryError(f"{request['kernel']} is no watched operator")
    return gpu_child.begin(lambda uuid, timer: PreparedOperator(loaded, request, uuid, timer), request.get("timer"))


def _find(request: Mapping[str, Any]) -> LibraryKernel | LibraryOperator:
    return find(Path(request["library"]), request["kernel"])
