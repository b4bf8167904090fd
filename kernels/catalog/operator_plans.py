"""Makes plans and descriptions of the operators in watch files."""

import linecache
from typing import Any

from tilewatch.configs import config_key
from tilewatch.kernels.catalog.loading import LibraryOperator
from tilewatch.kernels.catalog.share import Shares
from tilewatch.kernels.catalog.validation import split_configs
from tilewatch.kernels.contract import Config, Problem
from tilewatch.kernels.watching.device_array import DeviceArray
from tilewatch.kernels.watching.project import CANONICAL


def plan_operator(loaded: LibraryOperator, problem: Problem, arch: str, shares: Shares) -> dict[str, Any]:
    """Returns the fields of an operator's Plan as JSON."""
    operator, traced = loaded.kernel, loaded.trace(problem)
    launched = [loaded.list_launches(traced, config) for config in traced.configs]
    source_sha256 = loaded.source_sha256  # read after the launches: host code may import more while it runs
    listed, rest = split_configs(tuple(traced.configs), loaded.short_lists.get(arch))
    drawn = shares.choose(rest, operator.name, problem.name, source_sha256)
    codes = {
        config_key(config): traced.code_key(source_sha256, launches)
        for config, launches in zip(traced.configs, launched, strict=True)
    }
    trials = [{"config": config, "code_key": codes[config_key(config)]} for config in (*listed, *drawn)]
    return {
        "kernel": operator.name,
        "problem": problem.name,
        "arch": arch,
        "source_sha256": source_sha256,
        "element_bytes": traced.element_bytes,
        "sizes": dict(problem.sizes),
        "dtypes": sorted({each.dtype for each in traced.arrays}),
        "axes": traced.axes,
        "flops": traced.case.flops,
        "bytes": traced.bytes_moved,
        "work": traced.case.work,
        "baselines": operator.baselines,
        "trials": trials,
        "drawn": len(drawn),
        "rest": len(rest),
        "ships": traced.find_shipped(launched) if len(traced.configs) > 1 else None,
    }


def describe_operator(loaded: LibraryOperator, problem: Problem, config: Config, arch: str) -> dict[str, Any]:
    """Returns the fields of an operator's Description as JSON."""
    traced = loaded.trace(problem)
    launches = traced.launches(dict(config))
    kernel = launches[0].kernel
    code = kernel._pyfunc.__code__
    parameters = zip(kernel._annotated_function.pysig.parameters, launches[0].signature.parameters, strict=True)
    return {
        "kernel": loaded.kernel.name,
        "problem": problem.name,
        "arch": arch,
        "file": code.co_filename.removeprefix(f"{CANONICAL}/").removeprefix(f"{loaded.project.root}/"),
        "source": "".join(linecache.getlines(code.co_filename, kernel._pyfunc.__globals__)),
        "entry": kernel._pyfunc.__name__,
        "config": dict(config),
        "sizes": dict(problem.sizes),
        "arrays": [
            (f"array {number}", each.shape, each.dtype, _has_aligned_rows(each))
            for number, each in enumerate(traced.arrays)
        ],
        "constants": {name: each.value for name, each in parameters if hasattr(each, "value")},
        "element_bytes": traced.element_bytes,
        "grid_follows_gpu": None,
        "line": code.co_firstlineno,
    }


def _has_aligned_rows(array: DeviceArray) -> bool:
    return len(array.shape) < 2 or array.strides[-2] * array.item_bytes % 16 == 0
