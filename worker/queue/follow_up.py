"""The job that judges a run: queued where a run came on record, was imported, will never come, or was replayed."""

import hashlib
from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import jobs, suspicions
from tilewatch.db.lifecycle.jobs import ClaimedJob, UnsentJob
from tilewatch.db.step_queries import gpus, judging, steps
from tilewatch.db.step_queries.steps import SweepFacts
from tilewatch.text import short_sha
from tilewatch.worker.queue.dispatch import COMPILE, JUDGE, board_queue, gpu_queue


def add(
    opened: Session,
    run_id: int,
    *,
    submission_id: int | None,
    subject: str,
    priority: int,
    again: str | None = None,
) -> tuple[UnsentJob, bool]:
    """Its doorbell, and whether it is new: a run is judged once, and once more for each reason to do so `again`."""
    job_id, new = jobs.add(
        opened,
        key=f"judge:{run_id}" if again is None else f"judge:{run_id}:{again}",
        kind="judge",
        queue=JUDGE,
        subject=subject,
        payload={},
        submission_id=submission_id,
        run_id=run_id,
        priority=priority,
    )
    return UnsentJob(job_id, JUDGE), new


def judge_next(opened: Session, facts: SweepFacts, run_id: int, priority: int) -> UnsentJob:
    subject = f"{facts.kernel} {facts.problem} on {facts.gpu_model}"
    bell, _ = add(opened, run_id, submission_id=facts.submission_id, subject=subject, priority=priority)
    return bell


def judge_the_rest(opened: Session, job: ClaimedJob) -> list[UnsentJob]:
    """After a measurement that failed: it may be what the runs of its night waited for to be judged."""
    assert job.submission_id is not None
    assert job.sweep_id is not None
    if steps.find_run(opened, job.sweep_id) is not None or judging.is_measuring(opened, job.submission_id):
        return []
    run_id = judging.find_any_run(opened, job.submission_id)
    if run_id is None:
        return []
    bell, new = add(
        opened,
        run_id,
        submission_id=job.submission_id,
        subject=job.subject,
        priority=job.priority,
        again=f"after:{job.id}",
    )
    return [bell] if new else []


CODE = ("content_key", "symbol", "code_sha256", "compiler")
"""What names the machine code of a side; all None where it is still to be compiled."""

Payload = Mapping[str, Any]


def ask(opened: Session, payload: Payload, *, ready: bool, submission_id: int, priority: int) -> list[UnsentJob]:
    """Queue the job that answers a question: at once where both cubins are there, else the one that compiles."""
    kind, queue = ("confirm", _queue(payload)) if ready else ("compile", COMPILE)
    prepare, confirm = judging.job_keys(payload["key"])
    job_id, new = jobs.add(
        opened,
        key=confirm if ready else prepare,
        kind=kind,
        queue=queue,
        subject=_subject(payload),
        payload=dict(payload),
        submission_id=submission_id,
        run_id=payload["run_id"],
        total_steps=payload["launches"] if ready else 2,
        priority=priority,
    )
    return [UnsentJob(job_id, queue)] if new else []


def give_up(opened: Session) -> None:
    """End what was asked of a GPU that is gone: its night waits for nothing else."""
    for job in gpus.list_stranded_jobs(opened):
        jobs.cancel(opened, [job.id])
        judge_again(opened, job.payload, job.submission_id, job.priority)


def judge_again(opened: Session, payload: Payload, submission_id: int | None, priority: int) -> list[UnsentJob]:
    """When nothing of the round is left to be answered: a judge job for the run that asked, once per round."""
    suspicions.lock_run(opened, payload["run_id"])
    if judging.is_any_pending(opened, payload["round"]):
        return []
    asked = hashlib.sha256("\n".join(payload["round"]).encode()).hexdigest()[:16]
    bell, new = add(
        opened,
        payload["run_id"],
        submission_id=submission_id,
        subject=_subject(payload),
        priority=priority,
        again=asked,
    )
    return [bell] if new else []


def _queue(payload: Payload) -> str:
    """Of the GPU that is asked about, or else of whichever is free."""
    board = payload.get("board")
    return gpu_queue(payload["gpu_model"]) if board is None else board_queue(payload["gpu_model"], board)


def _subject(payload: Payload) -> str:
    good, bad = short_sha(payload["good"]["sha"]), short_sha(payload["bad"]["sha"])
    where = payload["gpu_model"] if payload.get("host") is None else f"{payload['gpu_model']} of {payload['host']}"
    return f"{payload['kernel']} {payload['problem']} on {where}: replay {good} beside {bad}"
