"""Imports the recordings and reports of this checkout or wheel, in a separate process."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tilewatch import processes
from tilewatch.db.lifecycle import jobs
from tilewatch.db.server.embedded import Servers
from tilewatch.db.session import DATABASE_IS_AWAY, session
from tilewatch.worker.local.recorded_database import import_recorded
from tilewatch.worker.queue import dispatch
from tilewatch.worker.settings import Settings

AWAY_S = 1.0


def list_files(folder: Path, own: str | None) -> list[tuple[Path, str | None]]:
    """Lists a folder's recordings and reports as (file, new name of its repository). None keeps the recorded name."""
    files = (*sorted(folder.glob("*.jsonl.gz")), *sorted(folder.glob("*/*.jsonl.gz")))
    named = [(file, own if file.parent in (folder, folder / "nights") else None) for file in files]
    return [*named, *((report, None) for report in sorted(folder.glob("toolchains/*.json")))]


def import_files(servers: Servers, files: Iterable[tuple[Path, str | None]], pause: Callable[[], object]) -> None:
    """Imports the files that are new. If Postgres is away, calls `pause` and tries again."""
    for file, name in files:
        while True:
            try:
                imported = import_recorded(servers.database_url, file, name)
                break
            except DATABASE_IS_AWAY:
                pause()
        if imported.created:
            print(imported.sentence, flush=True)
    with contextlib.suppress(*DATABASE_IS_AWAY, dispatch.BrokerUnreachable):  # beat sends what is unsent in a minute
        with session(servers.database_url) as opened:
            queued = jobs.list_unsent(opened, dispatch.RESEND_AFTER_S)
        dispatch.send(dispatch.sender(servers.broker_url), servers.database_url, queued)


def main() -> None:
    processes.forbid_inspection()
    folder, own = sys.argv[1:]
    import_files(Settings.load().connection(), list_files(Path(folder), own or None), lambda: time.sleep(AWAY_S))


if __name__ == "__main__":
    main()
