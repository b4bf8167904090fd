"""What the name of a side stands for: a toolchain, an environment of baselines, a driver. And what is compared."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.kernels.fixtures.second_toolchain import make_toolchain
from tilewatch.kernels.comparing.configs import Candidates, ConfigSource
from tilewatch.kernels.comparing.targets import Selection, Target
from tilewatch.kernels.comparing.toolchains import compile_sides
from tilewatch.kernels.comparing.toolchains.comparison import (
    begin_report,
    choose_archs,
    find_installed_side,
    find_side,
)
from tilewatch.kernels.comparing.toolchains.compile_sides import Chosen, ComparedSide, Workplace, choose
from tilewatch.kernels.comparing.toolchains.pairs import CompiledSide, ToolchainPair
from tilewatch.kernels.comparing.toolchains.report_file import (
    BadReport,
    ReportFile,
    ToolchainName,
    ToolchainReport,
    read_report,
)
from tilewatch.kernels.device import GpuSpec, gpu_model
from tilewatch.kernels.library import FOLDER
from tilewatch.kernels.library_errors import NoConfigs
from tilewatch.kernels.toolchains.packages import NEEDED
from tilewatch.kernels.toolchains.toolchain import INSTALLED, Package, Toolchain, UnknownToolchain
from tilewatch.kernels.toolchains.versions import versions


def test_a_side_may_name_an_environment_and_a_driver(tmp_path: Path) -> None:
    toolchains, environments = tmp_path / "toolchains", tmp_path / "environments"
    made, other = make_toolchain(toolchains, "next"), make_toolchain(environments, "other")
    side = find_side("next+other@580.65", toolchains, environments, may_be_missing=False)
    assert (side.name, side.toolchain, side.environment, side.driver) == ("next+other@580.65", made, other, "580.65")
    plain = find_side(str(toolchains / "next"), Path("/nowhere"), environments, may_be_missing=False)
    assert (plain.name, plain.toolchain, plain.environment, plain.driver) == ("next", made, None, "")
    assert find_installed_side("next+other@580.65", toolchains) == made, "a case to reproduce lacked its commands"
    assert find_installed_side("none@580.65", toolchains) is None
    base, head = begin_report([plain, side]).sides
    assert base.packages["cuda-tile"].endswith("+next")
    assert (base.packages.get("driver"), head.packages["driver"]) == (None, "580.65")
    with pytest.raises(UnknownToolchain, match="no toolchain is named none"):
        find_side("next+none", toolchains, environments, may_be_missing=True)


def test_a_toolchain_in_a_folder_has_no_version_of_a_package_that_only_this_machine_has(tmp_path: Path) -> None:
    """Else a package that no side uses would seem to differ between the sides, and would be blamed."""
    own, lent = Package("cuda-tile", "99", ""), Package("torch", "98", "")
    made = ComparedSide("made", Toolchain("made", tmp_path, (own,)), None, "580")
    borrowing = replace(made, environment=Toolchain("other", tmp_path, (lent,)), driver="")
    installed = ComparedSide("here", Toolchain(INSTALLED, None))
    of_made, of_borrowing, of_installed = (each.packages for each in begin_report([made, borrowing, installed]).sides)
    here = versions(NEEDED)
    assert here
    assert {name: of_installed[name] for name in here} == here
    assert {name: of_made[name] for name in of_made if name in NEEDED} == {"cuda-tile": "99"}
    assert (of_made["driver"], "driver" in of_borrowing, "driver" in of_installed) == ("580", False, False)
    assert (of_made.get("torch"), of_borrowing["torch"]) == (versions(("torch",)).get("torch"), "98")


def test_a_gpu_chooses_configs_for_its_own_architecture_alone() -> None:
    """On an H200, the code for sm_100 was compiled with the configs that are shipped for the H200."""
    archs = {arch: (Selection((arch,), "gemm_fp8", "320x32576x7168"),) for arch in ("sm_90", "sm_100")}
    chosen = {
        (arch, gpu): [each.base for _, each in choose(FOLDER, selections, (), ConfigSource.auto, gpu, print)]
        for arch, selections in archs.items()
        for gpu in ("h200", "b200", "")
    }
    assert chosen["sm_100", "h200"] == chosen["sm_100", ""] == chosen["sm_100", "b200"]
    assert chosen["sm_90", "h200"] != chosen["sm_100", "b200"]


def test_a_kernel_without_a_config_is_named_and_the_others_are_compared() -> None:
    """No kernel was compared if one of them has no config for the architecture."""
    fp8, softmax = (Selection(("sm_80",), kernel) for kernel in ("gemm_fp8", "softmax"))
    said: list[str] = []
    chosen = choose(FOLDER, (fp8, softmax), (), ConfigSource.auto, "", said.append)
    assert {target.kernel for target, _ in chosen} == {"softmax"}
    assert said == ["left out: kernel gemm_fp8 has no config for sm_80"]
    with pytest.raises(NoConfigs, match="kernel gemm_fp8 has no config for sm_80"):
        choose(FOLDER, (fp8,), (), ConfigSource.auto, "", said.append)


def test_progress_counts_the_operators_under_every_head_in_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (CompiledSide({}, "ok", 1.0, 1.0),)
    pairs = [ToolchainPair("k", "1x1", "sm_90", "shipped", code, code, head) for head in ("one", "two")]
    clock = chain([100.0], repeat(107.0))
    monkeypatch.setattr(compile_sides, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(compile_sides, "compile_pairs", lambda *_: iter(pairs))
    names = ("old", "one", "two")
    sides = tuple(ComparedSide(name, Toolchain(INSTALLED, None)) for name in names)
    report = ToolchainReport(tuple(map(ToolchainName, names)), "2026-11-30")
    chosen = [(Target("k", "1x1", "sm_90", None, None), Candidates(ConfigSource.shipped, ({},), ({},)))]
    said: list[str] = []
    place = Workplace(Path("library"), sides, tmp_path, 1, 15.0)
    compile_sides.compile_missing(place, report, ReportFile(tmp_path / "r.json", report), chosen, said.append)
    assert said == ["compiling 1 configs of 1 operators and problems with old and one and two", "  2 of 2 after 7 s"]
    assert report.static_wall_s == 7.0


def make_pair(kernel: str, head: str, **of_head: Any) -> ToolchainPair:
    side = CompiledSide({}, "ok", 1.0, 1.0)
    return ToolchainPair(kernel, "1x1", "sm_90", "shipped", (side,), (replace(side, **of_head),), head)


def choose_kernels(*kernels: str) -> list[Chosen]:
    return [
        (Target(each, "1x1", "sm_90", None, None), Candidates(ConfigSource.shipped, ({},), ({},))) for each in kernels
    ]


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    names = ("old", "one", "two")
    sides = tuple(ComparedSide(name, Toolchain(name, tmp_path / name)) for name in names)
    return Workplace(Path("library"), sides, tmp_path, 3, 15.0)


def test_progress_is_told_after_every_twenty_operators_and_at_the_end(
    place: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [make_pair(str(number), head) for number in range(21) for head in ("one", "two")]
    monkeypatch.setattr(compile_sides, "compile_pairs", lambda *_: iter(pairs))
    report, said = ToolchainReport((ToolchainName("old"), ToolchainName("one"), ToolchainName("two")), ""), list[str]()
    file = ReportFile(tmp_path / "r.json", report)
    chosen = choose_kernels(*map(str, range(21)))
    compile_sides.compile_missing(place, report, file, chosen, said.append)
    assert [line.split(" after ")[0] for line in said[1:]] == ["  20 of 42", "  40 of 42", "  42 of 42"]
    assert (list(report.pairs.values()), report.static_jobs) == (pairs, 3)
    assert read_report(tmp_path / "r.json") == report
    said.clear()
    compile_sides.compile_missing(place, report, file, chosen, said.append)
    assert said == [], "nothing is missing"


@pytest.mark.parametrize(
    ("known", "missing"),
    [
        ([make_pair("k", "one"), make_pair("k", "two")], False),
        ([make_pair("k", "one")], True),
        ([make_pair("k", "one"), make_pair("k", "two", status="timeout", is_final=False)], True),
        ([make_pair("k", "one"), make_pair("k", "two", status="timeout")], False),
        ([make_pair("other", "one"), make_pair("other", "two")], True),
    ],
)
def test_what_has_no_final_result_under_every_head_is_compiled_again(
    place: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: list[ToolchainPair], missing: bool
) -> None:
    asked: list[Chosen] = []
    monkeypatch.setattr(compile_sides, "compile_pairs", lambda _, todo, __: iter(asked.extend(todo) or ()))
    report = ToolchainReport((ToolchainName("old"), ToolchainName("one"), ToolchainName("two")), "")
    report.pairs = {each.key: each for each in known}
    chosen = choose_kernels("k")
    compile_sides.compile_missing(place, report, ReportFile(tmp_path / "r.json", report), chosen, print)
    assert asked == (chosen if missing else [])


@pytest.mark.parametrize(
    ("known", "found", "refused"), [("", "tile 1", False), ("tile 1", "tile 1", False), ("tile 2", "tile 1", True)]
)
def test_a_toolchain_whose_version_changed_is_no_longer_that_of_its_report(
    place: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: str, found: str, refused: bool
) -> None:
    def compile_pairs(_: object, __: object, on_versions: Callable[[Mapping[str, str]], None]) -> list[ToolchainPair]:
        on_versions({"old": "tile 0", "one": found, "two": "tile 9"})
        return []

    monkeypatch.setattr(compile_sides, "compile_pairs", compile_pairs)
    mix = ToolchainName("one~compiler", "tile 5", rung_of="one")
    report = ToolchainReport((ToolchainName("old"), ToolchainName("one", known), ToolchainName("two"), mix), "")
    file = ReportFile(tmp_path / "r.json", report)
    if refused:
        with pytest.raises(BadReport, match="one was tile 2 and is now tile 1; name another file for this report"):
            compile_sides.compile_missing(place, report, file, choose_kernels("k"), print)
    else:
        compile_sides.compile_missing(place, report, file, choose_kernels("k"), print)
        assert [each.compiler for each in report.sides] == ["tile 0", "tile 1", "tile 9", "tile 5"]


@pytest.mark.parametrize(
    ("asked", "model", "compared"),
    [
        (("sm_100", "sm_120"), gpu_model("h200"), ("sm_100", "sm_120")),
        ((), gpu_model("h200"), ("sm_90",)),
        (("sm_100",), None, ("sm_100",)),
        ((), None, ()),
    ],
)
def test_what_was_asked_for_is_compared_before_the_gpu_s_architecture(
    asked: tuple[str, ...], model: GpuSpec | None, compared: tuple[str, ...]
) -> None:
    assert choose_archs(asked, model) == compared
