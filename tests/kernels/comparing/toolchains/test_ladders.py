"""Which launches of a report tell how much each dependency took: those of code, of baselines and of two drivers."""

from dataclasses import replace
from typing import Any

import pytest

from tilewatch.kernels.comparing.timing_order import Timing
from tilewatch.kernels.comparing.toolchains.ladders import list_ladders, name_driver
from tilewatch.kernels.comparing.toolchains.pairs import CompiledSide, ToolchainPair
from tilewatch.kernels.comparing.toolchains.report_file import GpuUsed, ToolchainName, ToolchainReport
from tilewatch.kernels.comparing.toolchains.rungs import name_rungs

PACKAGES = ("cuda-tile", "nvidia-nvvm", "torch", "sgl-deep-gemm")
OF = ("gemm", "1x1", "h200")


def time(ratio: float) -> Timing:
    return Timing((100.0,) * 20, tuple(100.0 * ratio + 0.02 * (launch % 3) for launch in range(20)))


def make_pair(head: str, code: str) -> ToolchainPair:
    base = CompiledSide({}, "ok", 1.0, 1.0, code_sha256="old")
    return ToolchainPair("gemm", "1x1", "sm_90", "shipped", (base,), (replace(base, code_sha256=code),), head)


@pytest.fixture
def report() -> ToolchainReport:
    """Code that is 3 % slower by the compiler alone, and a baseline that is 2 % faster by DeepGEMM alone."""
    sides = tuple(ToolchainName(each, packages=dict.fromkeys(PACKAGES, each)) for each in ("1", "2"))
    made = ToolchainReport(sides, "2026-11-22", gpus={"h200": GpuUsed("h200", "NVIDIA H200", "580.1")})
    for name in ("2", *(each.name for each in name_rungs(made, made.heads[0]))):
        pair = make_pair(name, "new")
        made.pairs[pair.key] = pair
    made.frozen = {(*OF, "2"): time(1.03), (*OF, "2~compiler"): time(1.03), (*OF, "2~cuda-tile"): time(1.0)}
    made.baselines = {(*OF, "2"): time(0.98), (*OF, "2~DeepGEMM"): time(0.98), (*OF, "2~torch"): time(1.0)}
    return made


def list_points(report: ToolchainReport) -> dict[str, float]:
    (found,) = list_ladders(report)
    assert (found.kernel, found.problem, found.gpu_model, found.head) == (*OF, "2")
    return {each.dependency: each.points for each in found.ladder.shares}


def near(points: dict[str, float]) -> Any:
    """What took the rest of the time too makes a point of one dependency up to 3 % larger."""
    return pytest.approx(points, abs=0.1)


def test_code_and_baselines_have_rungs_of_their_own(report: ToolchainReport) -> None:
    assert list_points(report) == near({"compiler": 3, "cuda-tile": 0, "DeepGEMM": 2, "torch": 0})


def test_a_mix_of_compilers_tells_nothing_about_baselines(report: ToolchainReport) -> None:
    """Reports from before 2026-11-30 have such launches, of the installed packages."""
    wanted = list_points(report)
    report.baselines |= {(*OF, "2~compiler"): time(1.5), (*OF, "2~cuda-tile"): time(0.5)}
    assert list_points(report) == wanted  # to the last digit


def test_identical_machine_code_of_a_mix_needs_no_launch(report: ToolchainReport) -> None:
    del report.frozen[*OF, "2~cuda-tile"]
    pair = make_pair("2~cuda-tile", "old")
    report.pairs[pair.key] = pair
    assert list_points(report) == near({"compiler": 3, "cuda-tile": 0, "DeepGEMM": 2, "torch": 0})


def test_dependencies_without_rungs_share_a_loss(report: ToolchainReport) -> None:
    for known in (report.frozen, report.baselines):
        for key in [key for key in known if key[3] != "2"]:
            del known[key]
    assert list_points(report) == near({"compiler and cuda-tile": 3, "DeepGEMM and torch": 2})


def test_only_what_both_were_launched_with_is_in_a_ladder(report: ToolchainReport) -> None:
    report.frozen.clear()
    assert list_points(report) == near({"DeepGEMM": 2, "torch": 0})
    report.baselines.clear()
    assert list_ladders(report) == ()


@pytest.mark.parametrize(("of_base", "of_gpu"), [("575.1", "580.1"), ("", "575.1")])
def test_a_base_without_a_driver_has_that_of_the_gpu(report: ToolchainReport, of_base: str, of_gpu: str) -> None:
    report.baselines.clear()
    report.gpus["h200"] = replace(report.gpus["h200"], driver=of_gpu)
    base, head, *rungs = report.sides
    packages = ({**base.packages, **({"driver": of_base} if of_base else {})}, {**head.packages, "driver": "580.1"})
    report.sides = (replace(base, packages=packages[0]), replace(head, packages=packages[1]), *rungs)
    report.frozen[*OF, name_driver("575.1")] = Timing((100.0,) * 2, (100.0,) * 2)
    report.frozen[*OF, name_driver("580.1")] = Timing((104.0,) * 2, (104.0,) * 2)
    assert list_points(report) == near({"compiler": 3, "cuda-tile": 0, "driver": 4})


def test_two_drivers_without_launches_take_no_part_of_a_loss(report: ToolchainReport) -> None:
    base, head, *rungs = report.sides
    report.sides = (base, replace(head, packages={**head.packages, "driver": "590.1"}), *rungs)
    wanted = near({"compiler": 3, "cuda-tile": 0, "DeepGEMM": 2, "torch": 0})
    assert list_points(report) == wanted
    report.frozen[*OF, name_driver("580.1")] = time(1.0)
    assert list_points(report) == wanted
