"""What makes a compiler's input with the cuda-tile that is installed: one that does not fit is named in a sentence."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cuda.tile import _compile
from cuda.tile._compiler_options import CompilerOptions

from tilewatch.kernels.compiling import compiler_input
from tilewatch.kernels.compiling.compiler_input import (
    CompilerInput,
    LinkedLibrary,
    compile_input,
    find_compiler_files,
    make_input,
)

IMPORT = """
import sys
sys.modules[{missing!r}] = None  # as if this version did not have it
import tilewatch.kernels.compiling.compiler_input
"""


@pytest.mark.parametrize("missing", ["cutile_cache._remarks", "cuda.tile._compiler_options"])
def test_a_cuda_tile_that_does_not_fit_is_named_with_those_that_do(missing: str) -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT.format(missing=missing)], capture_output=True, text=True)
    assert done.returncode == 1
    (sentence,) = done.stderr.splitlines()
    own = importlib.metadata.version("cuda-tile")
    assert sentence.startswith(f"cuda-tile {own} does not fit: Tilewatch needs 1.6 or 1.7 (")
    assert missing in sentence


def test_a_library_may_be_as_large_as_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler_input, "LIBRARY_BYTES", 2 << 20)
    file = tmp_path / "lib.bc"
    file.write_bytes(bytes(2 << 20))
    assert LinkedLibrary.read(file) == LinkedLibrary(file, bytes(2 << 20))
    file.write_bytes(bytes((2 << 20) + 1))
    with pytest.raises(OSError, match=f"^{file} has more than 2 MiB$"):
        LinkedLibrary.read(file)


def test_what_cutile_gives_its_compiler_is_the_input_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, library = tmp_path / "bytecode", tmp_path / "lib.bc"
    library.write_bytes(b"linked")

    def export(*_: object, **given: object) -> None:
        file.write_bytes(b"code")
        assert given == {"gpu_code": "sm_90", "output_format": "cubin"}
        assert _compile.cache_lookup("what was compiled before") is None  # type: ignore[call-arg, arg-type]
        _compile.compile_cubin(str(file), CompilerOptions(opt_level=1), "sm_90", 60, None, **options)

    monkeypatch.setattr(compiler_input, "export_kernel", export)
    kernel: Any = None
    options: dict[str, Any] = {}
    assert make_input(kernel, kernel, "sm_90") == CompilerInput(b"code", 1, (), ())
    assert not file.exists()
    options = {"preview_features": ["simt"], "linker_inputs": [library]}
    assert make_input(kernel, kernel, "sm_90") == CompilerInput(b"code", 1, ("simt",), (LinkedLibrary.read(library),))


def test_a_cutile_that_compiles_by_itself_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel: Any = None
    monkeypatch.setattr(compiler_input, "export_kernel", lambda *_, **__: None)
    with pytest.raises(AssertionError, match="cuTile exported a kernel without its compiler"):
        make_input(kernel, kernel, "sm_90")


@pytest.mark.parametrize("has_remarks", [True, False])
@pytest.mark.parametrize("features", [(), ("simt",)])
def test_the_compiler_gets_the_input_as_it_was_captured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_remarks: bool, features: tuple[str, ...]
) -> None:
    libraries = (LinkedLibrary(Path("/a/lib.bc"), b"one"), LinkedLibrary(Path("/b/lib.bc"), b"two"))
    cubin = tmp_path / "cubin"
    cubin.write_bytes(b"made")

    def compile_cubin(
        file: str, options: CompilerOptions, arch: str, timeout_s: float, remarks: Path | None, **given: Any
    ) -> str:
        assert (Path(file).read_bytes(), options.opt_level_for_target(arch)) == (b"code", 1)
        assert (arch, timeout_s) == ("sm_90", 60)
        assert ("linker_inputs" in given) is bool(linked), "cuda-tile 1.6 does not take it"
        assert [each.read_bytes() for each in given.pop("linker_inputs", ())] == [each.content for each in linked]
        assert given == ({"preview_features": features} if features else {})
        if remarks is not None:
            remarks.write_text("--- !Passed\n...\n")
        return str(cubin)

    monkeypatch.setattr(_compile, "compile_cubin", compile_cubin)
    monkeypatch.setattr(_compile, "_tileiras_supports_remarks", lambda _: has_remarks)
    for linked in ((), libraries):
        made = compile_input(CompilerInput(b"code", 1, features, linked), "sm_90", 60)
        assert made == (b"made", "--- !Passed\n...\n" if has_remarks else "")


def test_a_compiler_that_is_not_installed_has_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def miss() -> None:
        raise FileNotFoundError("'tileiras'")

    monkeypatch.setattr(_compile, "_find_compiler_bin", miss)
    assert find_compiler_files() == {"cuda-tile": _compile.__file__, "tileiras": None}
