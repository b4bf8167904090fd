"""Every read: one function, one question, rows as frozen dataclasses. Nothing here writes, caches or draws.

Ages and "is this worker alive" are computed with the database's clock, because the reader's may differ.
"""

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Label, Select, Subquery, case, func, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session, aliased

from db.models import (
    Commit,
    Compilation,
    Config,
    GpuModel,
    Job,
    Measurement,
    Recording,
    Run,
    Submission,
    Sweep,
    Trial,
    Verdict,
    Worker,
)

WORKER_ALIVE_S = 60
"""A worker says it is here every few seconds; one that was silent this long is not counted on."""

OPEN_JOB = ("waiting", "queued", "running")
FAILED_JOB = ("failed", "poison")
OPEN_JOB_COUNTS = ("open_compile_jobs", "open_measure_jobs", "running_measure_jobs", "open_judge_jobs")
IN_PROGRESS = ("compiling", "waiting for a GPU", "measuring", "judging")


@dataclass(frozen=True)
class JobCount:
    kind: str
    state: str
    jobs: int


@dataclass(frozen=True)
class JobRow:
    id: int
    kind: str
    queue: str
    state: str
    subject: str
    done_steps: int
    total_steps: int
    attempt: int
    priority: int
    not_before: dt.datetime | None
    trouble: str | None
    owner: str | None
    failure: str | None
    trace: str | None
    created_at: dt.datetime
    started_at: dt.datetime | None
    finished_at: dt.datetime | None


@dataclass(frozen=True)
class WorkerRow:
    name: str
    kind: str
    host: str
    gpu_model: str | None
    gpu_uuid: str | None
    doing: str | None
    seen_at: dt.datetime
    silent_s: float
    alive: bool


@dataclass(frozen=True)
class SubmissionRow:
    """A submission and how far it is. `settled_trials` no longer wait for their compilation."""

    id: int
    reason: str
    night: dt.date | None
    gpu_model: str
    gpu_name: str
    sha: str
    subject: str
    measure: bool
    requested_at: dt.datetime
    machine: str | None
    recorded_at: dt.datetime | None
    sweeps: int
    trials: int
    settled_trials: int
    not_compiled: int
    runs: int
    failed_jobs: int
    state: str


@dataclass(frozen=True)
class QueueRow:
    """The unfinished jobs of one queue, and how many live workers take from it."""

    queue: str
    waiting: int
    queued: int
    running: int
    workers: int


@dataclass(frozen=True)
class Status:
    jobs: tuple[JobCount, ...]
    running: tuple[JobRow, ...]
    put_off: tuple[JobRow, ...]
    failed: tuple[JobRow, ...]
    submissions: tuple[SubmissionRow, ...]
    workers: tuple[WorkerRow, ...]


@dataclass(frozen=True)
class LatestRow:
    """The newest kernel measurement of a series, and the one of the commit before it on the same kind of record."""

    kernel: str
    problem: str
    gpu_model: str
    gpu_name: str
    origin: str
    machine: str
    measured_at: dt.datetime
    sha: str
    subject: str
    median_us: float
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    flops: int
    verdict: str | None
    previous_sha: str | None
    previous_us: float | None
    previous_ratio: float | None


@dataclass(frozen=True)
class SeriesRow:
    kernel: str
    problem: str
    gpu_model: str
    gpu_name: str
    runs: int


@dataclass(frozen=True)
class PointRow:
    """One implementation in one run: a point of a trend."""

    run_id: int
    sha: str
    position: int
    subject: str
    committed_at: dt.datetime
    origin: str
    machine: str
    measured_at: dt.datetime
    board: str
    timer: str
    toolchain: dict[str, Any]
    toolchain_sha256: str
    implementation: str
    role: str
    params: dict[str, Any] | None
    samples: int
    median_us: float
    low_us: float
    high_us: float
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    detail: dict[str, Any]
    flops: int
    bytes: int
    fp8_tflops: float | None
    bandwidth_gbps: float | None
    verdict: str | None
    change: float | None
    reason: str | None


@dataclass(frozen=True)
class SweepRow:
    id: int
    kernel: str
    problem: str
    gpu_model: str
    gpu_name: str
    arch: str
    sha: str
    position: int
    subject: str
    reason: str
    night: dt.date | None
    measure: bool
    requested_at: dt.datetime
    machine: str | None
    axes: list[list[Any]]
    space_size: int
    flops: int
    bytes: int


