"""Queries for the work of jobs and the processes that run them: code to compile, sweeps, jobs and workers."""

import datetime as dt
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, exists, func, literal, or_, select, true
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session, aliased

from tilewatch.db.models import (
    ENDED_SHORT,
    OPEN_JOB,
    RECORDED_HOST_END,
    Commit,
    Compilation,
    Config,
    Job,
    Measurement,
    Run,
    Submission,
    Sweep,
    Trial,
    Worker,
)
from tilewatch.db.query_parts import (
    DIED,
    NOT_TRIED,
    SERIES,
    WORKER_ALIVE_S,
    find_row,
    is_drawn,
    is_of_series,
    is_part_of_space,
    select_row,
)
from tilewatch.db.repository_names import name_of_branch
from tilewatch.db.row_columns import SeriesColumns

RETIRED_AFTER = dt.timedelta(days=14)
"""The time after which a GPU model without a worker and without a new run counts as gone."""

RUNS_WITH_COUNTERS = 20
"""The number of newest runs whose counters are read. One is too few: tied configs win alternately, GPUs differ."""


@dataclass(frozen=True)
class UnmeasuredCode:
    """Code that a submission has not measured yet, with one problem and config that use the code."""

    code_key: str  # the hash of the code
    problem: str
    params: dict[str, Any]


@dataclass(frozen=True)
class SweepFacts(SeriesColumns):
    """The fields of a sweep that its measure job needs."""

    submission_id: int
    sha: str
    arch: str
    reason: str = ""  # such as "nightly"


@dataclass(frozen=True)
class MeasureJob:
    """The fields of a measure job that are needed to store its run."""

    sweep_id: int
    priority: int


@dataclass(frozen=True)
class CompiledConfig:
    """A config with a cubin. `drawn` is True if the config is outside the kernel's short list."""

    config_id: int
    params: dict[str, Any]
    content_key: str
    symbol: str
    drawn: bool = False


@dataclass(frozen=True)
class LastSweep:
    """The last run of a series that tried the kernel's whole short list, or all configs if there is no list."""

    swept_at: dt.datetime
    toolchain: Mapping[str, str]
    tried: Mapping[int, str]  # the content keys of cubins, by config id
    timed_again: frozenset[int]  # ids of the winner and of configs tied with it or timed beside it


def list_gpu_models_measured_here(session: Session, *, lately: bool = False) -> list[str]:
    """Lists the GPU models that have a worker or a measured run, within RETIRED_AFTER if `lately`."""
    workers = select(Worker.gpu_model).where(Worker.gpu_model.is_not(None))
    # A worker that restarts has no row for seconds, so its runs count too.
    measured = select(Sweep.gpu_model).join(Run, Run.sweep_id == Sweep.id).where(Run.origin == "measured")
    if lately:
        workers = workers.where(Worker.seen_at > func.now() - RETIRED_AFTER)
        measured = measured.where(Run.finished_at > func.now() - RETIRED_AFTER)
    slugs = {*session.scalars(workers), *session.scalars(measured.distinct())}
    return sorted(slug for slug in slugs if slug is not None)


def list_unmeasured(session: Session, submission_id: int, kernel: str) -> list[UnmeasuredCode]:
    """Lists the code of a kernel's trials that were not measured yet, in the order of the search space."""
    # Trials with a compilation too: a cubin from a recording or another kernel's job may be missing here.
    code_key = func.coalesce(Trial.code_key, Compilation.code_key)
    first = (
        select(code_key.label("code_key"), Sweep.problem, Trial.sweep_id, Trial.config_id)
        .select_from(Trial)
        .join(Sweep, Sweep.id == Trial.sweep_id)
        .outerjoin(Compilation, Compilation.id == Trial.compilation_id)
        .where(Sweep.submission_id == submission_id, Sweep.kernel == kernel, NOT_TRIED)
        .ext(distinct_on(code_key))
        .order_by(code_key, Trial.sweep_id, Trial.config_id)
        .subquery()
    )
    query = (
        select(first.c.code_key, first.c.problem, Config.params)
        .join(Config, Config.id == first.c.config_id)
        .order_by(first.c.sweep_id, first.c.config_id)
    )
    return [UnmeasuredCode(code_key, problem, params) for code_key, problem, params in session.execute(query)]


