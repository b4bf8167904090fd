"""The command `tilewatch publish`, which writes the database as pages that need no server."""

import contextlib
import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tilewatch import find_release
from tilewatch.worker.cli import options


def publish(
    folder: Annotated[Path, typer.Argument(help="The folder to write, which is made if it is not there.")],
    recordings: Annotated[
        list[Path] | None,
        typer.Argument(help="Recordings and toolchain reports to publish instead of the database."),
    ] = None,
    repository: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this repository. Default: all, without their branches.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who publishes the site. Default: this machine.")
    ] = None,
    address: Annotated[
        str, typer.Option(metavar="URL", help="Where the site will be, so that its feeds have whole links.")
    ] = "",
    merge: Annotated[
        list[Path] | None,
        typer.Option(metavar="SITE", help="Another party's site, a folder or its site.json.gz, to show below."),
    ] = None,
) -> None:
    """Write a static site: scoreboard, series, sweeps, regressions, toolchain reports, tuned tables, badges and feeds.

    The site needs no server, loads nothing from other sites, and has no names of people who work on regressions.

    Example: tilewatch publish site recordings/*.jsonl.gz
    """
    from tilewatch.worker.local.recorded_database import open_recorded_database
    from tilewatch.worker.logs import set_up
    from tilewatch.worker.transfer.tuned_tables import write_tables

    settings = options.settings()
    with contextlib.ExitStack() as stack:
        if recordings:
            set_up("ERROR")
            print_line = partial(print, flush=True)
            database_url = stack.enter_context(open_recorded_database(recordings, settings, print_line))
        else:
            database_url = options.ready_database()
        scratch = stack.enter_context(tempfile.TemporaryDirectory())
        if repository is not None:
            options.require_repository(database_url, repository)
        tables = Path(scratch) / "tuned.json"
        write_tables(database_url, tables, str, repository=repository, every_repository=True)
        order = {
            "folder": str(folder.absolute()),
            "name": name or settings.node,
            "release": find_release(),
            "repository": repository,
            "address": address,
            "tables": str(tables),
            "merge": [str(site.absolute()) for site in merge or ()],
        }
        options.run_dashboard_program("site.write_site", order, database_url)
