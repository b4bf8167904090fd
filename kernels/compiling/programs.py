"""Finds NVIDIA's programs that read cubins and bytecode."""

import functools
import importlib.util
import shutil
from pathlib import Path

PACKAGES = {
    "cuobjdump": "nvidia-cuda-cuobjdump",
    "nvdisasm": "nvidia-cuda-nvdisasm",
    "tileirdisasm": "nvidia-cuda-tileiras",
}
"""Maps each program to its PyPI package."""


class ProgramMissing(Exception):
    """Raised if this machine lacks one of NVIDIA's programs."""


@functools.cache
def find_program(name: str) -> str:
    """Returns the path of one of NVIDIA's programs. Raises ProgramMissing if this machine lacks it."""
    package = importlib.util.find_spec("nvidia.cu13") if importlib.util.find_spec("nvidia") else None
    for folder in package.submodule_search_locations or () if package else ():
        program = Path(folder) / "bin" / name
        if program.is_file():
            return str(program)
    program_path = shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")
    if program_path is None:
        raise ProgramMissing(f"{name} is missing: pip install {PACKAGES[name]}")
    return program_path
