"""Verdicts on whole reports made by hand: which pairs count, on which GPU, and the newest safe head."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tilewatch.kernels.comparing.timing_order import Timing
from tilewatch.kernels.comparing.toolchains.pairs import CompiledSide, ToolchainPair
from tilewatch.kernels.comparing.toolchains.report_file import GpuUsed, ToolchainName, ToolchainReport
from tilewatch.kernels.comparing.toolchains.report_verdict import (
    GroupSafety,
    find_newest_safe,
    judge_everything,
    judge_groups,
    judge_report,
    judge_statically,
    list_archs,
    list_differing,
    list_of_head,
    list_untimed_archs,
    make_design,
)
from tilewatch.kernels.comparing.toolchains.safety_verdict import OperatorSafety, Retuning, Safety
from tilewatch.kernels.comparing.verdict import Design

SAME = CompiledSide({"tile": 64}, "ok", 1.0, 1.0, code_sha256="old", symbol="k", cubin="old")
OTHER = replace(SAME, code_sha256="new", cubin="new")
BROKEN = CompiledSide({"tile": 64}, "error", 1.0, 1.0, "no such instruction")
SLOW, FAST = Timing((100.0,) * 20, (103.0,) * 20), Timing((100.0,) * 20, (100.0,) * 20)


def make_pair(kernel: str, head: CompiledSide, *, arch: str = "sm_90", name: str = "one") -> ToolchainPair:
    return ToolchainPair(kernel, "1x1", arch, "shipped", (SAME,), (head,), name)


def make_report(*pairs: ToolchainPair, gpus: Sequence[str] = ()) -> ToolchainReport:
    names = (*map(ToolchainName, ("old", "one", "two")), ToolchainName("one~compiler", rung_of="one"))
    report = ToolchainReport(names, "2026-11-30", pairs={each.key: each for each in pairs})
    report.gpus = {model: GpuUsed(model, model, "580.1") for model in gpus}
    return report


def describe(judged: Sequence[OperatorSafety]) -> list[tuple[str, str, Safety]]:
    return [(each.pair.kernel, each.gpu_model or each.pair.arch, each.safety) for each in judged]


def test_pairs_differ_if_their_code_does_or_the_head_has_none() -> None:
    """Whether a base without code, or a machine that was too busy, is the reason for less is none of the head's."""
    changed, broken = make_pair("changed", OTHER), make_pair("broken", BROKEN)
    report = make_report(
        changed,
        broken,
        make_pair("same", SAME),
        make_pair("elsewhere", OTHER, arch="sm_100"),
        make_pair("mixed", OTHER, name="one~compiler"),
        make_pair("busy", replace(BROKEN, is_final=False)),
        replace(make_pair("now", OTHER), base=(BROKEN,)),
    )
    assert list_differing(report, "sm_90") == [changed, broken]
    assert [each.kernel for each in list_differing(report, "sm_100")] == ["elsewhere"]
    judged = judge_statically(report, "sm_90")
    assert [each.pair.kernel for each in judged] == ["changed", "broken", "same", "busy", "now"]


@pytest.mark.parametrize(("of_one", "of_two", "operators"), [(0, 0, 1), (1, 0, 1), (3, 0, 3), (3, 2, 3), (2, 3, 3)])
def test_a_design_has_the_operators_of_the_head_with_the_most_that_differ(
    of_one: int, of_two: int, operators: int
) -> None:
    counts = {"one": of_one, "two": of_two, "one~compiler": 9}
    pairs = [make_pair(f"k{each}", OTHER, name=name) for name, count in counts.items() for each in range(count)]
    report = make_report(*pairs, make_pair("same", SAME))
    report.fail_over = 0.02
    assert make_design(report, "sm_90") == Design(operators, fail_over=0.02)


def test_a_timing_decides_for_its_own_operator_on_its_own_gpu_under_its_own_head() -> None:
    pairs = [make_pair("k", OTHER), make_pair("k", OTHER, name="two"), make_pair("other", OTHER)]
    report = make_report(*pairs, gpus=("h200", "h100"))
    report.frozen = {("k", "1x1", "h200", "one"): SLOW, ("k", "1x1", "h100", "two"): FAST}
    assert [each.safety for each in judge_report(report, "h200")] == ["not safe", "unknown", "unknown"]
    assert [each.safety for each in judge_report(report, "h100")] == ["unknown", "safe", "unknown"]
    key = ("k", "1x1", "h200", "one")
    report.retunings[key] = Retuning(9, 8, replace(OTHER, config={"tile": 128}))
    assert judge_report(report, "h200")[0].moved_to == {"tile": 128}
    report.retuned[key] = FAST
    assert judge_report(report, "h200")[0].safety == "safe if re-tuned"
    assert {each.safety for each in judge_statically(report, "sm_90")} == {"unknown"}


def test_every_gpu_is_judged_by_its_times_and_other_architectures_by_what_stopped_compiling() -> None:
    pairs = [
        make_pair("k", OTHER),
        make_pair("k", OTHER, arch="sm_100"),
        make_pair("broken", BROKEN, arch="sm_100"),
    ]
    report = make_report(*pairs, gpus=("h200", "h100"))
    report.frozen = {("k", "1x1", "h200", "one"): SLOW}
    assert list_archs(report) == ("sm_90", "sm_100")
    assert list_untimed_archs(report) == ("sm_100",)
    assert describe(judge_everything(report)) == [
        ("k", "h200", "not safe"),
        ("k", "h100", "unknown"),
        ("broken", "sm_100", "not safe"),
    ]
    report.gpus = {}
    assert list_untimed_archs(report) == ("sm_90", "sm_100")
    assert describe(judge_everything(report)) == [
        ("k", "sm_90", "unknown"),
        ("k", "sm_100", "unknown"),
        ("broken", "sm_100", "not safe"),
    ]


@pytest.mark.parametrize(
    ("of_one", "of_two", "newest"),
    [(SAME, SAME, "two"), (SAME, OTHER, "one"), (SAME, BROKEN, "one"), (OTHER, SAME, "two"), (OTHER, OTHER, "old")],
)
def test_the_newest_safe_head_is_the_last_one_with_safe_operators_alone(
    of_one: CompiledSide, of_two: CompiledSide, newest: str
) -> None:
    pairs = [make_pair("k", of_one), make_pair("k", of_two, name="two")]
    report = make_report(*pairs, make_pair("same", SAME), make_pair("same", SAME, name="two"))
    judged = judge_everything(report)
    assert find_newest_safe(report, judged).name == newest
    assert [each.pair for each in list_of_head(judged, "two")] == [pairs[1], make_pair("same", SAME, name="two")]
    assert find_newest_safe(report, ()).name == "old"
    safety: dict[str, Safety] = {"old": "safe", "new": "unknown"}
    by_head = {
        "one": safety.get(of_one.code_sha256 or "", "not safe"),
        "two": safety.get(of_two.code_sha256 or "", "not safe"),
    }
    assert judge_groups(report) == (
        GroupSafety("k", by_head, newest),
        GroupSafety("same", {"one": "safe", "two": "safe"}, "two"),
    )
