"""Tests a toolchain by compiling one of the kernels that come with Tilewatch."""

import tempfile
from pathlib import Path

from tilewatch.kernels.compiling.compile_children import BuildError
from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.compiling.store import folder
from tilewatch.kernels.library import FOLDER
from tilewatch.kernels.toolchains.toolchain import Toolchain

KERNEL, PROBLEM, ARCH = "gemm_fp8", "64x24576x1536", "sm_90"
CONFIG = {"tile_m": 64, "tile_n": 64, "tile_k": 64, "num_ctas": 1, "occupancy": 1, "group_size_m": 8}


def require_compiles(toolchain: Toolchain) -> None:
    """Raises BuildError if a toolchain cannot compile."""
    with (
        tempfile.TemporaryDirectory(prefix="tilewatch-trial-") as scratch,
        Compiler(folder(Path(scratch)), toolchain=toolchain) as compiler,
    ):
        outcome = compiler.compile(FOLDER, KERNEL, PROBLEM, CONFIG, ARCH)
    if outcome.status != "ok":
        raise BuildError(f"{KERNEL} does not compile for {ARCH} with the toolchain {toolchain.name}: {outcome.failure}")
