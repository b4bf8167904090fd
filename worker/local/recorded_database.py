"""Opens a temporary database with imported recordings, for commands that work without a running Tilewatch."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tilewatch.db import migrate
from tilewatch.db.lifecycle import jobs
from tilewatch.db.server.embedded import Embedded
from tilewatch.db.session import engine, session
from tilewatch.worker import run_job
from tilewatch.worker.context import Context
from tilewatch.worker.settings import Settings
from tilewatch.worker.transfer import toolchain_reports
from tilewatch.worker.transfer.importing import Imported, import_file

FOLDER = "/var/tmp"  # noqa: S108 - a folder with a name of its own is made in it; /tmp may be memory
OWNER = "judge of recordings"


@contextlib.contextmanager
def open_recorded_database(
    files: Sequence[Path], settings: Settings, print_line: Callable[[str], None]
) -> Iterator[str]:
    """Imports and judges recordings in a temporary database, yields its URL, and deletes it at the end."""
    with tempfile.TemporaryDirectory(prefix="tilewatch-recordings-", dir=FOLDER) as folder:
        home = Path(folder)
        home.chmod(0o755)  # the embedded Postgres runs as nobody when this is run by root
        with Embedded(home / "servers", fsync=False) as servers:
            migrate.upgrade(servers.database_url)
            for file in files:
                print_line(import_recorded(servers.database_url, file).sentence)
            own = {"home": home, "database_url": servers.database_url, "broker_url": servers.broker_url}
            run_jobs(Context.of(settings.model_copy(update=own)), OWNER)  # a recording queues judge jobs alone
            try:
                yield servers.database_url
            finally:
                engine(servers.database_url).dispose()


def import_recorded(database_url: str, file: Path, named: str | None = None) -> Imported:
    """Imports a recording or a toolchain report. `named` renames its repository."""
    if file.name.endswith(toolchain_reports.END):
        return toolchain_reports.import_report(database_url, file)
    return import_file(database_url, file, named=named)


def run_jobs(context: Context, owner: str) -> None:
    """Runs queued jobs in this process until the queue is empty."""
    while True:
        with session(context.database_url) as opened:
            waiting = jobs.list_unsent(opened, 0)
        if not waiting:
            return
        for job in waiting:
            run_job.run(job.id, owner, context)
