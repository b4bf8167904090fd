"""The compilers' half of a comparison of two toolchains. A killed worker's successor goes on where it stopped."""

import structlog

from tilewatch.db.lifecycle import jobs, toolchain_reports
from tilewatch.db.lifecycle.jobs import ClaimedJob, UnsentJob
from tilewatch.db.session import session
from tilewatch.db.worker_reads import winners
from tilewatch.kernels.comparing.configs import ConfigSource, RecordedWinner
from tilewatch.kernels.comparing.targets import Selection
from tilewatch.kernels.comparing.toolchains.comparison import StaticWanted, compile_missing
from tilewatch.kernels.comparing.toolchains.report_verdict import list_differing
from tilewatch.kernels.device import gpu_model
from tilewatch.worker.comparing.stored_report import StoredReport, find_place
from tilewatch.worker.context import Context
from tilewatch.worker.queue.dispatch import gpu_queue
from tilewatch.worker.queue.lease import Lease

log = structlog.get_logger()


def step(job: ClaimedJob, context: Context, lease: Lease) -> list[UnsentJob]:
    stored, place, wanted = StoredReport(context, job, lease), find_place(context, job), job.payload
    models = [gpu_model(slug) for slug in wanted["gpus"]]
    selections = tuple(Selection(tuple(wanted["archs"]), kernel, None) for kernel in wanted["kernels"] or (None,))
    first = models[0].slug if models else ""
    known = _list_winners(context, wanted["stored_as"], wanted["gpus"])
    static = StaticWanted(selections, known, ConfigSource.auto, first, context.compile_limit_s)
    compile_missing(place, stored.report, stored, static, log.info)
    stored.save()
    differing = [model.slug for model in models if list_differing(stored.report, model.arch)]
    return queue_gpu_half(context, job, stored.id, differing)


def queue_gpu_half(
    context: Context, job: ClaimedJob, report_id: int, gpus: list[str], *, turn: int = 0
) -> list[UnsentJob]:
    """Queues the next job on the first of these GPU models; no job if there is none left. One job at a time makes a
    report."""
    if not gpus:
        return []
    queue = gpu_queue(gpus[0])
    with session(context.database_url) as opened:
        job_id, _ = jobs.add(
            opened,
            key=f"toolchains:{report_id}:{gpus[0]}:{turn}",
            kind="time_toolchains",
            queue=queue,
            subject=f"report {report_id}: {job.payload['a']} and {job.payload['b']} on {gpus[0]}",
            payload={**job.payload, "gpus": gpus, "turn": turn},
            priority=job.priority,
        )
        toolchain_reports.write_job(opened, report_id, job_id)
    return [UnsentJob(job_id, queue)]


def _list_winners(context: Context, repository: str, gpus: list[str]) -> tuple[RecordedWinner, ...]:
    """Lists what won last in this database, on each of the GPU models."""
    with session(context.database_url) as opened:
        return tuple(
            RecordedWinner(each.kernel, each.problem, slug, gpu_model(slug).arch, (each.params,), each.finished_at)
            for slug in gpus
            for each in winners.list_last_winners(opened, repository, slug)
        )