@dataclass(frozen=True)
class TrialRow:
    """One config of a sweep with what is known of it; the remarks are read one trial at a time (they are long)."""

    id: int
    config_id: int
    params: dict[str, Any]
    status: str
    failure: str | None
    median_us: float | None
    error: float | None
    compile_status: str | None
    registers: int | None
    stack_bytes: int | None
    shared_bytes: int | None
    code_bytes: int | None
    compile_s: float | None
    tma_loads: int | None
    loads: int | None
    tensor_core_mmas: int | None
    mmas: int | None


@dataclass(frozen=True)
class MeasuredRow:
    """What one run of a sweep put on record for one implementation."""

    run_id: int
    origin: str
    machine: str
    board: str
    measured_at: dt.datetime
    timer: str
    sweep_gpu_s: float
    tie: list[int]
    implementation: str
    role: str
    config_id: int | None
    params: dict[str, Any] | None
    samples: int
    median_us: float
    low_us: float
    high_us: float
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    detail: dict[str, Any]


Made = TypeVar("Made")
Question = Select[*tuple[Any, ...]]


def status(session: Session) -> Status:
    """Where everything stands now, for `tilewatch status`."""
    return Status(
        jobs=tuple(job_counts(session)),
        running=tuple(jobs(session, states=("running",))),
        put_off=tuple(job for job in jobs(session, states=("queued",)) if job.trouble is not None),
        failed=tuple(jobs(session, states=FAILED_JOB, limit=5)),
        submissions=tuple(row for row in submissions(session) if row.state in IN_PROGRESS),
        workers=tuple(row for row in workers(session) if row.alive),
    )


def job_counts(session: Session) -> list[JobCount]:
    query = (
        select(Job.kind, Job.state, func.count().label("jobs"))
        .group_by(Job.kind, Job.state)
        .order_by(Job.kind, Job.state)
    )
    return _read(session, query, JobCount)


def jobs(session: Session, states: Sequence[str], limit: int = 100) -> list[JobRow]:
    """The jobs in these states, the one that moved last first."""
    moved_at = func.coalesce(Job.finished_at, Job.started_at, Job.created_at)
    columns = [getattr(Job, name) for name in JobRow.__dataclass_fields__]
    query = select(*columns).where(Job.state.in_(states)).order_by(moved_at.desc(), Job.id.desc()).limit(limit)
    return _read(session, query, JobRow)


def workers(session: Session) -> list[WorkerRow]:
    """Every worker that ever said it is here, the most recently seen first."""
    silent_s = func.extract("epoch", func.now() - Worker.seen_at)
    query = select(
        Worker.name,
        Worker.kind,
        Worker.host,
        Worker.gpu_model,
        Worker.gpu_uuid,
        Worker.doing,
        Worker.seen_at,
        silent_s.label("silent_s"),
        (silent_s <= WORKER_ALIVE_S).label("alive"),
    ).order_by(Worker.seen_at.desc(), Worker.name)
    return [WorkerRow(**{**row._asdict(), "silent_s": float(row.silent_s)}) for row in session.execute(query)]


def queues(session: Session) -> list[QueueRow]:
    """Unfinished jobs by queue, beside the live workers that take from it."""
    query = (
        select(
            Job.queue,
            func.count().filter(Job.state == "waiting").label("waiting"),
            func.count().filter(Job.state == "queued").label("queued"),
            func.count().filter(Job.state == "running").label("running"),
        )
        .where(Job.state.in_(OPEN_JOB))
        .group_by(Job.queue)
        .order_by(Job.queue)
    )
    taking: dict[str, int] = {}
    for worker in workers(session):
        if worker.alive:
            queue = f"gpu.{worker.gpu_model}" if worker.kind == "gpu" else worker.kind
            taking[queue] = taking.get(queue, 0) + 1
    return [QueueRow(**row._asdict(), workers=taking.get(row.queue, 0)) for row in session.execute(query)]


