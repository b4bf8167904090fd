"""The line that names a compiler is read back into versions."""

import pytest

from tilewatch.kernels.toolchains import versions as module
from tilewatch.kernels.toolchains.versions import COMPILING, compiler_version, read_compilers, versions


def test_what_compiler_version_writes_is_read_back() -> None:
    assert read_compilers([f"{compiler_version()} limit 15s 1.25GiB"]) == versions(COMPILING)


def test_two_compilers_of_one_sweep_are_both_named() -> None:
    lines = ["cuda-tile 1.7.0 cuda-tileiras 13.5.37 limit 15s", "cuda-tile 1.7.0 cuda-tileiras 13.4.92 limit 15s"]
    assert read_compilers(lines) == {"cuda-tile": "1.7.0", "nvidia-cuda-tileiras": "13.4.92, 13.5.37"}
    assert read_compilers(["simulated"]) == {}


def test_a_run_names_the_libraries_of_its_baselines(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"torch": "2.11.0", "nvidia-cublas": "13.8.0.4", "nvidia-cudnn-cu13": "9.19.0.56"}
    monkeypatch.setattr(
        module, "versions", lambda names: {name: installed[name] for name in names if name in installed}
    )
    assert installed.items() <= module.measuring_versions("580", "13.0", "cupti").items()
