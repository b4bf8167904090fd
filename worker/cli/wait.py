"""Waits until submitted work has ended, by asking the database. If the waiting is stopped, the jobs continue."""

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

from tilewatch.worker.cli.options import INTERRUPTED

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

ASK_EVERY_S = 1.0


def wait_for(database_url: str, read_state: "Callable[[Session], str | None]", look_again: str) -> None:
    """Prints each new state on standard error until `read_state` returns None. Keeps waiting while Postgres is away.
    Ctrl-C prints `look_again`, a sentence on how to look later, and ends the command with exit code 130."""
    from tilewatch.worker.queue.outage import once_postgres_is_back

    printed = None
    try:
        while (state := once_postgres_is_back(database_url, read_state)) is not None:
            if state != printed:
                print(state, file=sys.stderr, flush=True)
            printed = state
            time.sleep(ASK_EVERY_S)
    except KeyboardInterrupt:
        print(f"tilewatch: stopped waiting; the jobs go on. {look_again}", file=sys.stderr, flush=True)
        raise typer.Exit(INTERRUPTED) from None