def submissions(session: Session, limit: int = 50) -> list[SubmissionRow]:
    """The newest submissions, each with its state."""
    newest = select(Submission).order_by(Submission.requested_at.desc(), Submission.id.desc()).limit(limit).subquery()
    wanted = aliased(Submission, newest)
    trials = (
        select(
            Sweep.submission_id,
            func.count(Sweep.id.distinct()).label("sweeps"),
            func.count(Trial.id).label("trials"),
            func.count(Trial.id).filter(Trial.status != "waiting").label("settled_trials"),
            func.count(Trial.id).filter(Trial.status == "not_compiled").label("not_compiled"),
        )
        .outerjoin(Trial, Trial.sweep_id == Sweep.id)
        .where(Sweep.submission_id.in_(select(newest.c.id)))
        .group_by(Sweep.submission_id)
        .subquery()
    )
    runs = (
        select(Sweep.submission_id, func.count(Run.id).label("runs"))
        .join(Run, Run.sweep_id == Sweep.id)
        .where(Sweep.submission_id.in_(select(newest.c.id)))
        .group_by(Sweep.submission_id)
        .subquery()
    )
    open_job = Job.state.in_(OPEN_JOB)
    work = (
        select(
            Job.submission_id,
            func.count().filter(Job.state.in_(FAILED_JOB)).label("failed_jobs"),
            func.count().filter(Job.state == "cancelled").label("cancelled_jobs"),
            func.count().filter(open_job, Job.kind == "compile").label("open_compile_jobs"),
            func.count().filter(open_job, Job.kind == "measure").label("open_measure_jobs"),
            func.count().filter(Job.state == "running", Job.kind == "measure").label("running_measure_jobs"),
            func.count().filter(open_job, Job.kind == "judge").label("open_judge_jobs"),
        )
        .where(Job.submission_id.in_(select(newest.c.id)))
        .group_by(Job.submission_id)
        .subquery()
    )
    query = (
        select(
            wanted.id,
            wanted.reason,
            wanted.night,
            wanted.gpu_model,
            GpuModel.name.label("gpu_name"),
            Commit.sha,
            Commit.subject,
            wanted.measure,
            wanted.requested_at,
            Recording.machine,
            Recording.recorded_at,
            *_or_zero(trials, "sweeps", "trials", "settled_trials", "not_compiled"),
            *_or_zero(runs, "runs"),
            *_or_zero(work, "failed_jobs", "cancelled_jobs", *OPEN_JOB_COUNTS),
        )
        .join(Commit, Commit.id == wanted.commit_id)
        .join(GpuModel, GpuModel.slug == wanted.gpu_model)
        .outerjoin(Recording, Recording.id == wanted.recording_id)
        .outerjoin(trials, trials.c.submission_id == wanted.id)
        .outerjoin(runs, runs.c.submission_id == wanted.id)
        .outerjoin(work, work.c.submission_id == wanted.id)
        .order_by(wanted.requested_at.desc(), wanted.id.desc())
    )
    found = []
    for row in session.execute(query):
        columns = row._asdict()
        counts = {name: columns.pop(name) for name in ("cancelled_jobs", *OPEN_JOB_COUNTS)}
        known = {
            name: columns[name] for name in ("reason", "measure", "runs", "failed_jobs", "trials", "settled_trials")
        }
        state = submission_state(**known, **counts)
        found.append(SubmissionRow(**columns, state=state))
    return found


def submission_state(
    *,
    reason: str,
    measure: bool,
    trials: int,
    settled_trials: int,
    runs: int,
    failed_jobs: int,
    cancelled_jobs: int,
    open_compile_jobs: int,
    open_measure_jobs: int,
    running_measure_jobs: int,
    open_judge_jobs: int,
) -> str:
    """One word or two for how far a submission is; work that still goes on comes before what failed beside it."""
    if reason == "recorded":
        return "recorded"
    if open_compile_jobs:
        return "compiling"
    if running_measure_jobs:
        return "measuring"
    if open_measure_jobs:
        return "waiting for a GPU"
    if open_judge_jobs:
        return "judging"
    if failed_jobs:
        return "failed"
    if cancelled_jobs:
        return "cancelled"
    if settled_trials < trials:
        return "incomplete"
    if measure and not runs:
        return "nothing measured"
    return "measured" if measure else "static facts only"


