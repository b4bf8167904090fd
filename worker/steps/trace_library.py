"""The record step: plans a submission whose host code cannot run on the machine that submitted it."""

from dataclasses import asdict, dataclass
from pathlib import Path

import structlog
from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import jobs
from tilewatch.db.lifecycle.jobs import ClaimedJob, UnsentJob
from tilewatch.db.repository_names import is_branch
from tilewatch.db.session import session
from tilewatch.db.worker_reads import gpus, tried_configs
from tilewatch.kernels import device
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.catalog.catalog import LibraryPlans
from tilewatch.kernels.catalog.share import KEY_LENGTH, SHORT_LISTS_ALONE, WIDE, Shares, Tried
from tilewatch.kernels.device import GpuSpec
from tilewatch.kernels.library_errors import LibraryError
from tilewatch.kernels.results import Plan
from tilewatch.worker.context import Context
from tilewatch.worker.git import watched
from tilewatch.worker.queue.dispatch import TRACE_QUEUE
from tilewatch.worker.queue.lease import Lease
from tilewatch.worker.steps.write_plans import PlannedSubmission, write_plans

log = structlog.get_logger()


@dataclass(frozen=True)
class PlansWanted:
    """The part of a library to submit: a kernel, a problem, or all. A `wide` sweep tries the whole space."""

    kernel: str | None
    problem: str | None
    kernels: tuple[str, ...] | None
    wide: bool = False
    night: str | None = None

    def has(self, plan: Plan) -> bool:
        return self.kernels is None or plan.kernel in self.kernels

    def read(self, database_url: str, library: Path, repository: str, model: GpuSpec) -> LibraryPlans:
        """Returns the plans for a GPU model. Raises the errors of `read_library`."""
        shares = WIDE if self.wide else SHORT_LISTS_ALONE
        if self.night is not None:
            with session(database_url) as opened:
                shares = read_shares(opened, repository, model.slug, self.night)
        return catalog.read_library(library, arch=model.arch, kernel=self.kernel, problem=self.problem, shares=shares)


def read_shares(session: Session, repository: str, gpu_model: str, day: str) -> Shares:
    """Returns the configs that earlier nights tried, for each series of a repository."""
    drivers, compilers = gpus.list_versions(session, gpu_model)
    series = {}
    for names, found in tried_configs.list_tried(session, repository, gpu_model).items():
        has_driver = not drivers or found.driver in {each.split(".")[0] for each in drivers}
        is_known = any(found.compiler.startswith(f"{each} ") for each in compilers)
        has_compiler = not compilers or is_known or is_branch(repository)  # a toolchain of its own compiles branches
        keys = {sha256[:KEY_LENGTH]: is_near for sha256, is_near in found.near.items()}
        source = found.source_sha256 if has_driver and has_compiler else ""
        series[names] = Tried(list(keys), [key for key in keys if keys[key]], found.kept, source, found.has_changed)
    return Shares(day, series)


def add_job(opened: Session, submission: PlannedSubmission, wanted: PlansWanted, subject: str) -> UnsentJob:
    job_id, _ = jobs.add(
        opened,
        key=f"{submission.key}:record",
        kind="record",
        queue=TRACE_QUEUE,
        subject=subject,
        payload={"submission": asdict(submission), "wanted": asdict(wanted)},
        submission_id=submission.submission_id,
        priority=submission.priority,
    )
    return UnsentJob(job_id, TRACE_QUEUE)


def step(job: ClaimedJob, context: Context, lease: Lease) -> list[UnsentJob]:
    submission, wanted = PlannedSubmission(**job.payload["submission"]), PlansWanted(**job.payload["wanted"])
    library = watched.library_at(context, submission.repository, submission.sha, submission.library)
    model = device.gpu_model(submission.gpu_model)
    reading = wanted.read(context.database_url, library, submission.repository, model)
    lease.progress()
    for failure in reading.failures:
        log.warning("left out", reason=failure)
    plans = list(filter(wanted.has, reading.plans))
    if not plans:
        raise LibraryError("; ".join(("nothing is left to sweep", *reading.failures)))
    with session(context.database_url) as opened:
        return write_plans(opened, submission, plans)
