"""A comparison of toolchains has one open report, and an ended one makes room for the next."""

from dataclasses import replace

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tests.db.fixtures.one_commit import NOON
from tilewatch.db.lifecycle import toolchain_reports
from tilewatch.db.lifecycle.toolchain_reports import JudgedReport
from tilewatch.db.models import ToolchainReport


@pytest.mark.parametrize(("state", "is_open"), [("queued", True), ("waiting", True), ("done", False)])
def test_a_report_is_open_while_its_own_job_is(db_session: Session, state: str, is_open: bool) -> None:
    first, is_new = toolchain_reports.begin(db_session, "a..b", ["a", "b"], NOON)
    assert is_new
    toolchain_reports.change(db_session, first, job_id=one_commit.job(db_session, state=state))
    one_commit.job(db_session, key="of another report", state="queued")
    other, _ = toolchain_reports.begin(db_session, "a..c", ["a", "c"], NOON)
    toolchain_reports.change(db_session, other, job_id=one_commit.job(db_session, key="done", state="done"))
    again, is_new = toolchain_reports.begin(db_session, "a..b", ["a", "b"], NOON)
    assert (again == first, is_new) == (is_open, not is_open)
    assert toolchain_reports.begin(db_session, "a..c", ["a", "c"], NOON)[1], "its own job is done"


def test_reports_of_one_comparison_are_numbered(db_session: Session) -> None:
    """A key that is the start of another one, or that matches it as a pattern, counts none of the other's reports."""
    keys = ["a_b", "a..b", "a_b..c", "a_b", "a%", "a_b", "a..b"]
    for key in keys:
        report_id, is_new = toolchain_reports.begin(db_session, key, key.split(".."), NOON)
        assert is_new
        assert toolchain_reports.read_contents(db_session, report_id) == {}
    stored = db_session.scalars(select(ToolchainReport.key).order_by(ToolchainReport.id)).all()
    assert stored == ["a_b#0", "a..b#0", "a_b..c#0", "a_b#1", "a%#0", "a_b#2", "a..b#1"]


@pytest.mark.parametrize("changed", ["contents", "answer", "markdown"])
def test_a_report_that_is_written_again_changes_if_its_text_or_its_verdict_does(
    db_session: Session, changed: str
) -> None:
    report = JudgedReport("a..b", ["a", "b"], NOON, {"sweeps": [1]}, {"is_slower": False}, "# A report")
    other = replace(report, key="a..c")
    assert [toolchain_reports.write_report(db_session, each) for each in (other, report)] == ["added", "added"]
    assert toolchain_reports.write_report(db_session, report) == "unchanged"
    now = replace(report, **{changed: "# Another" if changed == "markdown" else {"another": 1}})  # type: ignore[arg-type]  # a test's short hand
    assert [toolchain_reports.write_report(db_session, now) for _ in range(2)] == ["changed", "unchanged"]
    assert toolchain_reports.find_contents(db_session, "a..b") == now.contents
    assert toolchain_reports.find_contents(db_session, "a..c") == other.contents
    assert toolchain_reports.find_contents(db_session, "a..d") == {}
