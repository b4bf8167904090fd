"""The step "time_toolchains": times a comparison of toolchains on a GPU, in short jobs between more urgent jobs."""

from collections import defaultdict
from dataclasses import replace
from functools import partial

import structlog
from sqlalchemy.exc import SQLAlchemyError

from tilewatch import errors
from tilewatch.configs import config_key
from tilewatch.db.lifecycle.jobs import ClaimedJob, UnsentJob
from tilewatch.db.session import session
from tilewatch.db.worker_reads import winners
from tilewatch.kernels.comparing.timing_order import Timing
from tilewatch.kernels.comparing.toolchains.report_file import GpuUsed
from tilewatch.kernels.comparing.toolchains.report_verdict import list_differing
from tilewatch.kernels.comparing.toolchains.retuning import RecordedTimes
from tilewatch.kernels.comparing.toolchains.time_sides import ToolchainTimer
from tilewatch.kernels.device import GpuSpec, gpu_model
from tilewatch.kernels.library_errors import first_line
from tilewatch.kernels.measuring.pair_bench import NoCupti
from tilewatch.text import without_passwords
from tilewatch.worker.comparing.check import NO_CUPTI
from tilewatch.worker.comparing.compile_toolchains import queue_gpu_half
from tilewatch.worker.comparing.stored_report import StoredReport, find_place
from tilewatch.worker.context import Context
from tilewatch.worker.gpu.healthy_gpu import FellIll, use_gpu
from tilewatch.worker.queue import outage
from tilewatch.worker.queue.lease import Lease, LeaseLost

log = structlog.get_logger()

TURN_MINUTES = 4.0
"""The longest time of one job, in minutes, which is that of a check's job (BUDGET_S in check.py)."""


def step(job: ClaimedJob, context: Context, lease: Lease) -> list[UnsentJob]:
    stored = StoredReport(context, job, lease)
    wanted, model, report = stored.wanted, gpu_model(stored.wanted.gpus[0]), stored.report
    had_failed = report.has_passing_failures(model.slug)
    report.drop_passing_failures(model.slug)
    try:
        was_spent = _time(stored, context, model)
    except FellIll:
        stored.discard_changes()
        raise
    except (LeaseLost, SQLAlchemyError):
        raise
    except Exception as error:
        if outage.passing(error) is not None:
            raise
        was_spent = False  # the reason goes into the report, and the next GPU model is timed
        sentence = NO_CUPTI if isinstance(error, NoCupti) else errors.sentence(error)
        failed = Timing(failure=without_passwords(sentence or first_line(error)))
        log.warning("not timed further", reason=failed.failure, exc_info=sentence is None)
        report.gpus.setdefault(model.slug, GpuUsed(model.slug, model.name, "unknown"))
        for pair in list_differing(report, model.arch):
            report.frozen.setdefault((*pair.key[:2], model.slug, pair.head_name), failed)
        stored.save()
    left = wanted.minutes - report.gpus[model.slug].wall_s / 60
    # What failed may have passed by the next job. If it fails in that one too, it is given up.
    is_worth_a_try = not had_failed and report.has_passing_failures(model.slug)
    if (was_spent or is_worth_a_try) and left > 0:
        return queue_gpu_half(context, job.priority, replace(wanted, turn=wanted.turn + 1))
    return queue_gpu_half(context, job.priority, replace(wanted, gpus=wanted.gpus[1:], turn=0))


def _time(stored: StoredReport, context: Context, model: GpuSpec) -> bool:
    """Times a report's cubins for at most TURN_MINUTES. Returns whether more time is needed."""
    wanted, place = stored.wanted, find_place(context, stored.wanted, report=stored.report)
    used = stored.report.gpus.get(model.slug)
    left = wanted.minutes - (0.0 if used is None else used.wall_s / 60)
    times = partial(_read_times, context, wanted.stored_as, model) if wanted.retunes else None
    with use_gpu(context, model.slug) as own, own.backend.open_bench(own.gpu) as bench:
        timer = ToolchainTimer(place, stored.report, stored, own.gpu, bench, log.info)
        return timer.run(min(TURN_MINUTES, left), times)


def _read_times(context: Context, repository: str, model: GpuSpec) -> RecordedTimes:
    """Returns the times in us of all configs in each problem's newest sweep."""
    times: dict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
    with session(context.database_url) as opened:
        for each in winners.list_last_trials(opened, repository, model.slug):
            times[each.kernel, each.problem, model.arch][config_key(each.params)] = each.median_us
    return times
