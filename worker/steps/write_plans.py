"""Writes the sweeps, trials and jobs of a submission."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from tilewatch.configs import config_sha256
from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import jobs
from tilewatch.db.lifecycle.jobs import UnsentJob
from tilewatch.kernels import device, tile_table
from tilewatch.kernels.results import Plan
from tilewatch.text import short_sha
from tilewatch.worker.queue.dispatch import COMPILE, gpu_queue
from tilewatch.worker.queue.payloads import CompilePayload, MeasurePayload, write_payload


@dataclass(frozen=True)
class PlannedSubmission:
    """A submission to write. The keys of its jobs begin with its `key`. `measure` is False if no GPU will measure."""

    key: str
    submission_id: int
    commit_id: int
    repository: str
    sha: str
    library: str
    words: str
    gpu_model: str
    measure: bool
    priority: int
    toolchain: str | None = None


def write_plans(opened: Session, submission: PlannedSubmission, plans: Sequence[Plan]) -> list[UnsentJob]:
    """Writes plans, the largest sweeps first, and returns the jobs to send. A second call changes nothing."""
    plans = sorted(plans, key=lambda plan: -len(plan.trials))
    for plan in plans:
        sweep_id = _write_sweep(opened, submission, plan)
        if submission.measure:
            ships = None if plan.ships is None else dict(plan.ships)
            payload = MeasurePayload(submission.library, tuple(plan.baselines), ships, submission.toolchain)
            jobs.add(
                opened,
                key=f"{submission.key}:measure:{plan.kernel}:{plan.problem}",
                kind="measure",
                queue=gpu_queue(submission.gpu_model),
                subject=f"{plan.kernel} {plan.problem}{submission.words} on {submission.gpu_model}",
                payload=write_payload(payload),
                submission_id=submission.submission_id,
                sweep_id=sweep_id,
                state="waiting",
                priority=submission.priority,
            )
    return _compile_jobs(opened, submission, plans)


def _write_sweep(opened: Session, submission: PlannedSubmission, plan: Plan) -> int:
    """Writes a sweep with its configs and waiting trials. Returns the sweep's id."""
    ids = fact_writes.add_configs(opened, [trial.config for trial in plan.trials])
    listed = [ids[config_sha256(trial.config)] for trial in plan.listed]
    sweep_id = fact_writes.add_sweep(
        opened,
        submission_id=submission.submission_id,
        commit_id=submission.commit_id,
        kernel=plan.kernel,
        problem=plan.problem,
        gpu_model=submission.gpu_model,
        arch=plan.arch,
        source_sha256=plan.source_sha256,
        space=tile_table.stored_space(plan, submission.gpu_model)
        | ({"rest": plan.rest, "listed": listed} if plan.rest else {}),
        space_size=len(plan.trials),
        flops=plan.flops,
        bytes=plan.bytes,
        parts_of=plan.parts_of,
    )
    planned = [(ids[config_sha256(trial.config)], trial.code_key) for trial in plan.trials]
    fact_writes.add_trials(opened, {sweep_id: planned})
    return sweep_id


def _compile_jobs(opened: Session, submission: PlannedSubmission, plans: Sequence[Plan]) -> list[UnsentJob]:
    """Adds a compile job for each kernel, and returns the jobs to send."""
    arch = device.gpu_model(submission.gpu_model).arch
    queued = []
    for kernel in dict.fromkeys(plan.kernel for plan in plans):
        payload = CompilePayload(
            submission.repository, submission.sha, submission.library, kernel, arch, submission.toolchain
        )
        job_id, _ = jobs.add(
            opened,
            key=f"{submission.key}:compile:{kernel}",
            kind="compile",
            queue=COMPILE,
            subject=f"{kernel}{submission.words} for {submission.gpu_model} ({arch}) at {short_sha(submission.sha)}",
            payload=write_payload(payload),
            submission_id=submission.submission_id,
            priority=submission.priority,
        )
        queued.append(UnsentJob(job_id, COMPILE))
    return queued
