"""What a report says: of architectures on which nothing was timed, of a GPU, of several heads, and as JSON."""

import json
from dataclasses import replace

import pytest

from tilewatch.kernels.comparing.timing_order import Timing
from tilewatch.kernels.comparing.toolchains import writing
from tilewatch.kernels.comparing.toolchains.ladder import LEAST_POINTS, Ladder, LossShare
from tilewatch.kernels.comparing.toolchains.ladders import OperatorLadder
from tilewatch.kernels.comparing.toolchains.mma_waits import MmaWaits
from tilewatch.kernels.comparing.toolchains.pairs import CompiledSide, ToolchainPair
from tilewatch.kernels.comparing.toolchains.report_file import GpuUsed, ToolchainName, ToolchainReport
from tilewatch.kernels.comparing.toolchains.report_verdict import judge_everything
from tilewatch.kernels.comparing.toolchains.safety_verdict import Retuning
from tilewatch.kernels.comparing.toolchains.writing import (
    find_worst,
    make_answer,
    write_answer,
    write_json,
    write_lines,
    write_markdown,
    write_pins,
)
from tilewatch.kernels.results import StaticFacts

BASE = CompiledSide({}, "ok", 1.0, 1.0, code_sha256="old", cubin="old")
BROKEN = replace(BASE, status="error", failure="no such instruction", code_sha256=None, cubin=None)


@pytest.fixture
def report() -> ToolchainReport:
    made = ToolchainReport((ToolchainName("installed"), ToolchainName("newer")), "2026-11-28 07:00 UTC")
    sides = {("sm_90", "broken"): BROKEN, ("sm_90", "same"): BASE, ("sm_100", "broken"): BASE}
    for (arch, kernel), head in sides.items():
        pair = ToolchainPair(kernel, "1024", arch, "shipped", (BASE,), (head,), "newer")
        made.pairs[pair.key] = pair
    return made


def test_what_stopped_compiling_is_named_with_its_architecture(report: ToolchainReport) -> None:
    for text in (write_markdown(report), "\n".join(write_lines(report))):
        named = [line.strip() for line in text.splitlines() if line.strip().startswith("not safe: ")]
        assert len(named) == 1
        assert named[0].startswith("not safe: broken 1024 (sm_90): ")
        assert "no such instruction" in named[0]


def test_an_architecture_that_was_timed_has_a_table_instead(report: ToolchainReport) -> None:
    report.gpus["h200"] = GpuUsed("h200", "NVIDIA H200", "580.65")
    text = write_markdown(report)
    assert "not safe: broken" not in text
    assert "| broken | 1024 | not safe: with the head it does not compile" in text


def test_all_that_moved_on_an_architecture_is_summed_up_with_its_operators(report: ToolchainReport) -> None:
    base = replace(BASE, facts=StaticFacts(128, 0, 1024, 4096, 9000, 2, 2, 1, 1, ()), waits=MmaWaits(4, 16))
    more = StaticFacts(168, 64, 1024, 4096, 9000, 2, 2, 0, 1, ())
    head = replace(base, compile_s=3.0, cpu_s=2.0, code_sha256="new", facts=more, waits=MmaWaits(16, 16))
    pair = ToolchainPair("slow", "1024", "sm_100", "shipped", (base,) * 6, (head,) * 6, "newer")
    report.pairs = {each.key: each for each in (pair, replace(pair, arch="sm_90"))}
    text = "\n".join(write_lines(report))
    assert (
        "  sm_100: 1 of 1 changed; registers: more in 1, fewer in 0, at most 128 -> 168; "
        "spills: more in 1, fewer in 0, at most 0 -> 64 bytes; "
        "MMAs on Tensor Cores: more in 0, fewer in 1, at most 1 -> 0; waits for each MMA now: 1; "
        "slower to compile: 6 -> 12 CPU seconds for 6 configs (6 -> 18 s of wall time)\n"
        "    slow 1024: registers 128 -> 168, spills 0 -> 64 bytes, MMAs on Tensor Cores 1 of 1 -> 0 of 1, "
        "waits for MMAs 4 of 16 -> 16 of 16\n"
    ) in text
    markdown = write_markdown(report)
    moves = "registers 128 -> 168, spills 0 -> 64 bytes, MMAs on Tensor Cores 1 of 1 -> 0 of 1, "
    for arch in ("sm_100", "sm_90"):
        assert f"\n- {arch} slow 1024: {moves}waits for MMAs 4 of 16 -> 16 of 16\n" in markdown


