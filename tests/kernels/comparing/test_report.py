"""What a comparison says as lines, Markdown and JUnit: its order, its counts, and the units of its numbers."""

import json
import math
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from tests.kernels.comparing.test_outcome import ALLOWED, FACTS, FAILED, IDENTICAL, OPEN, SLOWER, outcome
from tilewatch.kernels.comparing.outcome import Outcome
from tilewatch.kernels.comparing.report import About, write_json, write_junit, write_lines, write_markdown
from tilewatch.text import COMMENT_CHARACTERS

ABOUT = About("abc", "def", True, "NVIDIA H200", 61.4, 12.6, "tilewatch compare abc..def")


def test_the_last_line_counts_and_has_the_seconds_of_the_gpu_and_of_the_whole() -> None:
    slower = outcome(SLOWER, kind="slower", head_config={"tile_m": 64}, base_config={"tile_m": 128})
    lines = write_lines([IDENTICAL, slower, outcome()], ABOUT)
    assert lines[-1] == "abc .. def on NVIDIA H200, 13 s of GPU: 2 identical, 1 slower; 61 s"
    assert lines[0].startswith("gemm 1x2x3: slower +1.8 %")
    assert lines[1] == (
        "  again: tilewatch replay gemm 1x2x3 --of def --beside abc --config tile_m=64 --beside-config tile_m=128"
    )
    assert lines[2] == "gemm 1x2x3 (sm_90, sm_90): identical machine code"
    assert write_lines([], ABOUT) == ["abc .. def: there is no kernel to compare"]
    assert write_lines([IDENTICAL], replace(ABOUT, gpu=""))[-1] == "abc .. def: 1 identical; 61 s"
    assert not any("again" in line for line in write_lines([slower], replace(ABOUT, can_replay=False)))


def test_the_most_urgent_comes_first_and_of_equal_kinds_the_slowest() -> None:
    verdicts = (replace(ALLOWED, change=0.01), SLOWER)
    timed = [outcome(each, kind="slower", problem=f"{each.change}") for each in verdicts]
    timed.append(outcome(OPEN, kind="undecided"))
    title, _, *rows = write_markdown([IDENTICAL, *timed, FAILED], ABOUT).splitlines()
    assert title == "### Tilewatch: slower (abc .. def)"
    named = [row.split(" | ")[1:3] for row in rows[2:6]]
    assert [problem for problem, _ in named] == ["1x2x3 sm_90", "0.018", "0.01", "1x2x3"]
    assert named[0][1].startswith("could not be compared")
    assert named[3][1].startswith("undecided")


@pytest.mark.parametrize(
    ("moved", "cell"), [((), "-"), (("other registers", "other spills"), "other registers, other spills")]
)
def test_a_row_of_a_comment_lists_what_moved_in_the_code(moved: tuple[str, ...], cell: str) -> None:
    (row,) = write_markdown([outcome(kind="changed", moved=moved)], ABOUT).splitlines()[4:5]
    assert row == f"| gemm | 1x2x3 sm_90 | other machine code | {cell} |"


def test_slower_than_allowed_is_a_failure_and_unsure_an_error() -> None:
    written = write_junit([outcome(SLOWER), outcome(OPEN), FAILED, IDENTICAL], ABOUT)
    suite = ElementTree.fromstring(written)  # noqa: S314 - our own text
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "time")} == {
        "tests": "4",
        "failures": "1",
        "errors": "2",
        "time": "61.4",
    }
    assert [case[0].tag for case in suite] == ["failure", "error", "error", "system-out"]


@pytest.mark.parametrize(
    ("outcomes", "title"),
    [
        ((), "fine"),
        ((IDENTICAL,), "fine"),
        ((outcome(OPEN, kind="undecided"),), "could not tell"),
        ((FAILED,), "could not tell"),
    ],
)
def test_a_comment_says_what_the_exit_code_does(outcomes: tuple[Outcome, ...], title: str) -> None:
    lines = write_markdown(outcomes, ABOUT).splitlines()
    assert lines[0] == f"### Tilewatch: {title} (abc .. def)"
    has_table = any(each.kind != "identical" for each in outcomes)
    assert ("| kernel | problem | verdict | what moved in the code |" in lines) == has_table
    assert lines[-1] == "Repeat it: `tilewatch compare abc..def`"
    assert lines[-3].startswith("abc .. def")


@pytest.mark.parametrize("length", range(200, 230))
def test_a_comment_has_at_most_as_many_characters_as_a_forge_takes(length: int) -> None:
    many = [outcome(SLOWER, kind="slower", problem=f"{number:4}x" + "1" * length) for number in range(400)]
    text = write_markdown(many, ABOUT)
    assert COMMENT_CHARACTERS - 300 < len(text) <= COMMENT_CHARACTERS
    assert text.endswith("Repeat it: `tilewatch compare abc..def`\n")


def test_what_is_said_of_several_problems_and_architectures_is_one_line() -> None:
    changed = outcome(kind="changed", moved=("registers 128 -> 168",))
    others = [replace(changed, problem="2x2"), replace(changed, arch="sm_100"), replace(changed, kernel="norm")]
    lines = write_lines([IDENTICAL, changed, *others], replace(ABOUT, gpu=""))
    assert lines[:-1] == [
        "gemm 1x2x3 (sm_90, sm_100): other machine code; registers 128 -> 168",
        "gemm 2x2 (sm_90): other machine code; registers 128 -> 168",
        "norm 1x2x3 (sm_90): other machine code; registers 128 -> 168",
        "gemm 1x2x3 (sm_90): identical machine code",
    ]


@pytest.mark.parametrize(
    ("fields", "command"),
    [
        ({}, ""),
        ({"head_config": {"tile_m": 64}, "base_config": {"tile_m": 64}}, " --config tile_m=64"),
        ({"base_config": {"tile_m": 64}}, " --beside-config tile_m=64"),
        ({"head_config": {"tile_m": 64}}, " --config tile_m=64"),
        ({"metric": "energy"}, " --metric energy"),
        ({"problem": "a b"}, ""),
    ],
)
def test_json_has_each_outcome_with_the_command_that_times_it_again(fields: dict[str, object], command: str) -> None:
    facts = replace(FACTS, remarks=({"pass": "tma"},))
    made = outcome(replace(SLOWER, high=math.inf), kind="slower", base_facts=facts, head_facts=facts, **fields)
    written = json.loads(write_json([made, IDENTICAL], ABOUT))
    slower, identical = written["outcomes"]
    operator = "'a b'" if "problem" in fields else "1x2x3"
    assert slower["repeat"] == f"tilewatch replay gemm {operator} --of def --beside abc{command}"
    assert (slower["verdict"]["kind"], slower["verdict"]["low"], slower["verdict"]["high"]) == ("slower", 0.015, None)
    assert (slower["sentence"], identical["sentence"]) == (made.sentence, "identical machine code")
    assert [slower[side]["registers"] for side in ("base_facts", "head_facts")] == [128, 128]
    assert not any("remarks" in slower[side] for side in ("base_facts", "head_facts"))
    assert (identical["base_facts"], identical["verdict"], "repeat" in identical) == (None, None, False)
    assert (written["exit_code"], written["base"], written["gpu_s"]) == (1, "abc", 12.6)
    of_tree = json.loads(write_json([made], replace(ABOUT, can_replay=False)))
    assert of_tree["outcomes"][0]["repeat"] is None
