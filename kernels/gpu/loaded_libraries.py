"""Finds the versions of NVIDIA libraries that this process has loaded."""

import ctypes
from collections.abc import Callable, Mapping
from pathlib import Path

VERSION_OF: Mapping[str, tuple[str, str]] = {
    "nvidia-cublas": ("libcublasLt.so", "cublasLtGetVersion"),
    "nvidia-cudnn-cu13": ("libcudnn.so", "cudnnGetVersion"),
}
"""Maps each package to the start of its library's file name, and to the library's function for its version."""

MAPS = Path("/proc/self/maps")


def read_loaded_versions(package: str) -> tuple[str, ...]:
    """Returns the loaded versions of a package, such as "13.1.0"."""
    if package not in VERSION_OF:
        return ()
    return list_versions(package, MAPS.read_text(), _call)


def list_versions(package: str, maps: str, call: Callable[[str, str], int]) -> tuple[str, ...]:
    """Returns the versions that `call` reads from a package's library files in `maps` (/proc/self/maps)."""
    start, function = VERSION_OF[package]
    lines = (line.split(maxsplit=5) for line in maps.splitlines())
    files = dict.fromkeys(line[5] for line in lines if len(line) == 6 and Path(line[5]).name.startswith(start))
    return tuple(dict.fromkeys(name_version(call(file, function)) for file in files))


def name_version(number: int) -> str:
    """Formats a version number of NVIDIA's headers: 130100 becomes "13.1.0"."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def _call(file: str, function: str) -> int:
    version = ctypes.CDLL(file)[function]
    version.restype = ctypes.c_size_t
    return int(version())
