"""Prints `tilewatch status`, as tables or as JSON, from db/page_reads/queue.py."""

import json
import time
from dataclasses import asdict

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table

from tilewatch.db.models import OPEN_JOB
from tilewatch.db.page_reads import queue
from tilewatch.db.page_reads.queue import Status
from tilewatch.db.session import session
from tilewatch.text import short_sha
from tilewatch.worker.cli.tables import Terminal, new_table, show

REFRESH_S = 2.0


def as_json(database_url: str) -> str:
    return json.dumps(asdict(_status(database_url)), default=str)


def once(database_url: str) -> None:
    show(_drawn(_status(database_url)))


def follow(database_url: str) -> None:
    """Prints the tables of `tilewatch status` again and again until no job is left, or until Ctrl-C."""
    now = _status(database_url)
    with Live(_drawn(now), console=Terminal(), auto_refresh=False) as live:
        try:
            while any(count.state in OPEN_JOB for count in now.jobs):
                time.sleep(REFRESH_S)
                now = _status(database_url)
                live.update(_drawn(now), refresh=True)
        except KeyboardInterrupt:
            return


def _status(database_url: str) -> Status:
    with session(database_url) as opened:
        return queue.read_status(opened)


def _drawn(status: Status) -> RenderableType:
    tables = [_submissions(status), _running(status), _put_off(status), _failed(status)]
    tables += [_quarantines(status), _workers(status)]
    parts: list[RenderableType] = [part for table in tables if table.row_count for part in (table, "")]
    return Group(*parts, _counts(status))


def _submissions(status: Status) -> Table:
    several = len({row.repository for row in status.submissions}) > 1
    of = ["repository"] if several else []
    table = new_table("", "submission", *of, "GPU", "commit", "state", "configs compiled", "runs")
    for row in status.submissions:
        compiled = f"{row.settled_trials} of {row.trials}"
        night = f"nightly {row.night}" if row.night else row.reason
        where = [row.repository] if several else []
        commit = f"{short_sha(row.sha)} {row.subject}"
        table.add_row(str(row.id), night, *where, row.gpu_name, commit, row.state, compiled, str(row.runs))
    return table


def _running(status: Status) -> Table:
    table = new_table("job", "running", "", "done", "worker")
    for job in status.running:
        done = f"{job.done_steps} of {job.total_steps}" if job.total_steps else ""
        table.add_row(str(job.id), job.kind, job.subject, done, job.owner)
    return table


def _put_off(status: Status) -> Table:
    table = new_table("job", "put off", "", "tried again", "why")
    for job in status.put_off:
        at = f"from {job.not_before:%H:%M:%S}" if job.not_before else "next"
        table.add_row(str(job.id), job.kind, job.subject, at, job.trouble)
    return table


def _failed(status: Status) -> Table:
    table = new_table("job", "ended", "", "", "why")
    for job in status.failed:
        table.add_row(str(job.id), job.state, job.kind, job.subject, job.failure)
    return table


def _quarantines(status: Status) -> Table:
    table = new_table("GPU in quarantine", "", "since", "why", "canaries")
    for row in status.quarantines:
        tried = f"{row.canaries}, the last: {row.canary_said}" if row.canaries else "none yet"
        table.add_row(f"{row.gpu_model} {row.gpu_uuid}", row.host, f"{row.began_at:%m-%d %H:%M}", row.reason, tried)
    return table


def _workers(status: Status) -> Table:
    table = new_table("worker", "takes", "doing")
    for worker in status.workers:
        table.add_row(worker.name, worker.gpu_model or ", ".join(worker.queues), worker.doing or "nothing")
    return table


def _counts(status: Status) -> str:
    if not status.jobs:
        return "no job was ever submitted; `tilewatch submit nightly` submits the first"
    return ", ".join(f"{count.jobs} {count.kind} {count.state}" for count in status.jobs)
