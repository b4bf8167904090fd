"""Fills the module `triton` if Triton is not installed. Triton's benchmarks run, but its kernels cannot be launched."""

import contextlib
import importlib
import importlib.util
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from tilewatch.kernels.watching.cuda_stand_ins.modules import CONTENT, FALLBACKS, NoStandIn, constant, find_gpu
from tilewatch.kernels.watching.timed_launches import do_bench


class TritonKernel:
    """A function decorated by `triton.jit` or similar. Launching it raises NoStandIn."""

    def __init__(self, *functions: Any, **_: Any) -> None:
        self.functions = functions

    def __call__(self, *functions: Any, **_: Any) -> "TritonKernel":
        return TritonKernel(*functions)

    def __getitem__(self, grid: Any) -> Any:
        raise NoStandIn("triton.jit")


class Benchmark:
    """Holds the sizes that a Triton benchmark measures, and the lines of its plot."""

    def __init__(self, **fields: Any) -> None:
        vars(self).update(fields)

    def list_cases(self) -> Iterator[dict[str, Any]]:
        """Yields the benchmark function's arguments for each line of the plot, at the first size."""
        fields = vars(self)
        for x in fields["x_vals"][:1]:
            values = x if isinstance(x, list | tuple) else [x] * len(fields["x_names"])
            for line in fields["line_vals"]:
                named = dict(zip(fields["x_names"], values, strict=True))
                yield {**named, fields["line_arg"]: line, **fields.get("args", {})}


class _Report:
    def __init__(self, function: Callable[..., Any], benchmarks: Any) -> None:
        self.fn = function
        self.benchmarks = [benchmarks] if isinstance(benchmarks, Benchmark) else list(benchmarks)

    def run(self, **_: Any) -> None:
        """Calls the function once per line of the plot, and ignores errors."""
        for benchmark in self.benchmarks:
            for case in benchmark.list_cases():
                with contextlib.suppress(Exception):
                    self.fn(**case)


class _ActiveDriver:
    def get_active_torch_device(self) -> Any:
        return importlib.import_module("torch").device("cuda", 0)

    def get_current_target(self) -> Any:
        major, minor = find_gpu().capability
        return SimpleNamespace(backend="cuda", arch=10 * major + minor, warp_size=32)


def hide_from_torch() -> None:
    """Makes PyTorch believe that Triton is missing. PyTorch would import parts that the stand-in lacks."""
    if importlib.util.find_spec("torch.utils._triton") is not None:
        vars(importlib.import_module("torch.utils._triton"))["has_triton_package"] = lambda: False


DECORATORS = dict.fromkeys(("jit", "autotune", "heuristics", "Config"), TritonKernel)
CONTENT |= {
    "triton": {
        **DECORATORS,
        "__version__": "3.5.0+stand.in",
        "cdiv": lambda x, y: -(-x // y),
        "next_power_of_2": lambda n: 1 << (n - 1).bit_length(),
        "set_allocator": constant(None),
    },
    "triton.testing": {
        "do_bench": do_bench,
        "do_bench_cudagraph": do_bench,
        "Benchmark": Benchmark,
        "perf_report": lambda benchmarks: lambda function: _Report(function, benchmarks),
    },
    "triton.runtime": {"driver": SimpleNamespace(active=_ActiveDriver())},
    "triton.language": {"constexpr": int},
}
FALLBACKS["triton"] = lambda module, _: TritonKernel() if module == "triton.language" else None
