"""Finds NVIDIA's programs that read cubins and bytecode: those of the PyPI packages, else those of a CUDA toolkit."""

import functools
import importlib.util
import shutil
from pathlib import Path

PACKAGES = {
    "cuobjdump": "nvidia-cuda-cuobjdump",
    "nvdisasm": "nvidia-cuda-nvdisasm",
    "tileirdisasm": "nvidia-cuda-tileiras",
}
"""The PyPI package that brings each program."""


class ProgramMissing(Exception):
    """Neither the PyPI package nor a CUDA toolkit brings a program."""


@functools.cache
def find_program(name: str) -> str:
    """Returns the path of one of PACKAGES. Raises ProgramMissing."""
    package = importlib.util.find_spec("nvidia.cu13") if importlib.util.find_spec("nvidia") else None
    for folder in package.submodule_search_locations or () if package else ():
        program = Path(folder) / "bin" / name
        if program.is_file():
            return str(program)
    program_path = shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")
    if program_path is None:
        raise ProgramMissing(f"{name} is missing: pip install {PACKAGES[name]}")
    return program_path
