"""Prints `tilewatch status`, as tables or as JSON."""

import time

from rich.console import Group, RenderableType
from rich.live import Live

from tilewatch.db.models import OPEN_JOB
from tilewatch.db.page_reads import queue
from tilewatch.db.page_reads.gpu_health import QuarantineRow
from tilewatch.db.page_reads.queue import JobRow, Status
from tilewatch.db.page_reads.submissions import SubmissionRow
from tilewatch.db.session import reading_session
from tilewatch.text import short_sha
from tilewatch.worker.cli.tables import Terminal, new_table, print_answer

REFRESH_S = 2.0


def show(database_url: str, *, as_json: bool, follow: bool) -> None:
    """Prints the status. If `follow`, prints it again until no job is left or until Ctrl-C."""
    now = _read(database_url)
    if as_json or not follow:
        return print_answer(now, _draw, as_json=as_json)
    with Live(_draw(now), console=Terminal(), auto_refresh=False) as live:
        try:
            while any(count.state in OPEN_JOB for count in now.jobs):
                time.sleep(REFRESH_S)
                now = _read(database_url)
                live.update(_draw(now), refresh=True)
        except KeyboardInterrupt:
            return


def _read(database_url: str) -> Status:
    with reading_session(database_url) as opened:
        return queue.read_status(opened)


def _draw(status: Status) -> RenderableType:
    several = len({row.repository for row in status.submissions}) > 1
    of = ["repository"] if several else []
    running = ((job.id, job.kind, job.subject, _write_done(job), job.owner) for job in status.running)
    put_off = ((job.id, job.kind, job.subject, _write_next(job), job.trouble) for job in status.put_off)
    failed = ((job.id, job.state, job.kind, job.subject, job.failure) for job in status.failed)
    quarantines = (
        (f"{row.gpu_model} {row.gpu_uuid}", row.host, f"{row.began_at:%m-%d %H:%M}", row.reason, _write_canaries(row))
        for row in status.quarantines
    )
    workers = ((row.name, row.gpu_model or ", ".join(row.queues), row.doing or "nothing") for row in status.workers)
    environments = ((row.host, row.repository, row.environment) for row in status.environments)
    submissions = (_list_cells(row, several=several) for row in status.submissions)
    tables = (
        new_table("", "submission", *of, "GPU", "commit", "state", "configs compiled", "runs", rows=submissions),
        new_table("job", "running", "", "done", "worker", rows=running),
        new_table("job", "put off", "", "tried again", "why", rows=put_off),
        new_table("job", "ended", "", "", "why", rows=failed),
        new_table("GPU in quarantine", "", "since", "why", "canaries", rows=quarantines),
        new_table("worker", "takes", "doing", rows=workers),
        new_table("node", "repository", "recorded there by", rows=environments),
    )
    parts: list[RenderableType] = [part for table in tables if table.row_count for part in (table, "")]
    counts = ", ".join(f"{count.jobs} {count.kind} {count.state}" for count in status.jobs)
    return Group(*parts, counts or "no job was ever submitted; `tilewatch submit nightly` submits the first")


def _list_cells(row: SubmissionRow, *, several: bool) -> list[object]:
    night = f"nightly {row.night}" if row.night else row.reason
    commit, compiled = f"{short_sha(row.sha)} {row.subject}", f"{row.settled_trials} of {row.trials}"
    return [row.id, night, *([row.repository] if several else []), row.gpu_name, commit, row.state, compiled, row.runs]


def _write_done(job: JobRow) -> str:
    return f"{job.done_steps} of {job.total_steps}" if job.total_steps else ""


def _write_next(job: JobRow) -> str:
    return f"from {job.not_before:%H:%M:%S}" if job.not_before else "next"


def _write_canaries(row: QuarantineRow) -> str:
    return f"{row.canaries}, the last: {row.canary_said}" if row.canaries else "none yet"