def read_compiled_keys(
    session: Session, code_keys: Sequence[str], compiler: str, limit_s: float
) -> dict[str, str | None]:
    """Returns the cubins' content keys by code key; None if compiling failed. Leaves out code still to be compiled."""
    query = select(Compilation.code_key, Compilation.status, Compilation.content_key).where(
        Compilation.compiler == compiler,
        Compilation.code_key == func.any(list(code_keys)),
        # Left out: failures that may not happen again. The machine may have been slow or short of memory, and code from
        # a recording may compile here.
        (Compilation.status != "timeout") | (Compilation.cpu_s >= limit_s),
        (Compilation.status == "ok")
        | ~or_(Compilation.host.endswith(RECORDED_HOST_END), Compilation.failure.like(DIED)),
    )
    return {key: content_key if status == "ok" else None for key, status, content_key in session.execute(query)}


def list_ready_to_measure(session: Session, submission_id: int | None = None, kernel: str | None = None) -> list[int]:
    """Lists the ids of waiting measure jobs whose code no open compile job will compile."""
    compiling = and_(Job.kind == "compile", Job.state.in_(OPEN_JOB))
    waiting = and_(Job.kind == "measure", Job.state == "waiting")
    if submission_id is not None:
        compiling, waiting = (and_(each, Job.submission_id == submission_id) for each in (compiling, waiting))
    if kernel is not None:
        compiling = and_(compiling, Job.payload["kernel"].astext == kernel)
        waiting = and_(waiting, Sweep.kernel == kernel)
    items = func.jsonb_array_elements(Job.payload["items"]).table_valued("value")
    code_key = items.c.value.op("->>")("code_key").label("code_key")
    of_kernel = select(Job.submission_id, Job.payload["kernel"].astext.label("kernel"), code_key).select_from(Job)
    left: defaultdict[tuple[int, str], list[str | None]] = defaultdict(list)
    for row in session.execute(of_kernel.outerjoin(items, true()).where(compiling)):
        left[row.submission_id, row.kernel].append(row.code_key)  # None of a job that plans batches: it has no items
    query = select(Job.id, Job.sweep_id, Sweep.submission_id, Sweep.kernel).join(Sweep, Sweep.id == Job.sweep_id)
    candidates = session.execute(query.where(waiting).order_by(Job.id)).all()
    # A sweep waits until its kernel's batches are planned, then for the batches with its code. It waits even if each
    # trial has a compilation, because a cubin may be missing here.
    held_up: set[int] = set()
    for group, code_keys in left.items():
        if sweeps := [each.sweep_id for each in candidates if (each.submission_id, each.kernel) == group]:
            held_up.update(sweeps if None in code_keys else _find_with_code(session, sweeps, code_keys))
    return [each.id for each in candidates if each.sweep_id not in held_up]


def _find_with_code(session: Session, sweep_ids: Sequence[int], code_keys: Sequence[str | None]) -> Iterable[int]:
    """Returns the ids of the sweeps that try one of these code keys."""
    own = func.coalesce(Trial.code_key, Compilation.code_key)
    query = select(Trial.sweep_id).outerjoin(Compilation, Compilation.id == Trial.compilation_id).distinct()
    # As arrays: a join took 0.7 s for a kernel's 666 keys, because Postgres does not know their number (2 cores,
    # 2026-11-28).
    return session.scalars(query.where(Trial.sweep_id == func.any(list(sweep_ids)), own == func.any(list(code_keys))))


def is_taken(session: Session, queue: str) -> bool:
    """Returns whether a live worker takes jobs from a queue."""
    silent_s = func.extract("epoch", func.now() - Worker.seen_at)
    takes = and_(silent_s <= WORKER_ALIVE_S, literal(queue) == func.any(Worker.queues))
    return bool(session.scalar(select(exists().where(takes))))


def read_sweep_facts(session: Session, sweep_id: int) -> SweepFacts:
    query = select_row(SweepFacts, [Commit, Sweep, Submission]).join(Commit, Commit.id == Sweep.commit_id)
    of_sweep = query.join(Submission, Submission.id == Sweep.submission_id).where(Sweep.id == sweep_id)
    return SweepFacts(**session.execute(of_sweep).one()._mapping)


