"""Says which version of a library of NVIDIA's this process has loaded. Runs inside the GPU child.

PyTorch calls the copy that the process loaded first, which need not be the one that its environment names: CuPy loads
its own.
"""

import ctypes
from collections.abc import Callable, Mapping
from pathlib import Path

VERSION_OF: Mapping[str, tuple[str, str]] = {
    "nvidia-cublas": ("libcublasLt.so", "cublasLtGetVersion"),
    "nvidia-cudnn-cu13": ("libcudnn.so", "cudnnGetVersion"),
}
"""Maps a package to how its library's file name begins, and to the function that returns its version as a number."""

MAPS = Path("/proc/self/maps")


def read_loaded_versions(package: str) -> tuple[str, ...]:
    """Returns the versions of each copy that is loaded, such as "13.1.0"; none for a package that is not in VERSION_OF,
    and for one of which no copy is loaded."""
    if package not in VERSION_OF:
        return ()
    return list_versions(package, MAPS.read_text(), _call)


def list_versions(package: str, maps: str, call: Callable[[str, str], int]) -> tuple[str, ...]:
    """Returns the versions, each once, of the copies in `maps`, the text of /proc/self/maps. `call` calls a function of
    a file."""
    start, function = VERSION_OF[package]
    lines = (line.split(maxsplit=5) for line in maps.splitlines())
    files = dict.fromkeys(line[5] for line in lines if len(line) == 6 and Path(line[5]).name.startswith(start))
    return tuple(dict.fromkeys(name_version(call(file, function)) for file in files))


def name_version(number: int) -> str:
    """Writes a version that cublasLt.h or cudnn_version.h has as a number: 130100 is "13.1.0"."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def _call(file: str, function: str) -> int:
    version = ctypes.CDLL(file)[function]
    version.restype = ctypes.c_size_t
    return int(version())
