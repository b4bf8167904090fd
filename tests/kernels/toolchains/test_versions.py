"""The line that names a compiler is read back into versions."""

from tilewatch.kernels.toolchains.versions import COMPILING, compiler_version, read_compilers, versions


def test_what_compiler_version_writes_is_read_back() -> None:
    assert read_compilers([f"{compiler_version()} limit 15s 1.25GiB"]) == versions(COMPILING)


def test_two_compilers_of_one_sweep_are_both_named() -> None:
    lines = ["cuda-tile 1.7.0 cuda-tileiras 13.5.37 limit 15s", "cuda-tile 1.7.0 cuda-tileiras 13.4.92 limit 15s"]
    assert read_compilers(lines) == {"cuda-tile": "1.7.0", "nvidia-cuda-tileiras": "13.4.92, 13.5.37"}
    assert read_compilers(["simulated"]) == {}