def latest(session: Session) -> list[LatestRow]:
    """The newest point of every series. A recording is compared with recordings of its machine only, what was measured
    here with what was measured here: a change of machine is not a change of the kernel."""
    machine = func.coalesce(Recording.machine, Run.host)
    record = (Sweep.kernel, Sweep.problem, Sweep.gpu_model, Run.origin, Recording.machine)
    per_commit = (
        _measured(
            select(
                Sweep.kernel,
                Sweep.problem,
                Sweep.gpu_model,
                Run.origin,
                Recording.machine.label("recording_machine"),
                machine.label("machine"),
                Run.finished_at.label("measured_at"),
                Commit.sha,
                Commit.subject,
                Commit.position,
                Commit.committed_at,
                Measurement.median_us,
                Measurement.ratio,
                Measurement.ratio_low,
                Measurement.ratio_high,
                Sweep.flops,
                Verdict.verdict,
            )
        )
        .where(Measurement.role == "kernel")
        .ext(distinct_on(*record, Commit.sha))
        .order_by(*record, Commit.sha, Run.finished_at.desc(), Run.id.desc())
        .cte("per_commit")
    )
    p = per_commit.c
    window: dict[str, Any] = {
        "partition_by": (p.kernel, p.problem, p.gpu_model, p.origin, p.recording_machine),
        "order_by": (p.position.desc(), p.committed_at.desc()),
    }
    ranked = select(
        per_commit,
        func.row_number().over(**window).label("age"),
        func.lead(p.sha).over(**window).label("previous_sha"),
        func.lead(p.median_us).over(**window).label("previous_us"),
        func.lead(p.ratio).over(**window).label("previous_ratio"),
    ).cte("ranked")
    names = [name for name in LatestRow.__dataclass_fields__ if name != "gpu_name"]
    query = (
        select(*[ranked.c[name] for name in names], GpuModel.name.label("gpu_name"))
        .join(GpuModel, GpuModel.slug == ranked.c.gpu_model)
        .where(ranked.c.age == 1)
        .order_by(ranked.c.kernel, ranked.c.gpu_model, ranked.c.problem, ranked.c.origin, ranked.c.measured_at.desc())
    )
    return _read(session, query, LatestRow)


def series(session: Session) -> list[SeriesRow]:
    """Every series that has at least one run."""
    query = (
        select(
            Sweep.kernel,
            Sweep.problem,
            Sweep.gpu_model,
            GpuModel.name.label("gpu_name"),
            func.count(Run.id).label("runs"),
        )
        .join(Run, Run.sweep_id == Sweep.id)
        .join(GpuModel, GpuModel.slug == Sweep.gpu_model)
        .group_by(Sweep.kernel, Sweep.problem, Sweep.gpu_model, GpuModel.name)
        .order_by(Sweep.kernel, Sweep.problem, Sweep.gpu_model)
    )
    return _read(session, query, SeriesRow)


def points(session: Session, kernel: str, problem: str, gpu_model: str) -> list[PointRow]:
    """Every measurement of one series and of the baselines beside it, in commit order."""
    query = (
        _measured(
            select(
                Run.id.label("run_id"),
                Commit.sha,
                Commit.position,
                Commit.subject,
                Commit.committed_at,
                Run.origin,
                func.coalesce(Recording.machine, Run.host).label("machine"),
                Run.finished_at.label("measured_at"),
                Run.gpu_name.label("board"),
                Run.timer,
                Run.toolchain,
                Run.toolchain_sha256,
                Measurement.implementation,
                Measurement.role,
                Config.params,
                func.cardinality(Measurement.samples_us).label("samples"),
                Measurement.median_us,
                Measurement.low_us,
                Measurement.high_us,
                Measurement.ratio,
                Measurement.ratio_low,
                Measurement.ratio_high,
                Measurement.detail,
                Sweep.flops,
                Sweep.bytes,
                GpuModel.fp8_tflops,
                GpuModel.bandwidth_gbps,
                Verdict.verdict,
                Verdict.change,
                Verdict.reason,
            )
        )
        .join(GpuModel, GpuModel.slug == Sweep.gpu_model)
        .outerjoin(Config, Config.id == Measurement.config_id)
        .where(Sweep.kernel == kernel, Sweep.problem == problem, Sweep.gpu_model == gpu_model)
        .order_by(Commit.position, Commit.committed_at, Run.finished_at, Run.id, Measurement.id)
    )
    return _read(session, query, PointRow)


