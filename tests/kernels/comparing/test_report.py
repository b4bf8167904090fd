"""What a comparison says as lines, Markdown and JUnit: its order, its counts, and the units of its numbers."""

from dataclasses import replace
from xml.etree import ElementTree

from tests.kernels.comparing.test_outcome import ALLOWED, FAILED, IDENTICAL, OPEN, SLOWER, outcome
from tilewatch.kernels.comparing.report import About, write_junit, write_lines, write_markdown

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
