"""The commands `tilewatch prune`, `export`, `import`, `migrate` and `logins`, which work on the database."""

import datetime as dt
import os
from pathlib import Path
from typing import Annotated

import typer

from tilewatch.kernels.command_options import require_place
from tilewatch.worker.cli import options

MOST_OF_DASHBOARDS = 45


def prune(
    days: Annotated[
        int | None, typer.Option(min=1, help="The age in days. Default: TILEWATCH_KEEP_SAMPLES_DAYS.")
    ] = None,
) -> None:
    """Delete the raw samples of old trials that did not win; their medians are kept. Also runs every night.

    Samples of winners, measurements and verdicts are kept for ever.

    Example: tilewatch prune --days 30
    """
    from tilewatch.worker.settings import MOST_DAYS
    from tilewatch.worker.submitting import schedule

    if days is not None and days > MOST_DAYS:
        raise typer.BadParameter(f"at most {MOST_DAYS} is expected", param_hint="'--days'")
    keep_days = days or options.settings().keep_samples_days
    rolled_up = schedule.prune(options.ready_database(), keep_days, dt.datetime.now(dt.UTC))
    print(f"deleted the samples of {rolled_up} trials older than {keep_days} days; their medians are kept")


def export_(
    file: Annotated[Path, typer.Argument(callback=require_place, help="The file to write, such as h200.jsonl.gz.")],
    kernel: options.OnlyKernel = None,
    gpu: options.OnlyGpu = None,
    since: Annotated[
        str | None, typer.Option(metavar="YYYY-MM-DD", help="Only what was measured on this day (UTC) or later.")
    ] = None,
    repository: options.OneRepository = None,
) -> None:
    """Write measurements to a file (a recording) that `tilewatch import` reads on another machine.

    Example: tilewatch export h200.jsonl.gz --gpu h200 --since 2026-11-01
    """
    from tilewatch.db.worker_reads.export import ExportFilter
    from tilewatch.worker.transfer.exporting import export_file

    wanted = ExportFilter(repository, kernel, gpu, options.day(since))
    rows = export_file(options.ready_database(), file, wanted)
    print(f"wrote {rows} rows to {file} ({file.stat().st_size / 1e6:.1f} MB)")


def import_(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Recordings that `tilewatch export` wrote, or BASE..HEAD.json of `tilewatch toolchain compare`."
        ),
    ],
    repository: Annotated[
        str | None, typer.Option(metavar="NAME", help="Store them under this repository name.")
    ] = None,
) -> None:
    """Read recordings into the database. An incomplete file changes nothing; one that was read before is skipped.

    Example: tilewatch import recordings/*.jsonl.gz
    """
    from tilewatch.worker.local.recorded_database import import_recorded

    database_url = options.ready_database()
    for file in files:
        print(import_recorded(database_url, file, repository).sentence)


def migrate() -> None:
    """Create or update the tables of the database. Safe to run twice, or on several machines at once.

    If other processes use a table for over two minutes, the command names these processes and ends with exit code 2.
    """
    from tilewatch.db import migrate as migrations
    from tilewatch.db.session import require_database

    database_url = options.settings().connection().database_url
    require_database(database_url)
    migrations.upgrade(database_url, report=lambda sentence: print(sentence, flush=True))
    print(f"the database is at revision {migrations.current(database_url)}")


def logins(
    board_may_act: Annotated[
        bool, typer.Option("--board-may-act", help="Let people cancel, retry and triage on the dashboard.")
    ] = False,
) -> None:
    """Create or change the database logins of the workers (tilewatch_worker) and of the dashboard (tilewatch_board).

    Each gets only the rights that it needs. The dashboard's login gets at most 45 connections, for three dashboards.
    Run this as the owner of the database, after `tilewatch migrate`. The passwords come from the environment:
    TILEWATCH_WORKER_PASSWORD and TILEWATCH_BOARD_PASSWORD.
    """
    from tilewatch.db.server.logins import Login, Role, make

    board: Role = "tilewatch_triage" if board_may_act else "tilewatch_read"
    make(
        options.ready_database(),
        (
            Login("tilewatch_worker", "tilewatch_write", _password("TILEWATCH_WORKER_PASSWORD")),
            Login("tilewatch_board", board, _password("TILEWATCH_BOARD_PASSWORD"), MOST_OF_DASHBOARDS),
        ),
    )
    print(f"tilewatch_worker has the rights of tilewatch_write, tilewatch_board those of {board}")


def _password(variable: str) -> str:
    given = os.environ.get(variable)
    if not given:
        raise typer.BadParameter(f"{variable} is not set; it holds the password of the login")
    return given
