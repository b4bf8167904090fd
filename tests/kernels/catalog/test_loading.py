"""Library files: those of old commits import `kernels.contract`, and a repository may have a package `kernels`."""

from pathlib import Path

import pytest

from tests.worker.fixtures import tiny_repository
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.catalog.loading import LibraryKernel, load
from tilewatch.kernels.catalog.validation import read_weights
from tilewatch.kernels.library_errors import LibraryError

NEW, OLD = "from tilewatch.kernels.contract", "from kernels.contract"


def planned(library: Path) -> list[str]:
    return [plan.kernel for plan in catalog.read(library, arch="sm_90")]


def test_a_library_file_of_an_old_commit_loads(tmp_path: Path) -> None:
    (tmp_path / "double.py").write_text(tiny_repository.SOURCE.replace("FACTOR", "2.0").replace(NEW, OLD))
    assert OLD in (tmp_path / "double.py").read_text()
    assert planned(tmp_path) == ["double", "double"]


def test_a_library_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "double.py").write_text(tiny_repository.SOURCE.replace("FACTOR", "2.0"), encoding="utf-8-sig")
    assert planned(tmp_path) == ["double", "double"]


@pytest.mark.parametrize("line", [NEW, OLD])
def test_a_folder_kernels_beside_the_library_is_not_taken_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """A repository's own package may be called `kernels`, and a worker may be started in it."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "__init__.py").write_text("raise ImportError('the kernels of the watched repository')")
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "double.py").write_text(tiny_repository.SOURCE.replace("FACTOR", "2.0").replace(NEW, line))
    monkeypatch.chdir(tmp_path)
    assert planned(tmp_path / "library") == ["double", "double"]


@pytest.mark.parametrize("weights", ["None", "['model', 1.0]"])
def test_weights_that_are_no_dict_are_named(tmp_path: Path, weights: str) -> None:
    source = tiny_repository.SOURCE.replace("FACTOR", "2.0")
    (tmp_path / "double.py").write_text(
        source.replace('name="double",', f'name="double", weights=lambda _: {weights},')
    )
    loaded = load(tmp_path)["double"]
    assert isinstance(loaded, LibraryKernel)
    with pytest.raises(LibraryError, match=r"`weights` of 1024 is a .*; expected a dict by model"):
        read_weights(loaded, loaded.kernel.problems[0])
