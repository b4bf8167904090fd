"""The backup of docs/operate/data-safety.md, tried: dumped, restored, and the same, queue and all."""

import os
import shutil
import subprocess
from pathlib import Path

from sqlalchemy import make_url, select
from sqlalchemy.orm import Session

from tests.conftest import NewDatabase
from tests.db.fixtures import one_commit
from tilewatch.db import migrate, session
from tilewatch.db.lifecycle import jobs
from tilewatch.db.models import Base
from tilewatch.db.server import programs


def everything(url: str) -> dict[str, list[str]]:
    with session.engine(url).connect() as connection:
        return {
            table.name: sorted(str(row) for row in connection.execute(select(table)))
            for table in Base.metadata.sorted_tables
        }


def program(name: str) -> str:
    """That of the server's own version: a newer pg_restore says things that an older server does not know."""
    if "TEST_DATABASE_URL" in os.environ:
        found = shutil.which(name)
        assert found is not None
        return found
    return str(programs.find(lambda _: True, Path("unused")).postgres.with_name(name))


def libpq_url(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def test_a_backup_is_restored_whole_and_the_queue_goes_on(
    database_url: str, db_session: Session, empty_database: NewDatabase, tmp_path: Path
) -> None:
    one_commit.measure(db_session, one_commit.submit(db_session))
    job_id = one_commit.job(db_session)
    assert jobs.claim(db_session, job_id, "gone#1", 0.0)
    db_session.commit()
    dump = tmp_path / "tilewatch.dump"
    subprocess.run(
        [program("pg_dump"), "--format=custom", f"--file={dump}", f"--dbname={libpq_url(database_url)}"], check=True
    )
    with empty_database() as restored:
        subprocess.run(
            [program("pg_restore"), "--exit-on-error", f"--dbname={libpq_url(restored)}", str(dump)], check=True
        )
        assert everything(restored) == everything(database_url)
        migrate.require_head(restored)
        with session.session(restored) as opened:
            assert [job.id for job in jobs.requeue_expired(opened)] == [job_id]
            assert one_commit.job(opened, "another") > job_id  # the numbers go on where they were