@pytest.mark.parametrize("of_head", [True, False])
def test_what_one_compiler_did_not_remark_on_is_not_compared(report: ToolchainReport, of_head: bool) -> None:
    """Under tileiras 13.3 every kernel seemed to lose its loads by TMA and its MMAs on Tensor Cores. Of another pair,
    only one side has facts."""
    remarked = StaticFacts(128, 0, 1024, 4096, 9000, 2, 2, 1, 1, ())
    sides = [replace(BASE, facts=each) for each in (remarked, StaticFacts(168, 0, 1024, 4096, 9000, 0, 0, 0, 0, ()))]
    base, head = sides if of_head else sides[::-1]
    report.pairs.clear()
    add(report, "slow", base, replace(head, code_sha256="new"))
    unread = [BASE, replace(BASE, facts=replace(remarked, registers=999))]
    base, head = unread if of_head else unread[::-1]
    add(report, "unread", base, replace(head, code_sha256="new"))
    text = "\n".join(write_lines(report))
    moved = "more in 1, fewer in 0, at most 128 -> 168" if of_head else "more in 0, fewer in 1, at most 168 -> 128"
    assert f"sm_90: 2 of 2 changed; registers: {moved}" in text
    assert "TMA" not in text
    assert "Tensor Cores" not in text


def test_the_largest_move_of_a_fact_may_be_downwards(report: ToolchainReport) -> None:
    base = replace(BASE, facts=StaticFacts(168, 0, 1024, 4096, 9000, 0, 0, 0, 0, ()))
    moves = {"up": (100, 110), "down": (168, 128), "same": (250, 250), "also up": (32, 40)}
    report.pairs.clear()
    for kernel, registers in moves.items():
        sides = [replace(base, facts=replace(base.facts, registers=each)) for each in registers]  # type: ignore[type-var]
        add(report, kernel, sides[0], replace(sides[1], code_sha256="new"))
    assert "registers: more in 2, fewer in 1, at most 168 -> 128" in "\n".join(write_lines(report))


def time(ratio: float, launches: int = 20) -> Timing:
    return Timing((100.0,) * launches, tuple(100 * ratio + 0.02 * (each % 3) for each in range(launches)))


CONFIG, OTHER = {"tile_m": 64}, {"tile_m": 128}
NEW = replace(BASE, config=CONFIG, code_sha256="new", cubin="new", facts=StaticFacts(168, 0, 0, 0, 0, 0, 0, 0, 0, ()))
OLD = replace(BASE, config=CONFIG, facts=StaticFacts(128, 0, 0, 0, 0, 0, 0, 0, 0, ()))
TIMED = {"much": 1.05, "little": 1.03, "even": 1.0, "better": 0.95}


def add(report: ToolchainReport, kernel: str, base: CompiledSide, head: CompiledSide, name: str = "newer") -> None:
    pair = ToolchainPair(kernel, "1x1", "sm_90", "shipped", (base,), (head,), name)
    report.pairs[pair.key] = pair


@pytest.fixture
def timed() -> ToolchainReport:
    """A report of an H200, on which four operators of other machine code were timed, and two were not."""
    sides = (ToolchainName("installed", "tile 1"), ToolchainName("newer", "tile 2"))
    made = ToolchainReport(sides, "2026-11-28 07:00 UTC")
    made.gpus["h200"] = GpuUsed("h200", "NVIDIA H200", "580.65", wall_s=90.0)
    made.static_wall_s, made.static_jobs, made.fail_over = 150.0, 4, 0.01
    for kernel, ratio in TIMED.items():
        add(made, kernel, OLD, NEW)
        made.frozen[kernel, "1x1", "h200", "newer"] = time(ratio)
    add(made, "few", OLD, NEW)
    made.frozen["few", "1x1", "h200", "newer"] = time(1.0, 1)
    add(made, "none", OLD, NEW)
    add(made, "same", OLD, OLD)
    add(made, "neither", BROKEN, BROKEN)
    add(made, "now", BROKEN, OLD)
    return made


