"""A comparison of toolchains has one open report, and an ended one makes room for the next."""

import pytest
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tests.db.fixtures.one_commit import NOON
from tilewatch.db.lifecycle import toolchain_reports


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