def sweeps(session: Session, limit: int = 500) -> list[SweepRow]:
    """The newest sweeps, whatever their state."""
    query = (
        select(
            Sweep.id,
            Sweep.kernel,
            Sweep.problem,
            Sweep.gpu_model,
            GpuModel.name.label("gpu_name"),
            Sweep.arch,
            Commit.sha,
            Commit.position,
            Commit.subject,
            Submission.reason,
            Submission.night,
            Submission.measure,
            Submission.requested_at,
            Recording.machine,
            Sweep.space["axes"].label("axes"),
            Sweep.space_size,
            Sweep.flops,
            Sweep.bytes,
        )
        .join(Submission, Submission.id == Sweep.submission_id)
        .join(Commit, Commit.id == Sweep.commit_id)
        .join(GpuModel, GpuModel.slug == Sweep.gpu_model)
        .outerjoin(Recording, Recording.id == Submission.recording_id)
        .order_by(Submission.requested_at.desc(), Sweep.id.desc())
        .limit(limit)
    )
    return _read(session, query, SweepRow)


def trials(session: Session, sweep_id: int) -> list[TrialRow]:
    """Every trial of a sweep; the fastest first, then what is not timed."""
    query = (
        select(
            Trial.id,
            Trial.config_id,
            Config.params,
            Trial.status,
            Trial.failure,
            Trial.median_us,
            Trial.error,
            Compilation.status.label("compile_status"),
            Compilation.registers,
            Compilation.stack_bytes,
            Compilation.shared_bytes,
            Compilation.code_bytes,
            Compilation.compile_s,
            Compilation.tma_loads,
            Compilation.loads,
            Compilation.tensor_core_mmas,
            Compilation.mmas,
        )
        .join(Config, Config.id == Trial.config_id)
        .outerjoin(Compilation, Compilation.id == Trial.compilation_id)
        .where(Trial.sweep_id == sweep_id)
        .order_by(Trial.median_us.nulls_last(), Trial.id)
    )
    return _read(session, query, TrialRow)


def remarks(session: Session, trial_id: int) -> list[dict[str, Any]]:
    """What the compiler said of one trial's config."""
    query = select(Compilation.remarks).join(Trial, Trial.compilation_id == Compilation.id).where(Trial.id == trial_id)
    return session.scalars(query).one_or_none() or []


def measured(session: Session, sweep_id: int) -> list[MeasuredRow]:
    """What is on record for a sweep: the winner and its baselines, the newest run first."""
    query = (
        select(
            Run.id.label("run_id"),
            Run.origin,
            func.coalesce(Recording.machine, Run.host).label("machine"),
            Run.gpu_name.label("board"),
            Run.finished_at.label("measured_at"),
            Run.timer,
            Run.sweep_gpu_s,
            Run.tie,
            Measurement.implementation,
            Measurement.role,
            Measurement.config_id,
            Config.params,
            func.cardinality(Measurement.samples_us).label("samples"),
            Measurement.median_us,
            Measurement.low_us,
            Measurement.high_us,
            Measurement.ratio,
            Measurement.ratio_low,
            Measurement.ratio_high,
            Measurement.detail,
        )
        .join(Measurement, Measurement.run_id == Run.id)
        .outerjoin(Recording, Recording.id == Run.recording_id)
        .outerjoin(Config, Config.id == Measurement.config_id)
        .where(Run.sweep_id == sweep_id)
        .order_by(
            Run.finished_at.desc(), Run.id.desc(), case((Measurement.role == "kernel", 0), else_=1), Measurement.id
        )
    )
    return _read(session, query, MeasuredRow)


def _measured(query: Question) -> Question:
    """The road from a measurement to its commit. A baseline that could not run has no samples, and is no point."""
    return (
        query.select_from(Measurement)
        .join(Run, Run.id == Measurement.run_id)
        .join(Sweep, Sweep.id == Run.sweep_id)
        .join(Commit, Commit.id == Sweep.commit_id)
        .outerjoin(Recording, Recording.id == Run.recording_id)
        .outerjoin(Verdict, Verdict.run_id == Run.id)
        .where(func.cardinality(Measurement.samples_us) > 0)
    )


def _or_zero(table: Subquery, *names: str) -> list[Label[Any]]:
    return [func.coalesce(table.c[name], 0).label(name) for name in names]


def _read(session: Session, query: Question, row: Callable[..., Made]) -> list[Made]:
    return [row(**found._asdict()) for found in session.execute(query)]
