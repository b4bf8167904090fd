"""What two commits have to compare, and that a name that neither has is refused before the work."""

from pathlib import Path
from typing import Any

import pytest

from tests.worker.fixtures import tiny_repository
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.catalog.catalog import UnknownKernel
from tilewatch.kernels.comparing.targets import Library, Selection, list_targets

ARCHS = ("sm_80", "sm_90", "sm_100")


def test_a_kernel_that_neither_side_has_is_refused_by_the_first_architecture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "double.py").write_text(tiny_repository.SOURCE.replace("FACTOR", "2.0"))
    read = catalog.read_library
    archs: list[str] = []

    def count(library: Path, *, arch: str, **wanted: Any) -> catalog.LibraryPlans:
        archs.append(arch)
        return read(library, arch=arch, **wanted)

    monkeypatch.setattr(catalog, "read_library", count)
    side = Library("main", tmp_path)
    with pytest.raises(UnknownKernel, match="nope"):
        list_targets(side, side, Selection(ARCHS, "nope"))
    assert set(archs) == {"sm_80"}
    archs.clear()
    targets = list_targets(side, side, Selection(ARCHS, "double"))
    assert sorted(archs) == sorted(2 * ARCHS), "each side is read once for each architecture"
    assert [each.arch for each in targets] == [arch for arch in ARCHS for _ in range(len(targets) // 3)]
    assert all(each.base is not None and each.base == each.head for each in targets)