def test_each_operator_of_other_code_has_a_line_the_most_urgent_first_and_the_rest_are_counted(
    timed: ToolchainReport,
) -> None:
    lines = write_lines(timed)
    start = lines.index("On NVIDIA H200 (driver 580.65), 1.5 minutes:")
    urgent = lines[start + 1 : lines.index("", start)]
    assert [line.split(":")[:2] for line in urgent[:5]] == [
        ["  not safe", " much 1x1"],
        ["  not safe", " little 1x1"],
        ["  safe", " even 1x1"],
        ["  safe", " now 1x1"],
        ["  safe", " better 1x1"],
    ]
    assert [line.endswith(" (registers 128 -> 168)") for line in urgent[:5]] == [True, True, False, False, False]
    assert urgent[5:] == [
        "  unknown, not timed enough in the time given: few 1x1, none 1x1",
        "  identical machine code: 1 of 9",
    ]
    assert "Identical machine code: 1 of 9." in write_markdown(timed)
    for kernel in ("few", "none"):
        timed.frozen[kernel, "1x1", "h200", "newer"] = time(1.0)
    assert not any("not timed enough" in line for line in write_lines(timed))


def test_the_answer_counts_every_verdict_and_names_the_worst(timed: ToolchainReport) -> None:
    answer = write_answer(timed)
    assert answer.startswith(
        "newer is not safe to take in place of installed on h200: of 9 operators and problems 2 not safe, 2 unknown, "
        "5 safe (1 identical machine code); the worst is much 1x1, slower +5.02 %"
    )
    assert "Take " not in answer, "there is one toolchain to take or leave"
    timed.frozen.clear()
    assert "; the worst" not in write_answer(timed)
    timed.pairs.clear()
    assert "on h200: there is nothing to compare  (0 identical machine code)" in write_answer(timed)


def test_the_answer_counts_the_operators_that_wait_for_each_mma_and_were_not_timed(timed: ToolchainReport) -> None:
    waiting = [replace(side, waits=MmaWaits(count, 16)) for side, count in ((OLD, 4), (NEW, 16))]
    for kernel in ("much", "little", "none"):
        add(timed, kernel, *waiting)
    assert "; 1 not timed wait for each of their MMAs now, which costs time; " in write_answer(timed)
    assert "wait for each" not in write_answer(replace(timed, pairs={}))


def test_what_is_safe_if_retuned_is_less_urgent_than_a_smaller_loss_that_is_not(timed: ToolchainReport) -> None:
    won = replace(NEW, config=OTHER, cubin="won")
    timed.retunings["much", "1x1", "h200", "newer"] = Retuning(9, 9, won, (OTHER,))
    timed.retuned["much", "1x1", "h200", "newer"] = time(1.0)
    judged = judge_everything(timed)
    worst = find_worst(judged)
    assert worst is not None
    assert (worst.pair.kernel, worst.safety) == ("little", "not safe")
    assert find_worst([each for each in judged if each.safety in ("safe", "unknown")]) is None
    of_much = next(line for line in write_markdown(timed).splitlines() if line.startswith("| much "))
    assert of_much.startswith("| much | 1x1 | safe if re-tuned: slower +5.0")
    assert "; re-tuned: not slower than " in of_much
    assert of_much.endswith("| registers 128 -> 168, optimum tile_m=64 -> tile_m=128 |")


def test_the_end_says_how_long_compiling_took_and_how_sure_the_verdicts_are(timed: ToolchainReport) -> None:
    end = [
        "installed: tile 1",
        "newer: tile 2",
        "Compiled in 2.5 minutes by 4 processes, 2026-11-28 07:00 UTC.",
    ]
    assert write_lines(timed)[-4:-1] == write_markdown(timed).splitlines()[-4:-1] == end
    assert write_lines(timed)[-1].startswith(
        "Worse means surely slower by more than 1.0%: the probability of any wrong one among the frozen answers of a "
        "GPU model is 0.5% at most"
    )
    timed.fail_over = 0.0
    assert write_lines(timed)[-1].startswith("Worse means surely slower: the probability")
    timed.gpus.clear()
    assert write_lines(timed)[-3:] == end


