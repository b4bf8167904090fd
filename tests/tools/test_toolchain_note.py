"""The note about tileiras 13.5.37 has the tables of its recording, as the tool writes them."""

from collections import Counter
from pathlib import Path

from tilewatch.kernels.comparing.toolchains.report_file import read_report
from tilewatch.kernels.comparing.toolchains.report_verdict import judge_report
from tools.toolchain_note import fill

ROOT = Path(__file__).parents[2]


def test_the_note_has_the_report_of_its_recording() -> None:
    report = read_report(ROOT / "recordings" / "toolchains" / "h200-13.4.92..13.5.37.json")
    note = (ROOT / "docs" / "use" / "compilers-13.5.37.md").read_text(encoding="utf-8")
    assert fill(note, report) == note


def test_the_note_begins_with_the_answers_of_the_newer_recording() -> None:
    report = read_report(ROOT / "recordings" / "toolchains" / "h100-13.4.92..13.5.37.json")
    counts = Counter(str(each.safety) for each in judge_report(report, "h100"))
    note = (ROOT / "docs" / "use" / "compilers-13.5.37.md").read_text(encoding="utf-8")
    answers = f"{counts['not safe']} not safe, {counts['unknown']} unknown, {counts['safe']} safe ("
    assert f"{counts.total()}: {answers}" in note
