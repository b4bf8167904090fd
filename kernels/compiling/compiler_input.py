"""Captures the input that cuTile gives to the tile compiler, and compiles captured inputs, here or on another machine.

Both steps are cuTile's own code (cuda-tile 1.6 and 1.7), so the machine code is equal to that of `ct.launch`."""

import base64
import hashlib
import importlib.metadata
import io
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from unittest import mock

try:
    from cuda.tile import _compile
    from cuda.tile._cext import default_tile_context
    from cuda.tile._compiler_options import CompilerOptions
    from cuda.tile.compilation import KernelSignature, export_kernel
    from cutile_cache._remarks import cleanup  # the compiler repeats remarks, and cuTile's own cache keeps each once
except ImportError as error:
    version = importlib.metadata.version("cuda-tile")
    raise SystemExit(f"cuda-tile {version} does not fit: Tilewatch needs 1.6 or 1.7 ({error})") from None

from tilewatch.kernels.compiling.bytecode import hash_without_positions

LIBRARY_BYTES = 1 << 28
"""Bytes of the largest file that a kernel may be linked with."""


class NeedsLibraries(Exception):
    """Raised if a kernel is linked with files that only this machine has."""


@dataclass(frozen=True)
class LinkedLibrary:
    """A file of this machine with which a kernel is linked."""

    path: Path
    content: bytes  # read once, so that the linked bytes are those hashed

    @classmethod
    def read(cls, path: Path) -> "LinkedLibrary":
        """Returns a file with its content. Raises OSError if it is unreadable or too large."""
        if not path.is_file():  # a device may have no end
            raise FileNotFoundError(f"there is no file {path}")
        if path.stat().st_size > LIBRARY_BYTES:
            raise OSError(f"{path} has more than {LIBRARY_BYTES >> 20} MiB")
        return cls(path, path.read_bytes())


@dataclass(frozen=True)
class CompilerInput:
    """The tile compiler's input for one kernel."""

    bytecode: bytes
    opt_level: int
    preview_features: tuple[str, ...]
    libraries: tuple[LinkedLibrary, ...]

    def require_movable(self) -> None:
        """Raises NeedsLibraries if other machines cannot compile the kernel."""
        if self.libraries:
            linked = ", ".join(str(each.path) for each in self.libraries)
            raise NeedsLibraries(f"the kernel is linked with {linked} of this machine")

    def identify(self) -> dict[str, Any]:
        """Returns all fields by name, with hashes in place of bytecode and linked libraries."""
        hashed = {
            "bytecode": hash_without_positions(self.bytecode),
            "libraries": [hashlib.sha256(each.content).hexdigest() for each in self.libraries],
        }
        return {each.name: hashed.get(each.name, getattr(self, each.name)) for each in fields(self)}

    def to_json(self) -> dict[str, Any]:
        return {
            "bytecode": base64.b64encode(self.bytecode).decode(),
            "opt_level": self.opt_level,
            "preview_features": list(self.preview_features),
            "libraries": [str(each.path) for each in self.libraries],
        }


class _InputCaptured(Exception):
    def __init__(self, wanted: CompilerInput) -> None:
        self.wanted = wanted


def make_input(kernel: Any, signature: KernelSignature, arch: str) -> CompilerInput:
    """Returns the compiler's input for a kernel. Raises cuTile's errors for invalid code."""

    def stop(file: str, options: CompilerOptions, sm_arch: str, *_: Any, **given: Any) -> None:
        bytecode = Path(file).read_bytes()
        Path(file).unlink()
        # cuda-tile 1.6 has neither option.
        features, linked = tuple(given.get("preview_features", ())), tuple(given.get("linker_inputs", ()))
        libraries = tuple(map(LinkedLibrary.read, linked))
        raise _InputCaptured(CompilerInput(bytecode, options.opt_level_for_target(sm_arch), features, libraries))

    # Without cuTile's cache: it would return what this machine compiled before, and not call the compiler.
    with mock.patch.multiple(_compile, compile_cubin=stop, cache_lookup=lambda *_: None):
        try:
            export_kernel(kernel, [signature], io.BytesIO(), gpu_code=arch, output_format="cubin")
        except _InputCaptured as captured:
            return captured.wanted
    raise AssertionError("cuTile exported a kernel without its compiler")


def compile_input(wanted: CompilerInput, arch: str, timeout_s: float) -> tuple[bytes, str]:
    """Returns the cubin and the compiler's remarks as YAML. Raises cuTile's errors."""
    with tempfile.TemporaryDirectory(dir=default_tile_context.config.temp_dir) as folder:
        file, remarks = Path(folder) / "kernel.bytecode", Path(folder) / "remarks.yaml"
        file.write_bytes(wanted.bytecode)
        linked = [Path(folder) / f"{number}-{each.path.name}" for number, each in enumerate(wanted.libraries)]
        for library, each in zip(linked, wanted.libraries, strict=True):
            library.write_bytes(each.content)
        has_remarks = _compile._tileiras_supports_remarks(default_tile_context.config.temp_dir)
        cubin = _compile.compile_cubin(
            str(file),
            CompilerOptions(opt_level=wanted.opt_level),
            arch,
            timeout_s,
            remarks if has_remarks else None,
            **({"preview_features": wanted.preview_features} if wanted.preview_features else {}),
            **({"linker_inputs": linked} if linked else {}),
        )
        return Path(cubin).read_bytes(), cleanup(remarks.read_text(errors="replace")) if remarks.exists() else ""


def find_compiler_files() -> dict[str, str | None]:
    """Returns the paths of the compiler files that this process uses. A missing file is None."""
    try:
        tileiras = _compile._find_compiler_bin().path
    except FileNotFoundError:
        tileiras = None
    return {"cuda-tile": _compile.__file__, "tileiras": tileiras}
