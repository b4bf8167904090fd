"""Prints the lines of `tilewatch up` for a person at a terminal."""

import contextlib
import os
import select
import sys
import time
from collections.abc import Sequence

from sqlalchemy.exc import DBAPIError

from tilewatch.db.models import FAILED_JOB, OPEN_JOB
from tilewatch.db.page_reads import queue, submissions
from tilewatch.db.server.embedded import Servers
from tilewatch.db.session import passing_trouble, reading_session
from tilewatch.text import short_sha

PRINT_EVERY_S = 15.0  # if the output is not a terminal
KEPT_BYTES = 1 << 16
"""The most bytes that are kept while the terminal accepts no output."""


class Screen:
    """Prints lines, and a progress line that a terminal overwrites and a log file repeats now and then."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._unwritten = b""
        self._shown = ""
        self._printed_at = 0.0

    def print_line(self, line: str) -> None:
        self._write(f"\r\033[K{line}\n" if self._terminal else f"{line}\n")
        self._shown = ""

    def progress(self, line: str) -> None:
        self._write("")
        if line == self._shown:
            return
        if self._terminal:
            width = os.get_terminal_size(sys.stdout.fileno()).columns
            self._write(f"\r\033[K{line[: width - 1]}")
        elif time.monotonic() - self._printed_at >= PRINT_EVERY_S:
            self._write(f"{line}\n")
        else:
            return
        self._shown = line
        self._printed_at = time.monotonic()

    def _write(self, text: str) -> None:
        """Writes as much text as the terminal accepts without blocking, and keeps the rest for the next call."""
        self._unwritten = (self._unwritten + text.encode())[-KEPT_BYTES:]
        with contextlib.suppress(OSError):  # such as a full disk, or a closed terminal
            while self._unwritten and select.select([], [sys.stdout], [], 0)[1]:
                written = os.write(sys.stdout.fileno(), self._unwritten[: select.PIPE_BUF])
                self._unwritten = self._unwritten[written:]


def progress(servers: Servers, ended: Sequence[str] = (), trouble: str | None = None) -> str:
    """Returns one line about ended processes, trouble with Postgres, and open submissions or jobs."""
    states = [f"{name} ended and will be started again" for name in ended]
    states += [trouble] if trouble else []
    try:
        return _describe_work(servers, states)
    except DBAPIError as error:
        reason = passing_trouble(error)
        if reason is None:
            raise
        return " · ".join(states or [reason])


def _describe_work(servers: Servers, states: list[str]) -> str:
    with reading_session(servers.database_url) as opened:
        submitted = submissions.list_submissions(opened)
        under_way = [row for row in submitted if row.state in submissions.IN_PROGRESS]
        counted = queue.count_jobs(opened) if not under_way else []
    states += [describe(row) for row in reversed(under_way)]
    open_jobs, failed = (sum(each.jobs for each in counted if each.state in of) for of in (OPEN_JOB, FAILED_JOB))
    if open_jobs:
        states.append(f"jobs that are not done yet: {open_jobs}")
    if states:
        return " · ".join(states)
    if failed:
        return f"nothing is left to do, and jobs that failed: {failed} (see Jobs & workers); Ctrl-C stops Tilewatch"
    words = "everything that was submitted is done" if submitted or counted else "nothing was submitted yet"
    return f"{words}; Ctrl-C stops Tilewatch"


def describe(row: submissions.SubmissionRow) -> str:
    steps = f" {row.settled_trials} of {row.trials} configs" if row.state == "compiling" else ""
    return f"{row.reason} {short_sha(row.sha)} for {row.gpu_name}: {row.state}{steps}"
