"""The example of a toolchain report has the answers of its recordings, and its picture their operators."""

from collections import Counter
from pathlib import Path

import pytest

from tilewatch.kernels.comparing.toolchains.report_file import ToolchainReport, read_report
from tilewatch.kernels.comparing.toolchains.report_verdict import judge_report
from tools.toolchain_picture import draw

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "use" / "compilers-13.5.37.md"


FOUR = "h200-13.4.92..13.5.37..13.4.59..13.3.36"


def read(name: str) -> ToolchainReport:
    return read_report(ROOT / "recordings" / "toolchains" / f"{name}.json")


@pytest.mark.parametrize(
    ("name", "head", "answers"),
    [
        ("h100-13.4.92..13.5.37", "13.5.37", "{total}: {not safe} not safe, {unknown} unknown, {safe} safe"),
        (
            "h200-13.4.92..13.5.37",
            "13.5.37",
            "{total} operators and problems: {not safe} not safe, {safe if re-tuned} safe if re-tuned, {safe} safe",
        ),
        (
            FOUR,
            "13.5.37",
            "| 13.5.37 | {not safe} not safe, {safe if re-tuned} safe if re-tuned, {unknown} unknown, {safe} safe "
            "({identical} identical) |",
        ),
        (FOUR, "13.4.59", "| 13.4.59 | {total} safe ({identical} identical) |"),
        (
            FOUR,
            "13.3.36",
            "| 13.3.36, not re-tuned | {not safe} not safe ({stopped compiling} do not compile), {unknown} unknown, "
            "{safe} safe |",
        ),
    ],
)
def test_the_page_has_the_answers_of_its_recordings(name: str, head: str, answers: str) -> None:
    judged = [each for each in judge_report(read(name), name[:4]) if each.pair.head_name == head]
    counts = Counter(str(each.safety) for each in judged)
    kinds = Counter(each.pair.kind for each in judged)
    sentence = answers.format_map({**kinds, **counts, "total": counts.total()})
    assert sentence in " ".join(PAGE.read_text(encoding="utf-8").split())


def test_the_picture_has_a_point_for_each_operator_that_was_decided() -> None:
    figure = draw(read("h200-13.4.92..13.5.37"), "h200")
    frozen, retuned = figure.data
    assert len(frozen.y) > len(retuned.y) > 0
    assert max(frozen.x) == pytest.approx(61.6, abs=0.1)
    assert f"{len(frozen.y)} operators and problems" in figure.layout.title.text


def test_the_picture_of_several_heads_shows_the_first() -> None:
    report = read(FOUR)
    frozen, _ = draw(report, "h200").data
    assert len(frozen.y) == len(set(frozen.y)) > 90
    assert max(frozen.x) == pytest.approx(31.3, abs=0.1)
