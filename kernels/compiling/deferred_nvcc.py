"""Compiles DeepGEMM's kernels with nvcc while no process holds the GPU.

DeepGEMM calls nvcc in the middle of a launch, which kept the GPU from others for up to 90 s (H200, 2026-11-28). Here
such a launch fails, nvcc compiles the kernel without the GPU, and the next launch uses the compiled kernel."""

import os
import shlex
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Self

WANTED = "TILEWATCH_WANTED_KERNELS"
"""Environment variable with the name of a folder, in which a process leaves the sources to compile for it."""

NVCC = "DG_JIT_NVCC_COMPILER"
"""Environment variable that names the program which DeepGEMM calls as nvcc."""

LIMIT_S = 100.0

SCRIPT = """#!/bin/sh
# DeepGEMM 0.1.0 calls `nvcc --version`, then `nvcc SOURCE -cubin -o CUBIN FLAGS` (csrc/jit/compiler.hpp).
if [ "$2" != -cubin ] || [ "$3" != -o ]; then exec {nvcc} "$@"; fi
source=$1 cubin=$4
shift 4
key=$({{ echo "$*"; cat "$source"; }} | sha256sum | cut -c 1-32)
if [ -e {folder}/$key.cubin ]; then exec cp {folder}/$key.cubin "$cubin"; fi
if [ -e {folder}/$key.failed ]; then exec {nvcc} "$source" -cubin -o "$cubin" "$@"; fi
echo "$*" > "$WANTED/$key.flags" && mv "$source" "$WANTED/$key.cu"
exit 1
""".replace("$WANTED", f"${WANTED}")
"""A program in place of nvcc. It copies a compiled kernel, or leaves an unknown kernel's source and fails. For a
kernel that did not compile, it runs the real nvcc, so that the launch shows the compiler's error."""


def find_nvcc() -> Path | None:
    """Returns the nvcc that DeepGEMM would find, or None if this machine has none."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")  # as deep_gemm/__init__.py (0.1.0)
    found = Path(home, "bin", "nvcc") if home else Path(shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")
    return found if found.exists() else None


class DeferredNvcc:
    """Compiles kernels for several processes, in a folder that is deleted at the end."""

    def __init__(self, nvcc: Path) -> None:
        self._nvcc = nvcc
        self._folder = tempfile.TemporaryDirectory(prefix="tilewatch-nvcc-")
        self._script = Path(self._folder.name, "nvcc")
        self._script.write_text(SCRIPT.format(nvcc=shlex.quote(str(nvcc)), folder=shlex.quote(self._folder.name)))
        self._script.chmod(0o700)
        self._lock = threading.Lock()
        self._compiled: dict[str, Future[None]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def make_environment(self) -> Mapping[str, str]:
        """Returns environment variables that make a process save the sources of missing kernels for `compile`."""
        return {NVCC: str(self._script), WANTED: tempfile.mkdtemp(prefix="wanted-", dir=self._folder.name)}

    def take_wanted(self, environment: Mapping[str, str]) -> list[Path]:
        """Returns the kernel sources that a process has saved since the last call."""
        taken = []
        for source in sorted(Path(environment[WANTED]).glob("*.cu")):
            flags = source.with_suffix(".flags")
            taken.append(source.rename(Path(self._folder.name, source.name)))
            flags.rename(Path(self._folder.name, flags.name))
        return taken

    def compile(self, sources: Iterable[Path]) -> None:
        """Compiles sources, or waits while another thread compiles them. Failures are ignored."""
        for source in sources:
            with self._lock:
                is_first = source.stem not in self._compiled
                compiled = self._compiled.setdefault(source.stem, Future())
            if is_first:
                try:
                    self._compile(source)
                finally:
                    compiled.set_result(None)
            compiled.result()

    def _compile(self, source: Path) -> None:
        flags, made = source.with_suffix(".flags").read_text().split(), source.with_suffix(".part")
        try:
            command = [str(self._nvcc), str(source), "-cubin", "-o", str(made), *flags]
            subprocess.run(command, check=True, cwd=self._folder.name, capture_output=True, timeout=LIMIT_S)
        except (OSError, subprocess.SubprocessError):
            source.with_suffix(".failed").touch()
        else:
            made.rename(source.with_suffix(".cubin"))  # whole before another process looks for it
