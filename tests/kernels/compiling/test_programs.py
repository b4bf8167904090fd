"""NVIDIA's programs are found in their packages, else in the system, else what to install is named."""

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tilewatch.kernels.compiling.programs import PACKAGES, ProgramMissing, find_program


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    find_program.cache_clear()
    yield
    find_program.cache_clear()


@pytest.mark.parametrize(
    ("packages", "folders", "on_path", "found"),
    [
        (("nvidia", "nvidia.cu13"), ("empty", "full"), True, "full/bin/nvdisasm"),
        (("nvidia", "nvidia.cu13"), ("empty",), True, "path/nvdisasm"),
        (("nvidia",), (), True, "path/nvdisasm"),
        ((), (), True, "path/nvdisasm"),
        ((), (), False, "cuda/nvdisasm"),
    ],
)
def test_a_program_of_a_package_goes_before_one_of_the_system(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    packages: tuple[str, ...],
    folders: tuple[str, ...],
    on_path: bool,
    found: str,
) -> None:
    (tmp_path / "full" / "bin").mkdir(parents=True)
    (tmp_path / "full" / "bin" / "nvdisasm").touch()
    (tmp_path / "empty" / "bin" / "nvdisasm").mkdir(parents=True)
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path / each) for each in folders])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec if name in packages else None)

    def which(name: str, path: str | None = None) -> str | None:
        if path is None:
            return str(tmp_path / "path" / name) if on_path else None
        assert path == "/usr/local/cuda/bin"
        return str(tmp_path / "cuda" / name)

    monkeypatch.setattr(shutil, "which", which)
    assert find_program("nvdisasm") == str(tmp_path / found)


@pytest.mark.parametrize("name", PACKAGES)
def test_a_missing_program_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(ProgramMissing, match=f"^{name} is missing: pip install {PACKAGES[name]}$"):
        find_program(name)
