"""The step "prepare_check": finds and compiles operators whose code changed, and queues a timing job for each."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sqlalchemy.orm import Session

from tilewatch import processes
from tilewatch.db.lifecycle import checks, jobs
from tilewatch.db.lifecycle.jobs import ClaimedJob, UnsentJob
from tilewatch.db.page_reads.checks import CheckRow, find_check
from tilewatch.db.session import session
from tilewatch.db.worker_reads import winners
from tilewatch.kernels.comparing.changes import Changed, Comparison, find_changed
from tilewatch.kernels.comparing.configs import ConfigSource, RecordedWinner
from tilewatch.kernels.comparing.outcome import Outcome
from tilewatch.kernels.comparing.targets import Library, Selection, Target, list_targets
from tilewatch.kernels.comparing.verdict import MOST_LAUNCHES
from tilewatch.kernels.compiling.compiler_pool import CompilerPool
from tilewatch.kernels.device import gpu_model
from tilewatch.kernels.library_errors import LibraryError
from tilewatch.text import short_sha
from tilewatch.worker.context import Context
from tilewatch.worker.git import watched
from tilewatch.worker.queue.dispatch import gpu_queue
from tilewatch.worker.queue.lease import Lease
from tilewatch.worker.queue.payloads import CheckPayload, PrepareCheckPayload, read_payload, write_payload

COMPILERS = min(4, processes.count_cores())
"""The number of compiler processes of a comparison. It is small because the worker already runs one per core."""


def step(job: ClaimedJob, context: Context, lease: Lease) -> list[UnsentJob]:
    assert job.check_id is not None
    with session(context.database_url) as opened:
        if checks.is_prepared(opened, job.check_id):
            return []
        story = find_check(opened, job.check_id)
        assert story is not None
        last = list_recorded_winners(opened, story.check.repository, [story.check.gpu_model])
    asked = read_payload(PrepareCheckPayload, job.payload)
    base, head = (
        Library(short_sha(sha), watched.library_at(context, asked.repository, sha, asked.library))
        for sha in (story.check.base_sha, story.check.head_sha)
    )
    targets = list_targets(base, head, Selection((story.check.arch,), story.check.kernel), needs_packages=True)
    if story.check.kernel is None and asked.kernels is not None:
        targets = tuple(each for each in targets if each.kernel in asked.kernels or each.is_left_out)
        if not targets:  # nothing compared must not look like nothing changed
            named = ", ".join(asked.kernels)
            raise LibraryError(f"there is no kernel to compare: neither commit has {named} (TILEWATCH_KERNELS)")
    lease.progress()
    with CompilerPool(context.store_url, jobs=COMPILERS, limit_s=context.compile_limit_s) as pool:
        comparison = Comparison(base, head, story.check.gpu_model, pool, lambda: last, may_race=False)
        changed = {each.target: each for each in find_changed(comparison, targets)}
    lease.progress()
    rows = [_row(comparison, target, changed.get(target)) for target in targets]
    with session(context.database_url) as opened:
        waiting = checks.write_prepared(opened, job.check_id, rows)
        return [_add_job(opened, job.priority, asked, story.check, *each) for each in waiting]


def list_recorded_winners(opened: Session, repository: str, gpus: Iterable[str]) -> list[RecordedWinner]:
    """Lists the last winner of each kernel and problem of a repository on each of these GPU models."""
    return [
        RecordedWinner(each.kernel, each.problem, slug, gpu_model(slug).arch, (each.params,), each.finished_at)
        for slug in gpus
        for each in winners.list_last_winners(opened, repository, slug)
    ]


def _row(comparison: Comparison, target: Target, changed: Changed | None) -> dict[str, Any]:
    """Returns an operator's row for the database: its outcome if nothing needs to be timed, else the cubins to time."""
    outcome = comparison.outcomes[target] if changed is None else changed.outcome()
    if outcome.kind == "neither" and outcome.config_source == ConfigSource.shipped:  # so nothing was compared
        why = f"no config of it has won here, and the one that ships compiles on neither side: {outcome.reason}"
        outcome = replace(outcome, kind="failed", reason=why)
    row = _describe(outcome)
    if changed is None:
        ended = {"kind": outcome.kind, "reason": outcome.reason, "sentence": outcome.sentence}
        row |= {**ended, "is_unsure": outcome.is_unsure}
    else:
        row["kind"] = None
        for side, code in (("base", changed.base[0]), ("head", changed.head[0])):
            assert code.cubin is not None
            row |= {f"{side}_content_key": code.cubin.content_key, f"{side}_symbol": code.cubin.symbol}
    return row


def _describe(outcome: Outcome) -> dict[str, Any]:
    return {
        "kernel": outcome.kernel,
        "problem": outcome.problem,
        "moved": list(outcome.moved),
        "config_source": outcome.config_source,
        "base_config": None if outcome.base_config is None else dict(outcome.base_config),
        "head_config": None if outcome.head_config is None else dict(outcome.head_config),
    }


def _add_job(
    opened: Session,
    priority: int,
    asked: PrepareCheckPayload,
    check: CheckRow,
    operator_id: int,
    kernel: str,
    problem: str,
) -> UnsentJob:
    queue = gpu_queue(check.gpu_model)
    job_id, _ = jobs.add(
        opened,
        key=f"check:{check.id}:{kernel}:{problem}",
        kind="check",
        queue=queue,
        subject=f"check {check.id}: {kernel} {problem} on {check.gpu_model}",
        payload=write_payload(CheckPayload(operator_id, asked.repository, asked.library)),
        check_id=check.id,
        total_steps=MOST_LAUNCHES,
        priority=priority,
    )
    return UnsentJob(job_id, queue)
