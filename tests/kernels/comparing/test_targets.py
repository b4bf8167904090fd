"""What two commits have to compare, and that a name that neither has is refused before the work."""

import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.worker.fixtures import tiny_repository
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.catalog.catalog import LibraryPlans, UnknownKernel
from tilewatch.kernels.comparing.changes import Comparison, find_changed
from tilewatch.kernels.comparing.targets import Library, Selection, Target, _pair, list_targets
from tilewatch.kernels.compiling.compiler_pool import CompilerPool
from tilewatch.kernels.contract import BadProblem
from tilewatch.kernels.library_errors import LibraryError, PackageMissing
from tilewatch.kernels.results import Plan

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


def test_nothing_to_compare_beside_a_file_that_does_not_load_is_an_error(tmp_path: Path) -> None:
    """A check of a kernel that neither side had said that all was fine."""
    (tmp_path / "double.py").write_text(tiny_repository.SOURCE.replace("FACTOR", "2.0"))
    (tmp_path / "broken.py").write_text("raise ValueError('no such table')")
    side = Library("main", tmp_path)
    with pytest.raises(LibraryError, match=r"there is no kernel to compare: .*no such table"):
        list_targets(side, side, Selection(("sm_90",), "nope"))
    assert len(list_targets(side, side, Selection(("sm_90",), "double"))) > 0
    with pytest.raises(LibraryError, match="there is no architecture"):
        list_targets(side, side, Selection(()))


def test_what_loads_on_neither_side_is_named_beside_the_others(tmp_path: Path) -> None:
    """A reader took the kernels of such a file for unchanged."""
    (tmp_path / "double.py").write_text(tiny_repository.SOURCE.replace("FACTOR", "2.0"))
    (tmp_path / "broken.py").write_text("raise ValueError('no such table')")
    side = Library("main", tmp_path)
    with CompilerPool((tmp_path / "store").as_uri(), jobs=1) as pool:
        comparison = Comparison(side, side, "", pool, lambda: ())
        targets = list_targets(side, side, Selection(("sm_90",)))
        assert find_changed(comparison, targets) == []
    *others, last = (comparison.outcomes[each] for each in targets)
    assert {each.kind for each in others} == {"identical"}
    assert re.match(r"compiles on neither side: .*broken\.py.*no such table", last.sentence)
    assert not last.is_unsure


@pytest.mark.parametrize(
    ("mistake", "named"),
    [
        ('scalars=lambda problem, config: {"x": config["missing"]}', "'missing'"),
        ("name=None", "a kernel's name is None"),
    ],
)
def test_a_mistake_in_one_kernel_costs_no_other_one(tmp_path: Path, mistake: str, named: str) -> None:
    """The process that plans ended by it, and a night had no plans at all."""
    source = tiny_repository.SOURCE.replace("FACTOR", "2.0")
    (tmp_path / "double.py").write_text(source)
    wrong = source.replace('name="double"', 'name="other"')
    field = mistake.partition("=")[0]
    if field == "name":
        wrong = wrong.replace('name="other"', mistake)
    else:
        wrong = wrong.replace('name="other",', f'name="other",\n    {mistake},')
    assert mistake in wrong
    (tmp_path / "other.py").write_text(wrong)
    read = catalog.read_library(tmp_path, arch="sm_90")
    assert {plan.kernel for plan in read.plans} == {"double"}
    assert any(re.search(named, each) for each in read.failures), read.failures


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


def make_plans(*kernels: str, failures: tuple[str, ...] = ()) -> LibraryPlans:
    return LibraryPlans(tuple(Plan(each, "1x1", "sm_90", "source", 1, (), 1, 1, (), ()) for each in kernels), failures)


@pytest.mark.parametrize(
    ("base", "head", "failures"),
    [
        (make_plans("a", "b"), make_plans("b", "c"), {"b": None, "c": None, "a": None}),
        (make_plans("a", "b"), make_plans("b", failures=("x",)), {"b": None, "a": "new: x"}),
        (make_plans("b", failures=("x", "y")), make_plans("a", "b", failures=("x",)), {"a": "old: x; y", "b": None}),
        (make_plans("a", failures=("x",)), make_plans("a", failures=("x",)), {"a": None}),
        (make_plans("a", failures=("x",)), make_plans("a"), {"a": None}),
    ],
)
def test_a_kernel_that_one_side_lacks_names_the_files_that_may_have_it(
    base: LibraryPlans, head: LibraryPlans, failures: dict[str, str | None]
) -> None:
    old, new = (Library(name, Path(name)) for name in ("old", "new"))
    assert {each.kernel: each.failure for each in _pair("sm_90", (old, base), (new, head))} == failures


def test_a_file_that_stopped_loading_is_an_error_if_no_kernel_is_missing() -> None:
    """Nobody would see that a kernel of the file changed."""
    sides = [
        (Library("old", Path("old")), make_plans("a")),
        (Library("new", Path("new")), make_plans("a", failures=("x",))),
    ]
    with pytest.raises(LibraryError, match="new cannot be compared: x"):
        _pair("sm_90", sides[0], sides[1])


@pytest.mark.parametrize("missing", [None, "torch"])
def test_a_missing_package_is_an_error_where_all_kernels_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str | None
) -> None:
    """The base lacks it; another machine may have it."""
    old, new = (Library(name, tmp_path / name) for name in ("old", "new"))

    def read(library: Path, **_: object) -> LibraryPlans:
        return replace(make_plans("a"), package_missing=missing if library == old.folder else None)

    monkeypatch.setattr(catalog, "read_library", read)
    assert [each.kernel for each in list_targets(old, new, Selection(("sm_90",)))] == ["a"]
    with pytest.raises(PackageMissing, match="torch") if missing else nullcontext():
        list_targets(old, new, Selection(("sm_90",)), needs_packages=True)


def test_a_side_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> LibraryPlans:
        raise LibraryError("there is no folder")

    monkeypatch.setattr(catalog, "read_library", refuse)
    side = Library("main", tmp_path)
    with pytest.raises(LibraryError, match=r"^main cannot be compared: there is no folder$"):
        list_targets(side, side, Selection(("sm_90",)))


@pytest.mark.parametrize(("sources", "is_same"), [(("a", "a"), True), (("a", "b"), False), ((None, None), False)])
def test_a_target_has_the_same_source_if_both_sides_have_its_file(
    sources: tuple[str | None, str | None], is_same: bool
) -> None:
    (plan,) = make_plans("k").plans
    base, head = (None if each is None else replace(plan, source_sha256=each) for each in sources)
    target = Target("k", "1x1", "sm_90", base, head)
    assert (target.has_same_source, target.is_left_out) == (is_same, sources == (None, None))
    for one in (replace(target, base=None), replace(target, head=None)):
        assert not one.has_same_source
        assert one.is_left_out == (sources == (None, None))
