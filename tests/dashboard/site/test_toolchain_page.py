"""A published report of toolchains begins with a paragraph for each newer toolchain."""

import datetime as dt

from tilewatch.dashboard.site.toolchain_page import make_toolchain_page
from tilewatch.db.page_reads.toolchain_reports import ReportRow, ReportStory


def test_each_line_of_the_answer_is_a_paragraph() -> None:
    report = ReportRow(1, ["13.4", "13.5", "13.6"], dt.datetime(2026, 11, 30, tzinfo=dt.UTC), "not safe", None, None)
    lines = ("13.5 is not safe.", "13.6 is safe.", "Take 13.6: the last of these that is safe.")
    story = ReportStory(report, "\n".join(lines), 1, ("a", "b", "c"), (), (), (), (), "", {})
    page = make_toolchain_page(story)
    assert [(block.kind, block.text) for block in page.blocks] == [("text", line) for line in lines]
