"""Who may do what: the dashboard's role reads, the workers' role writes rows, and neither changes tables."""

import pytest
from sqlalchemy import delete, text
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tilewatch.db.lifecycle import actions, jobs
from tilewatch.db.lifecycle.actions import JobSelection
from tilewatch.db.models import Base, Measurement, Run, Trial, Verdict
from tilewatch.db.page_reads import submissions


def become(opened: Session, role: str) -> None:
    opened.execute(text(f"set local role {role}"))


def test_the_dashboards_role_reads_everything_and_writes_nothing(db_session: Session) -> None:
    one_commit.measure(db_session, one_commit.submit(db_session))
    become(db_session, "tilewatch_read")
    assert len(submissions.list_submissions(db_session)) == 1
    with pytest.raises(ProgrammingError, match="permission denied for table gpu_models"):
        one_commit.submit(db_session, "another")


@pytest.mark.parametrize("table", [table.name for table in Base.metadata.sorted_tables])
def test_a_reader_reads_every_table_but_tokens_and_changes_none(db_session: Session, table: str) -> None:
    become(db_session, "tilewatch_read")
    if table == "tokens":
        with pytest.raises(ProgrammingError, match="permission denied for table tokens"), db_session.begin_nested():
            db_session.execute(text("select 1 from tokens"))
    else:
        db_session.execute(text(f"select * from {table}"))  # noqa: S608 - the names of our own tables
    columns = Base.metadata.tables[table].columns.keys()
    for change in (
        f"delete from {table}",  # noqa: S608
        f"update {table} set {columns[0]} = {columns[0]}",  # noqa: S608
        f"insert into {table} default values",
        f"truncate {table}",
    ):
        with pytest.raises(ProgrammingError, match="permission denied for table"), db_session.begin_nested():
            db_session.execute(text(change))


def test_the_triage_role_sees_no_tokens(db_session: Session) -> None:
    become(db_session, "tilewatch_triage")
    with pytest.raises(ProgrammingError, match="permission denied for table tokens"):
        db_session.execute(text("select sha256 from tokens"))


def test_the_triage_role_acts_on_the_queue_and_touches_no_measurement(db_session: Session) -> None:
    one_commit.measure(db_session, one_commit.submit(db_session))
    job_id = one_commit.job(db_session)
    become(db_session, "tilewatch_triage")
    assert actions.cancel(db_session, JobSelection.of(job_id, None), "ada") == f"cancelled job {job_id}"
    assert actions.retry(db_session, JobSelection.of(job_id, None), "ada") == f"queued job {job_id} again"
    assert actions.ask(db_session, "ada", "nightly", {"commit": "HEAD"})
    for table in (Run, Measurement, Trial, Verdict):
        with pytest.raises(ProgrammingError, match="permission denied for table"), db_session.begin_nested():
            db_session.execute(delete(table))


@pytest.mark.parametrize(
    "change",
    [
        "update jobs set payload = '{}'",
        "update jobs set queue = 'judge'",
        "update jobs set subject = 'another'",
        "update messages set body = 'all is well'",
        "insert into messages (key, kind, channel, subject, body) values ('k', 'opened', 'c', 's', 'b')",
        "update actions set who = 'somebody else'",
        "update marks set who = 'somebody else'",
        "update regressions set cause = 'nobody'",
        "update regression_series set recovered_at = now()",
    ],
)
def test_the_triage_role_changes_no_work_no_text_and_no_name(db_session: Session, change: str) -> None:
    become(db_session, "tilewatch_triage")
    with pytest.raises(ProgrammingError, match="permission denied for table"):
        db_session.execute(text(change))


def test_the_workers_role_takes_a_job_through_its_life(db_session: Session) -> None:
    become(db_session, "tilewatch_write")
    one_commit.measure(db_session, one_commit.submit(db_session))
    job_id = one_commit.job(db_session)
    assert jobs.claim(db_session, job_id, "a", 60)
    assert jobs.finish(db_session, job_id, "a")


@pytest.mark.parametrize(
    "change",
    [
        "create table mine (id int)",
        "drop table trials",
        "alter table trials add column mine int",
        "update alembic_version set version_num = '9999'",
        "create role mine",
    ],
)
def test_the_workers_role_changes_no_table(db_session: Session, change: str) -> None:
    become(db_session, "tilewatch_write")
    with pytest.raises(ProgrammingError, match=r"permission denied|must be owner"):
        db_session.execute(text(change))