def list_compiled_configs(session: Session, sweep_id: int) -> list[CompiledConfig]:
    """Lists all configs of a sweep that have a cubin. Configs outside the short list come last."""
    drawn = is_drawn()
    query = (
        select(Trial.config_id, Config.params, Compilation.content_key, Compilation.symbol, drawn.label("drawn"))
        .join(Config, Config.id == Trial.config_id)
        .join(Sweep, Sweep.id == Trial.sweep_id)
        .join(Compilation, Compilation.id == Trial.compilation_id)
        .where(Trial.sweep_id == sweep_id, Compilation.status == "ok")
        .order_by(drawn, Trial.config_id)
    )
    return [CompiledConfig(**row._mapping) for row in session.execute(query)]


def count_uncompiled(session: Session, sweep_id: int) -> int:
    """Counts the configs of a sweep's short list that no job has tried to compile."""
    query = select(func.count()).select_from(Trial).join(Sweep, Sweep.id == Trial.sweep_id)
    return session.scalars(query.where(Trial.sweep_id == sweep_id, Trial.status == "waiting", ~is_drawn())).one()


def find_stopped_compile(session: Session, facts: SweepFacts) -> str | None:
    """Describes the first compile job of a sweep's kernel that failed or was cancelled; None if there is none."""
    sentence = func.concat_ws(": ", func.format("compile job %s ended as %s", Job.id, Job.state), Job.failure)
    of_kernel = (Job.submission_id == facts.submission_id, Job.payload["kernel"].astext == facts.kernel)
    query = select(sentence).where(Job.kind == "compile", *of_kernel, Job.state.in_(ENDED_SHORT)).order_by(Job.id)
    return session.scalars(query.limit(1)).first()


def find_compile_failure(session: Session, sweep_id: int) -> str | None:
    """Returns the failure of the first config that did not compile. Raises NoResultFound if every config compiled."""
    query = select(Trial.failure).where(Trial.sweep_id == sweep_id, Trial.status == "not_compiled")
    return session.scalars(query.order_by(Trial.config_id).limit(1)).one()


def list_compilers(session: Session, sweep_id: int) -> list[str]:
    """Lists the compilers that made the cubins of a sweep."""
    query = (
        select(Compilation.compiler)
        .join(Trial, Trial.compilation_id == Compilation.id)
        .where(Trial.sweep_id == sweep_id, Compilation.status == "ok")
        .distinct()
    )
    return list(session.scalars(query))


def list_counted(session: Session, facts: SweepFacts) -> list[tuple[dict[str, Any], dt.datetime]]:
    """Lists the details and end times of a series' newest measurements with hardware counters, the oldest first."""
    query = (
        select(Measurement.detail, Run.finished_at)
        .join(Run, Run.id == Measurement.run_id)
        .join(Sweep, Sweep.id == Run.sweep_id)
        .where(*is_of_series(vars(facts)), Measurement.role == "kernel", Measurement.detail.has_key("launch"))
        .order_by(Run.finished_at.desc())
        .limit(RUNS_WITH_COUNTERS)
    )
    return [(detail, finished_at) for detail, finished_at in session.execute(query)][::-1]


def find_last_sweep(session: Session, sweep_id: int, since: dt.datetime) -> LastSweep | None:
    """Returns a series' last run that tried the whole short list since a time; None if there is none."""
    this = aliased(Sweep)
    same = and_(*(getattr(this, name) == getattr(Sweep, name) for name in SERIES), this.id == sweep_id)
    query = (
        select(Run.id, Run.sweep_id, Run.finished_at, Run.toolchain, Run.tie)
        .join(Sweep, Sweep.id == Run.sweep_id)
        .join(this, same)
        .join(Submission, Submission.id == this.submission_id)
        .where(Submission.reason != "manual", Run.origin == "measured", Run.finished_at >= since, ~is_part_of_space())
        .order_by(Run.finished_at.desc())
        .limit(1)
    )
    if (run := session.execute(query).one_or_none()) is None:
        return None
    tried = {
        each.config_id: each.content_key for each in list_compiled_configs(session, run.sweep_id) if not each.drawn
    }
    beside = select(Measurement.config_id).where(Measurement.run_id == run.id, Measurement.config_id.is_not(None))
    return LastSweep(run.finished_at, run.toolchain, tried, frozenset({*run.tie, *session.scalars(beside)}))


