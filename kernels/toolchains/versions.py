"""Reads the versions of the packages that affect machine code or measured times."""

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
            continue  # a package that is not installed is left out
    return installed


_lent: dict[str, str] = {}
"""Versions of the packages that this process takes from another environment."""


@functools.cache
def use_lent_compiler(folder: str) -> None:
    """Makes this process use another environment's tileiras. Must be called before the sandbox hides the folder."""
    from cuda.tile import _compile

    for name in COMPILING[1:]:
        for found in importlib.metadata.distributions(name=name, path=[folder]):
            _lent[name] = found.version
    _compile._find_pip_tileiras = lambda: f"{folder}/nvidia/cu13/bin/tileiras"
    _compile._find_compiler_bin.cache_clear()
    compiler_version.cache_clear()


@functools.cache
def compiler_version() -> str:
    """Returns the names and versions of the compiler's packages in one line."""
    installed = versions(COMPILING) | _lent
    return " ".join(f"{name.removeprefix('nvidia-')} {version}" for name, version in sorted(installed.items()))


def describe_other_compiler(traced_with: object, wanted: str) -> str:
    """Returns the error message for code that was traced with a wrong compiler."""
    return (
        f"the code was traced with {str(traced_with)[:200]}, but is compiled with {wanted}: set TILEWATCH_COMPILER on "
        "every node (docs/operate/settings.md), and install the same cuda-tile in the environment that records"
    )


def read_compilers(lines: Collection[str]) -> dict[str, str]:
    """Returns the versions of each package in lines from `compiler_version`, joined by commas."""
    found: dict[str, set[str]] = {}
    for line in lines:
        words = line.split()
        for name in COMPILING:
            short = name.removeprefix("nvidia-")
            if short in words[:-1]:
                found.setdefault(name, set()).add(words[words.index(short) + 1])
    return {name: ", ".join(sorted(each)) for name, each in found.items()}


def measuring_versions(driver: str, cuda_driver: str, timer: str) -> dict[str, str]:
    """Returns the versions of all software that may change a measured time, by name."""
    return {
        **versions(COMPILING),
        **versions(MEASURING),
        "driver": driver,
        "cuda_driver": cuda_driver,
        "timer": timer,
        "harness": HARNESS,
    }
