"""Imports all recordings into an empty database and judges them with the replays in them. Needs no GPU."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import func, select

from tilewatch.db import migrate
from tilewatch.db.models import Job
from tilewatch.db.server.embedded import Embedded
from tilewatch.db.session import session
from tilewatch.worker import run_job
from tilewatch.worker.context import Context
from tilewatch.worker.local import up
from tilewatch.worker.settings import Settings
from tilewatch.worker.transfer.importing import import_file


@contextlib.contextmanager
def open_judged() -> Iterator[str]:
    """Gives the URL of a database that ends with the block. Raises SystemExit where a job did not end well."""
    with tempfile.TemporaryDirectory(prefix="tilewatch-recordings-", dir="/var/tmp") as folder:
        home = Path(folder)
        home.chmod(0o755)  # the embedded Postgres runs as nobody when this is run by root
        with Embedded(home / "home", fsync=False) as servers:
            migrate.upgrade(servers.database_url)
            _fill(servers.database_url, servers.broker_url, home)
            yield servers.database_url


def _fill(database_url: str, broker_url: str, home: Path) -> None:
    for recording in sorted(up.RECORDINGS.glob("**/*.jsonl.gz")):
        print(import_file(database_url, recording).sentence)
    settings = Settings(home=home / "home", repository=home, database_url=database_url, broker_url=broker_url)
    with session(database_url) as opened:
        judges = list(opened.scalars(select(Job.id).where(Job.kind == "judge").order_by(Job.id)))
    for job_id in judges:
        run_job.run(job_id, "benchmark#1", Context.of(settings))
    with session(database_url) as opened:
        if undone := opened.scalar(select(func.count(Job.id)).where(Job.state != "done")):
            raise SystemExit(f"{undone} judge jobs did not end well")
