"""The compile step: compiles a submission's configs and attaches the compilations to the trials that wait for them."""

import itertools
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy.orm import Session

from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import jobs
from tilewatch.db.lifecycle.jobs import ClaimedJob, UnsentJob
from tilewatch.db.session import session
from tilewatch.db.worker_reads import steps
from tilewatch.db.worker_reads.steps import UnmeasuredCode
from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.kernels.results import Compiled, is_final
from tilewatch.worker import metrics
from tilewatch.worker.context import Context
from tilewatch.worker.git import watched
from tilewatch.worker.queue.dispatch import COMPILE, TRACE_QUEUE
from tilewatch.worker.queue.lease import Lease
from tilewatch.worker.queue.payloads import CompilePayload, read_payload, write_payload
from tilewatch.worker.steps.compiler import compile_each, compile_finally, open_compiler

BATCH = 10
"""The most configs in a batch. A batch takes half a minute, so that a killed worker loses little work."""

CHUNK = 3
"""The number of configs that each thread compiles between two writes to the database, which show the progress."""


def step(job: ClaimedJob, context: Context, lease: Lease) -> list[UnsentJob]:
    payload = read_payload(CompilePayload, job.payload)
    if payload.items is None:
        return _plan_batches(job, payload, context)
    if job.queue == TRACE_QUEUE:
        return _trace_batch(job, payload, payload.items, context, lease)
    return _compile_batch(job, payload, payload.items, context, lease)


def _plan_batches(job: ClaimedJob, payload: CompilePayload, context: Context) -> list[UnsentJob]:
    assert job.submission_id is not None
    compiler = open_compiler(context, payload.toolchain)
    with session(context.database_url) as opened:
        wanted = steps.list_unmeasured(opened, job.submission_id, payload.kernel)
        keys = [each.code_key for each in wanted]
        usable = _find_usable(opened, keys, compiler, context.store_url)
    attach_in_parts(context.database_url, compiler.version, job.submission_id, [key for key in keys if key in usable])
    with session(context.database_url) as opened:
        queued: list[UnsentJob] = []
        missing = [each for each in wanted if each.code_key not in usable]
        metrics.COMPILE_CACHE.labels("hit").inc(len(wanted) - len(missing))
        metrics.COMPILE_CACHE.labels("miss").inc(len(missing))
        for number, batch in enumerate(split(missing)):
            job_id, new = jobs.add(
                opened,
                key=f"{job.key}:batch{number}",
                kind="compile",
                queue=COMPILE,
                subject=f"{job.subject}, batch {number + 1}",
                payload=write_payload(replace(payload, items=tuple(batch))),
                submission_id=job.submission_id,
                total_steps=len(batch),
                priority=job.priority,
            )
            if not new:
                break  # an earlier attempt queued all batches, in one transaction
            queued.append(UnsentJob(job_id, COMPILE))
        return queued


def attach_in_parts(database_url: str, compiler: str, submission_id: int, code_keys: Sequence[str]) -> None:
    """Links stored compilations to the trials that wait for them, in the order of `code_keys`."""
    for part in fact_writes.in_parts(code_keys):
        with session(database_url) as opened:
            fact_writes.attach_compilations(opened, compiler=compiler, submission_id=submission_id, code_keys=part)


def split(items: Sequence[UnmeasuredCode]) -> list[list[UnmeasuredCode]]:
    """Splits configs into batches that take about equally long."""
    batches: list[list[UnmeasuredCode]] = [[]]
    for _, group in itertools.groupby(items, key=lambda each: each.problem):
        of_problem = list(group)
        if len(batches[-1]) + len(of_problem) <= BATCH:
            batches[-1] += of_problem
            continue
        count = -(-len(of_problem) // BATCH)
        batches += [of_problem[number::count] for number in range(count)]
    return [batch for batch in batches if batch]


def _compile_batch(
    job: ClaimedJob, payload: CompilePayload, items: Sequence[UnmeasuredCode], context: Context, lease: Lease
) -> list[UnsentJob]:
    assert job.submission_id is not None
    compiler = open_compiler(context, payload.toolchain)
    library = watched.library_at(context, payload.repository, payload.sha, payload.library)
    with session(context.database_url) as opened:
        keys = [item.code_key for item in items]
        usable = _find_usable(opened, keys, compiler, context.store_url)
    rows: list[dict[str, Any]] = []

    def write(code_keys: Collection[str]) -> None:
        with session(context.database_url) as opened:
            fact_writes.add_compilations(opened, rows)
            fact_writes.attach_compilations(
                opened, compiler=compiler.version, submission_id=job.submission_id, code_keys=code_keys
            )
        rows.clear()

    def compile_one(item: UnmeasuredCode) -> Compiled:
        what = (library, payload.kernel, item.problem, item.params, payload.arch)
        return compile_finally(
            context, payload.toolchain, lambda compiler: compiler.compile(*what, code_key=item.code_key)
        )

    missing = [item for item in items if item.code_key not in usable]
    lease.progress(len(items) - len(missing))
    compiled_items = compile_each(compile_one, missing, context.compile_threads)
    for done, (item, compiled) in enumerate(compiled_items, 1 + len(items) - len(missing)):
        lease.progress(done)
        metrics.COMPILE_SECONDS.labels(compiled.status).observe(compiled.compile_s)
        rows.append(compiled.make_row(item.code_key, context.node))
        if len(rows) >= CHUNK * context.compile_threads:
            write([row["code_key"] for row in rows])
    lease.progress(len(items))
    write(keys)
    return []


def _trace_batch(
    job: ClaimedJob, payload: CompilePayload, items: Sequence[UnmeasuredCode], context: Context, lease: Lease
) -> list[UnsentJob]:
    """Stores the bytecode of a batch's configs, and queues the batch for any compile worker."""
    compiler = open_compiler(context, payload.toolchain)
    library = watched.library_at(context, payload.repository, payload.sha, payload.library)
    for done, item in enumerate(items):
        lease.progress(done)
        what = (library, payload.kernel, item.problem, item.params, payload.arch)
        compiler.trace(*what, code_key=item.code_key, compiler=payload.compiler)
    with session(context.database_url) as opened:
        job_id, _ = jobs.add(
            opened,
            key=f"{job.key}:recorded",
            kind="compile",
            queue=COMPILE,
            subject=job.subject,
            payload=job.payload,
            submission_id=job.submission_id,
            total_steps=job.total_steps,
            priority=job.priority,
        )
    return [UnsentJob(job_id, COMPILE)]


def _find_usable(opened: Session, keys: Sequence[str], compiler: Compiler, store_url: str) -> set[str]:
    """Returns the keys of configs that need no compiling, because their cubin or failure is stored."""
    cubins = steps.read_compiled_keys(opened, keys, compiler.version, compiler.limit_s)
    outcomes = CubinStore(store_url).outcomes({cubin for cubin in cubins.values() if cubin is not None})
    final = {cubin for cubin, outcome in outcomes.items() if is_final(outcome, compiler.limit_s)}
    return {key for key, cubin in cubins.items() if cubin is None or cubin in final}