def list_measured_together(session: Session, submission_id: int) -> list[tuple[str, str, list[str]]]:
    """Lists the kernel, the problem and the baselines of each sweep that a submission measures."""
    query = (
        select(Sweep.kernel, Sweep.problem, Job.payload["baselines"])
        .join(Sweep, Sweep.id == Job.sweep_id)
        .where(Job.submission_id == submission_id, Job.kind == "measure")
        .order_by(Job.id)
    )
    return [(kernel, problem, baselines) for kernel, problem, baselines in session.execute(query)]


def is_any_due(session: Session, queues: Collection[str]) -> bool:
    """Returns whether one of these queues has a job that may be claimed now."""
    is_due = or_(Job.not_before.is_(None), Job.not_before <= func.clock_timestamp())
    return bool(session.scalar(select(exists().where(Job.state == "queued", Job.queue.in_(queues), is_due))))


def find_measure_job(session: Session, job_id: int, key: str) -> MeasureJob | None:
    """Returns the measure job with this id and key; None if the job does not exist."""
    query = select(Job.sweep_id, Job.priority).where(Job.id == job_id, Job.key == key, Job.kind == "measure")
    return find_row(session, query, MeasureJob)


def find_run(session: Session, sweep_id: int) -> int | None:
    """Returns the id of a sweep's first run that was not imported; None if there is none."""
    query = select(Run.id).where(Run.sweep_id == sweep_id, Run.origin != "recorded").order_by(Run.id)
    return session.scalars(query).first()


def list_jobs_in(session: Session, submission_id: int, states: Sequence[str]) -> list[int]:
    """Lists the ids of a submission's jobs that are in one of these states."""
    query = select(Job.id).where(Job.submission_id == submission_id, Job.state.in_(states)).order_by(Job.id)
    return list(session.scalars(query))


def list_open_jobs_of_repository(session: Session, name: str) -> list[int]:
    """Lists the ids of the open jobs of a repository's main line and branches."""
    is_branch = Commit.repository.startswith(name_of_branch(name, "").removesuffix(")"), autoescape=True)
    query = (
        select(Job.id)
        .join(Submission, Submission.id == Job.submission_id)
        .join(Commit, Commit.id == Submission.commit_id)
        .where(Job.state.in_(OPEN_JOB), or_(Commit.repository == name, is_branch))
        .order_by(Job.id)
    )
    return list(session.scalars(query))


def find_job_state(session: Session, job_id: int) -> str | None:
    """Returns the state of a job; None if the job does not exist."""
    return session.scalar(select(Job.state).where(Job.id == job_id))


def find_last_night(session: Session, repository: str) -> dt.date | None:
    """Returns the date of the newest nightly of a main line; None if there was none yet."""
    query = (
        select(func.max(Submission.night))
        .join(Commit, Commit.id == Submission.commit_id)
        .where(Submission.reason == "nightly", Commit.repository == repository)
    )
    return session.scalar(query)


def list_nightly_shas(session: Session, repository: str, count: int) -> list[str]:
    """Lists the hashes of the commits with the newest nightlies of a main line, the newest first."""
    newest = func.max(Submission.id)
    query = (
        select(Commit.sha)
        .join(Submission, Submission.commit_id == Commit.id)
        .where(Submission.reason == "nightly", Commit.repository == repository)
        .group_by(Commit.sha)
        .order_by(newest.desc())
        .limit(count)
    )
    return list(session.scalars(query))


def list_running_subjects(session: Session, owner_prefix: str) -> list[str]:
    """Lists the subjects of the jobs that the processes of a worker are running."""
    query = select(Job.subject).where(Job.state == "running", Job.owner.startswith(owner_prefix, autoescape=True))
    return list(session.scalars(query.order_by(Job.started_at)))


def find_worker_activity(session: Session, worker: str) -> str | None:
    """Returns a worker's activity at its last heartbeat; None if it was idle or is unknown."""
    return session.scalar(select(Worker.doing).where(Worker.name == worker))
