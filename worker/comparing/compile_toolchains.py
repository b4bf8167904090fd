"""The step "compile_toolchains": compiles configs with each compared toolchain. A retry skips compiled configs."""

from dataclasses import replace

import structlog

from tilewatch.db.lifecycle import jobs, toolchain_reports
from tilewatch.db.lifecycle.jobs import ClaimedJob, UnsentJob
from tilewatch.db.session import session
from tilewatch.kernels.comparing.configs import ConfigSource
from tilewatch.kernels.comparing.targets import Selection
from tilewatch.kernels.comparing.toolchains.compile_sides import choose, compile_missing
from tilewatch.kernels.comparing.toolchains.report_verdict import list_differing
from tilewatch.kernels.device import gpu_model
from tilewatch.worker.comparing.prepare_check import list_recorded_winners
from tilewatch.worker.comparing.stored_report import StoredReport, find_place
from tilewatch.worker.context import Context
from tilewatch.worker.queue.dispatch import gpu_queue
from tilewatch.worker.queue.lease import Lease
from tilewatch.worker.queue.payloads import ToolchainsPayload, write_payload

log = structlog.get_logger()


def step(job: ClaimedJob, context: Context, lease: Lease) -> list[UnsentJob]:
    stored = StoredReport(context, job, lease)
    wanted, place = stored.wanted, find_place(context, stored.wanted)
    models = [gpu_model(slug) for slug in wanted.gpus]
    selections = tuple(Selection(wanted.archs, kernel, None) for kernel in wanted.kernels or (None,))
    first = models[0].slug if models else ""
    with session(context.database_url) as opened:
        known = list_recorded_winners(opened, wanted.stored_as, wanted.gpus)
    chosen = choose(place.library, selections, known, ConfigSource.auto, first, log.info)
    compile_missing(place, stored.report, stored, chosen, log.info)
    stored.save()
    differing = tuple(model.slug for model in models if list_differing(stored.report, model.arch))
    return queue_gpu_half(context, job.priority, replace(wanted, gpus=differing))


def queue_gpu_half(context: Context, priority: int, wanted: ToolchainsPayload) -> list[UnsentJob]:
    """Queues the next timing job of a report and returns it in a list. The list is empty if no GPU model is left."""
    if not wanted.gpus:
        return []
    slug = wanted.gpus[0]  # only one job is queued, so that no two jobs work on a report at once
    queue = gpu_queue(slug)
    with session(context.database_url) as opened:
        job_id, _ = jobs.add(
            opened,
            key=f"toolchains:{wanted.report_id}:{slug}:{wanted.turn}",
            kind="time_toolchains",
            queue=queue,
            subject=f"report {wanted.report_id}: {' and '.join(wanted.toolchains)} on {slug}",
            payload=write_payload(wanted),
            priority=priority,
        )
        toolchain_reports.change(opened, wanted.report_id, job_id=job_id)
    return [UnsentJob(job_id, queue)]