def test_an_operator_that_one_head_lacks_has_a_dash_and_what_moved_names_its_head(timed: ToolchainReport) -> None:
    timed.sides = (*timed.sides, ToolchainName("newest|", "tile 3"))
    add(timed, "even", OLD, replace(NEW, failure="a|b", facts=None, status="error"), "newest|")
    rows = [line for line in write_markdown(timed).splitlines() if line.startswith(("| even ", "| much "))][:2]
    of_newest = [row.split(" | ")[3] for row in rows]
    assert of_newest == ["not safe: with the head it does not compile: a\\|b; not re-tuned", "-"]
    assert rows[0].endswith("| newer: registers 128 -> 168; newest/: does not compile: a/b |")
    assert rows[1].endswith("| newer: registers 128 -> 168 |")
    lines = write_lines(timed)
    assert lines.index("With newer:") < lines.index("With newest|:")
    timed.sides = timed.sides[:2]
    assert "With newer:" not in write_lines(timed)
    assert "| even | 1x1 | safe: " in write_markdown(timed)
    assert not any("newer: registers" in line for line in write_markdown(timed).splitlines())


def test_compile_times_are_those_of_one_head_on_one_architecture(timed: ToolchainReport) -> None:
    timed.pairs.clear()
    timed.sides = (*timed.sides, ToolchainName("newest"))
    for name, cpu_s in (("newer", 1.2), ("newest", 1.5)):
        pair = ToolchainPair("k", "1x1", "sm_90", "shipped", (BASE,) * 6, (replace(BASE, cpu_s=cpu_s),) * 6, name)
        timed.pairs |= {each.key: each for each in (pair, replace(pair, arch="sm_100"), replace(pair, kernel="l"))}
    found = {(each["arch"], each["head"]): each for each in make_answer(timed)["compile_times"]}
    assert {key: (each["configs"], round(each["head_cpu_s"], 6)) for key, each in found.items()} == {
        ("sm_90", "newer"): (12, 14.4),
        ("sm_90", "newest"): (12, 18.0),
        ("sm_100", "newer"): (6, 7.2),
        ("sm_100", "newest"): (6, 9.0),
    }
    text = "\n".join(write_lines(timed))
    assert "sm_90 newer: 2 of 2 identical; compiling: 12 -> 14 CPU seconds for 12 configs (12 -> 12 s of wall" in text
    assert "sm_90 newest: 2 of 2 identical; slower to compile: 12 -> 18 CPU seconds for 12 configs" in text


@pytest.mark.parametrize(
    ("interaction", "said"),
    [
        (None, ""),
        (LEAST_POINTS - 0.01, ""),
        (0.01 - LEAST_POINTS, ""),
        (LEAST_POINTS, ", +0.5 more in the reverse order"),
        (-LEAST_POINTS, ", -0.5 more in the reverse order"),
    ],
)
def test_a_share_names_its_interval_and_what_the_order_of_swapping_changes(
    timed: ToolchainReport, monkeypatch: pytest.MonkeyPatch, interaction: float | None, said: str
) -> None:
    shares = (LossShare("cuda-tile", -0.4, -0.6, -0.2, None), LossShare("compiler", 3.0, 2.5, 3.5, interaction))
    found = OperatorLadder("even", "1x1", "h200", "newer", Ladder(2.6, shares))
    monkeypatch.setattr(writing, "list_ladders", lambda _: (found,))
    text = f"compiler +3.0 (2.5 to 3.5){said}; cuda-tile -0.4 (-0.6 to -0.2)"
    lines = write_lines(timed)
    assert lines[lines.index("What took it, in points of 1 % of the base's time:") + 1 :][:2] == [
        f"  newer: even 1x1: +2.6: {text}",
        "",
    ]
    assert f"| even | 1x1 | newer | +2.6 | {text} |" in write_markdown(timed)
    (ladder,) = json.loads(write_json(timed))["ladders"]
    assert (ladder["kernel"], ladder["blamed"]) == ("even", ["compiler"])


