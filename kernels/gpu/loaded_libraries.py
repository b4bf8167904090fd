"""Finds the versions of NVIDIA libraries that this process has loaded. CuPy and PyTorch may each bring a copy of one.
The copy loaded first serves both, so PyTorch may run on another version than its own. Runs inside the GPU child."""

import ctypes
from collections.abc import Callable, Mapping
from pathlib import Path

VERSION_OF: Mapping[str, tuple[str, str]] = {
    "nvidia-cublas": ("libcublasLt.so", "cublasLtGetVersion"),
    "nvidia-cudnn-cu13": ("libcudnn.so", "cudnnGetVersion"),
}
"""Maps a package to the beginning of its library's file name, and to its function that returns the version."""

MAPS = Path("/proc/self/maps")


def read_loaded_versions(package: str) -> tuple[str, ...]:
    """Returns the versions, such as "13.1.0", of a package's loaded copies. Empty for one not in VERSION_OF."""
    if package not in VERSION_OF:
        return ()
    return list_versions(package, MAPS.read_text(), _call)


def list_versions(package: str, maps: str, call: Callable[[str, str], int]) -> tuple[str, ...]:
    """Returns the versions of a package's copies in `maps`, the text of /proc/self/maps. `call` calls a library's
    function."""
    start, function = VERSION_OF[package]
    lines = (line.split(maxsplit=5) for line in maps.splitlines())
    files = dict.fromkeys(line[5] for line in lines if len(line) == 6 and Path(line[5]).name.startswith(start))
    return tuple(dict.fromkeys(name_version(call(file, function)) for file in files))


def name_version(number: int) -> str:
    """Formats a version number of cublasLt.h or cudnn_version.h: 130100 becomes "13.1.0"."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def _call(file: str, function: str) -> int:
    version = ctypes.CDLL(file)[function]
    version.restype = ctypes.c_size_t
    return int(version())
