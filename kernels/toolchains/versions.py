"""Reads the versions of everything that is not the commit, by name, without importing the heavy packages."""

import functools
import importlib.metadata
from collections.abc import Collection

from tilewatch.baselines import PACKAGES
from tilewatch.kernels import HARNESS

COMPILING = ("cuda-tile", "nvidia-cuda-tileiras", "nvidia-cuda-nvcc", "nvidia-nvvm")
MEASURING = ("cupy-cuda13x", "cupti-python", *PACKAGES)


def versions(names: tuple[str, ...]) -> dict[str, str]:
    installed = {}
    for name in names:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # a package that is not installed is not listed
    return installed


@functools.cache
def compiler_version() -> str:
    """Names what compiles here in one line: a different line may give different machine code."""
    installed = versions(COMPILING)
    return " ".join(f"{name.removeprefix('nvidia-')} {version}" for name, version in sorted(installed.items()))


def read_compilers(lines: Collection[str]) -> dict[str, str]:
    """Returns the versions by package name that lines of `compiler_version` name, whatever follows in them. Where lines
    differ, a package has all its versions."""
    found: dict[str, set[str]] = {}
    for line in lines:
        words = line.split()
        for name in COMPILING:
            short = name.removeprefix("nvidia-")
            if short in words[:-1]:
                found.setdefault(name, set()).add(words[words.index(short) + 1])
    return {name: ", ".join(sorted(each)) for name, each in found.items()}


def measuring_versions(driver: str, cuda_driver: str, timer: str) -> dict[str, str]:
    """Returns everything that may move a measured time while the commit stays the same."""
    return {
        **versions(COMPILING),
        **versions(MEASURING),
        "driver": driver,
        "cuda_driver": cuda_driver,
        "timer": timer,
        "harness": HARNESS,
    }
