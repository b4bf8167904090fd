"""Mixes of base and head: whose packages each has, and when there are none."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tilewatch.kernels.comparing.toolchains.compile_sides import ComparedSide, Workplace
from tilewatch.kernels.comparing.toolchains.report_file import ToolchainName, ToolchainReport
from tilewatch.kernels.comparing.toolchains.rungs import make_rungs, name_rungs
from tilewatch.kernels.toolchains.toolchain import Package, Toolchain

CODE = ("cuda-tile", "nvidia-nvvm")
ENVIRONMENT = ("torch", "nvidia-cudnn-cu13", "nvidia-cublas", "numpy")


def make_toolchain(root: Path, version: str, packages: tuple[str, ...]) -> Toolchain:
    for package in packages:
        info = root / version / f"{package.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    return Toolchain(version, root / version, tuple(Package(each, version, None) for each in packages))


def make_report(*versions: Mapping[str, str]) -> ToolchainReport:
    sides = (ToolchainName(str(number), packages=each) for number, each in enumerate(versions, start=1))
    return ToolchainReport(tuple(sides), "2026-11-22")


def make_place(root: Path, *sides: ComparedSide) -> Workplace:
    return Workplace(Path("library"), sides, root, 1, 15.0)


def list_versions(toolchain: Toolchain | None) -> dict[str, str]:
    assert toolchain is not None
    return {each.package: each.version for each in toolchain.packages}


def test_a_rung_has_the_packages_of_the_base_but_for_what_it_swaps(tmp_path: Path) -> None:
    """Its baselines are those of the base: they were timed again for each mix of compilers."""
    sides = [
        ComparedSide(each, make_toolchain(tmp_path, each, CODE), make_toolchain(tmp_path / "e", each, ()))
        for each in ("1", "2")
    ]
    report = make_report(*(dict.fromkeys(CODE, each.name) for each in sides))
    rungs = make_rungs(tmp_path / "rungs", make_place(tmp_path, *sides), report, report.heads[0])
    assert {each.name: list_versions(each.toolchain) for each in rungs} == {
        "2~compiler": {"cuda-tile": "1", "nvidia-nvvm": "2"},
        "2~cuda-tile": {"cuda-tile": "2", "nvidia-nvvm": "1"},
    }
    assert {each.environment for each in rungs} == {sides[0].environment}


def test_a_rung_of_baselines_has_the_compiler_of_the_base_and_swaps_torch_with_what_it_needs(tmp_path: Path) -> None:
    code = make_toolchain(tmp_path / "code", "1", CODE)
    sides = [ComparedSide(each, code, make_toolchain(tmp_path, each, ENVIRONMENT)) for each in ("1", "2")]
    report = make_report(*(dict.fromkeys(ENVIRONMENT[:3], each.name) for each in sides))
    rungs = make_rungs(tmp_path / "rungs", make_place(tmp_path, *sides), report, report.heads[0])
    assert {each.toolchain for each in rungs} == {code}
    found = {each.name: list_versions(each.environment) for each in rungs}
    swapped = {name: {each for each, version in versions.items() if version == "2"} for name, versions in found.items()}
    assert all(versions.keys() == set(ENVIRONMENT) for versions in found.values())
    assert len(swapped) == 4
    for name, packages in swapped.items():
        assert (name.startswith("2~") and "torch" in name) == ("torch" in packages) == ("numpy" in packages)
        assert ("cuDNN" in name) == ("nvidia-cudnn-cu13" in packages)
        assert ("cuBLAS" in name) == ("nvidia-cublas" in packages)


@pytest.mark.parametrize("missing", [{"1"}, {"2"}, {"1", "2"}])
def test_sides_of_another_machine_have_no_rungs_here(tmp_path: Path, missing: set[str]) -> None:
    sides = [ComparedSide(each, make_toolchain(tmp_path, each, () if each in missing else CODE)) for each in ("1", "2")]
    report = make_report(*(dict.fromkeys(CODE, each.name) for each in sides))
    assert make_rungs(tmp_path / "rungs", make_place(tmp_path, *sides), report, report.heads[0]) == ()
    assert not (tmp_path / "rungs").exists()


def test_a_report_names_each_rung_once() -> None:
    report = make_report(*(dict.fromkeys(CODE, each) for each in ("1", "2")))
    named = name_rungs(report, report.heads[0])
    assert [(each.name, each.rung_of, each.swapped) for each in named] == [
        ("2~compiler", "2", ("compiler",)),
        ("2~cuda-tile", "2", ("cuda-tile",)),
    ]
    assert name_rungs(report, report.heads[0]) == named
    assert [each.name for each in report.sides] == ["1", "2", "2~compiler", "2~cuda-tile"]
