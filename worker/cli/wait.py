"""Waits until submitted work has ended. If the waiting is stopped, the jobs continue."""

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import typer

from tilewatch.nightlies import ENDED_WELL
from tilewatch.text import count_text
from tilewatch.worker.cli.options import INTERRUPTED

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

ASK_EVERY_S = 1.0


def wait_for(database_url: str, read_state: "Callable[[Session], str | None]", look_again: str) -> None:
    """Prints each new result of `read_state` on standard error. Ends at the result None or at Ctrl-C."""
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


WELL, REGRESSION, NOT_COMPLETE = 0, 1, 2
"""The exit codes. A nightly with both a regression and missing results ends with REGRESSION."""


def wait_for_nightly(database_url: str, submission_ids: Sequence[int]) -> None:
    """Waits for submissions, prints their results, and exits with the code that `nightly_code` returns."""
    from tilewatch.db.page_reads import submissions
    from tilewatch.db.session import session

    wait_for(
        database_url,
        lambda opened: _write_state(opened, submission_ids),
        "The same command waits for the same nightly again, until the end of the day in UTC; "
        "`tilewatch status --follow` shows it",
    )
    with session(database_url) as opened:
        rows = submissions.list_submissions_by_id(opened, submission_ids)
        confirmed = submissions.list_regressions_confirmed(opened, submission_ids)
    for row in rows:
        print(f"submission {row.id} on {row.gpu_model}: {row.state}, {count_text(row.runs, 'run')}")
    if confirmed:
        print(f"confirmed in it: {', '.join(f'regression {each}' for each in confirmed)}")
    raise typer.Exit(nightly_code([row.state for row in rows], confirmed))


def nightly_code(states: Sequence[str], confirmed: Sequence[int]) -> int:
    """Returns 1 if a regression was confirmed, else 0 if all submissions ended well, else 2."""
    if confirmed:
        return REGRESSION
    return WELL if all(state in ENDED_WELL for state in states) else NOT_COMPLETE


def _write_state(opened: "Session", submission_ids: Sequence[int]) -> str | None:
    """Returns the progress of the submissions as one line; None if no job is open."""
    from tilewatch.db.models import OPEN_JOB
    from tilewatch.db.page_reads import submissions
    from tilewatch.db.worker_reads import steps

    waiting = {each: len(steps.list_jobs_in(opened, each, OPEN_JOB)) for each in submission_ids}
    if not any(waiting.values()):
        return None
    rows = submissions.list_submissions_by_id(opened, submission_ids)
    return "; ".join(
        f"submission {row.id} on {row.gpu_model}: {row.state}, {row.runs} of {count_text(row.sweeps, 'run')}, "
        f"{count_text(waiting[row.id], 'open job')}"
        for row in rows
    )
