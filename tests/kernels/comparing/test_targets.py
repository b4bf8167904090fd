"""What two commits have to compare, and that a name that neither has is refused before the work."""

from pathlib import Path
from typing import Any

import pytest

from tests.worker.fixtures import tiny_repository
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.catalog.catalog import UnknownKernel
from tilewatch.kernels.comparing.targets import Library, Selection, list_targets
from tilewatch.kernels.contract import BadProblem

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


def test_a_problem_that_one_side_refuses_is_a_target_of_the_other_side_alone(tmp_path: Path) -> None:
    sides = {"base": "% 64", "head": "% 32"}
    for name, divides in sides.items():
        (tmp_path / name).mkdir()
        source = tiny_repository.SOURCE.replace("FACTOR", "2.0").replace("% 64", divides)
        (tmp_path / name / "double.py").write_text(source)
    base, head = (Library(name, tmp_path / name) for name in sides)
    (target,) = list_targets(base, head, Selection(("sm_90",), "double", "1056"))
    assert target.base is None
    assert target.head is not None
    with pytest.raises(BadProblem, match="'1000'"):
        list_targets(base, head, Selection(("sm_90",), "double", "1000"))
