"""The example of a toolchain report has the answers of its recordings, and its picture their operators."""

from collections import Counter
from pathlib import Path

import pytest

from tilewatch.kernels.comparing.toolchains.report_file import ToolchainReport, read_report
from tilewatch.kernels.comparing.toolchains.report_verdict import judge_report
from tools.toolchain_picture import draw

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "use" / "compilers-13.5.37.md"


def read(gpu_model: str) -> ToolchainReport:
    return read_report(ROOT / "recordings" / "toolchains" / f"{gpu_model}-13.4.92..13.5.37.json")


@pytest.mark.parametrize(
    ("gpu_model", "answers"),
    [
        ("h100", "{total}: {not safe} not safe, {unknown} unknown, {safe} safe"),
        (
            "h200",
            "{total} operators and problems: {not safe} not safe, {safe if re-tuned} safe if re-tuned, {safe} safe",
        ),
    ],
)
def test_the_page_has_the_answers_of_its_recordings(gpu_model: str, answers: str) -> None:
    counts = Counter(str(each.safety) for each in judge_report(read(gpu_model), gpu_model))
    sentence = answers.format_map({**counts, "total": counts.total()})
    assert sentence in " ".join(PAGE.read_text(encoding="utf-8").split())


def test_the_picture_has_a_point_for_each_operator_that_was_decided() -> None:
    figure = draw(read("h200"), "h200")
    frozen, retuned = figure.data
    assert len(frozen.y) > len(retuned.y) > 0
    assert max(frozen.x) == pytest.approx(61.6, abs=0.1)
    assert f"{len(frozen.y)} operators and problems" in figure.layout.title.text