def test_each_table_has_its_heading_and_its_columns(timed: ToolchainReport, monkeypatch: pytest.MonkeyPatch) -> None:
    found = OperatorLadder("even", "1x1", "h200", "newer", Ladder(2.6, (LossShare("compiler", 2.6, 2.5, 2.7, None),)))
    monkeypatch.setattr(writing, "list_ladders", lambda _: (found,))
    timed.sides = (*timed.sides, ToolchainName("newest"))
    add(timed, "even", OLD, OLD, "newest")
    lines = write_markdown(timed).splitlines()
    tables = {line: lines[at + 2 : at + 5] for at, line in enumerate(lines) if line.startswith("## ")}
    assert {heading: rows[0] for heading, rows in tables.items()} == {
        "## NVIDIA H200": "| kernel | problem | newer | newest | moved |",
        "## What took it": "| kernel | problem | version | loss | shares |",
        "## By kernel": "| kernel | newer | newest | take |",
        "## What the compilers make of it": "| architecture | what moved |",
    }
    for columns, rule, row in tables.values():
        assert rule == "|" + "---|" * (columns.count("|") - 1)
        assert row.count("|") == columns.count("|")
    assert lines[:2] == ["# installed → newer, newest", ""]
    operators = [line.split(" | ")[0] for line in lines[: lines.index("## What took it")] if line.startswith("| ")]
    assert "| even" in operators, "only one head has other code"
    assert "| same" not in operators
    assert lines[2:8:2] == [f"**{line}**" for line in write_answer(timed).splitlines()]
    assert lines[3:9:2] == [""] * 3, "each line is a paragraph"
    assert write_answer(timed).endswith("\nTake newest: the last of these that is safe.")
    timed.frozen["even", "1x1", "h200", "newest"] = time(1.1)
    add(timed, "even", OLD, NEW, "newest")
    assert write_answer(timed).endswith("\nTake installed: no other toolchain is safe.")
    timed.sides = timed.sides[:2]
    assert "## By kernel" not in write_markdown(timed)


def test_pins_are_the_packages_of_what_is_taken_without_its_driver(timed: ToolchainReport) -> None:
    packages = {"nvidia-nvvm": "13.5", "driver": "580.65", "cuda-tile": "2"}
    base, head = timed.sides
    timed.sides = (replace(base, packages={"cuda-tile": "1"}), replace(head, packages=packages))
    assert write_pins(timed).splitlines()[1:] == ["cuda-tile==1"], "the head is not safe"
    for kernel in TIMED | dict.fromkeys(("few", "none")):
        timed.frozen[kernel, "1x1", "h200", "newer"] = time(1.0)
    head_line, *pins = write_pins(timed).splitlines()
    assert pins == ["cuda-tile==2", "nvidia-nvvm==13.5"]
    assert "of newer, by" in head_line
    assert head_line.endswith(" of installed → newer, 2026-11-28 07:00 UTC.")


def test_json_has_every_operator_with_its_verdict_and_its_evidence(timed: ToolchainReport) -> None:
    won = replace(NEW, config=OTHER, cubin="won")
    timed.retunings["much", "1x1", "h200", "newer"] = Retuning(9, 9, won, (OTHER,))
    timed.retuned["much", "1x1", "h200", "newer"] = time(1.0)
    answer = json.loads(write_json(timed))
    operators = {each["kernel"]: each for each in answer["operators"]}
    much, same = operators["much"], operators["same"]
    assert (answer["safety"], answer["exit_code"], answer["take"]) == ("not safe", 1, "installed")
    assert [each["name"] for each in answer["sides"]] == ["installed", "newer"]
    assert [(each["kernel"], each["newest_safe"]) for each in answer["groups"]][:2] == [
        ("much", "installed"),
        ("little", "installed"),
    ]
    assert (much["safety"], much["static"], much["moved"]) == ("safe if re-tuned", "changed", ["registers 128 -> 168"])
    assert (much["config"], much["moved_to"], much["config_source"]) == (CONFIG, OTHER, "shipped")
    assert (much["frozen"]["kind"], much["retuned"]["kind"]) == ("slower", "not slower")
    assert (same["safety"], same["frozen"], same["retuned"], same["moved_to"]) == ("safe", None, None, None)
    assert (much["arch"], much["gpu_model"], much["head"]) == ("sm_90", "h200", "newer")
    timed.gpus.clear()
    assert {each["gpu_model"] for each in make_answer(timed)["operators"]} == {None}
