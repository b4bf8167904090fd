"""The fingerprint of everything that is not the commit: versions by name, read without importing the heavy packages."""

import functools
import hashlib
import importlib.metadata
import json
from collections.abc import Mapping

from tilewatch.kernels import HARNESS

COMPILING = ("cuda-tile", "nvidia-cuda-tileiras", "nvidia-cuda-nvcc", "nvidia-nvvm")
MEASURING = ("cupy-cuda13x", "cupti-python", "torch", "sgl-deep-gemm")


def versions(names: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # absent is part of the fingerprint by its absence
    return found


@functools.cache
def compiler_version() -> str:
    """What compiles here, in one line: a different line may give different machine code."""
    found = versions(COMPILING)
    return " ".join(f"{name.removeprefix('nvidia-')} {version}" for name, version in sorted(found.items()))


def measuring(driver: str, cuda_driver: str, timer: str) -> dict[str, str]:
    """Everything that may move a measured time while the commit stands still."""
    return {
        **versions(COMPILING),
        **versions(MEASURING),
        "driver": driver,
        "cuda_driver": cuda_driver,
        "timer": timer,
        "harness": HARNESS,
    }


def fingerprint(toolchain: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(dict(toolchain), sort_keys=True).encode()).hexdigest()
