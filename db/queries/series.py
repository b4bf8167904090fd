"""Reads which series there are, and all points of one."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import Text, bindparam, cast, exists, false, func, select, true
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session

from tilewatch.db.joins import SERIES, Query, is_of_series, measured_points, read_rows, series_keys
from tilewatch.db.models import (
    Commit,
    Compilation,
    Config,
    GpuModel,
    Measurement,
    Quarantine,
    Recording,
    Repository,
    Run,
    Submission,
    Sweep,
    Trial,
    Verdict,
)
from tilewatch.repository_names import BRANCH_START, name_of_branch


@dataclass(frozen=True)
class RawSamplesRow:
    """The raw samples of one implementation in one run."""

    run_id: int
    implementation: str
    samples_us: list[float]


@dataclass(frozen=True)
class SeriesRow:
    repository: str
    kernel: str
    problem: str
    gpu_model: str
    gpu_name: str


@dataclass(frozen=True)
class PointRow:
    """One implementation in one run: a point of a trend."""

    run_id: int
    sha: str
    position: int
    subject: str
    author: str | None
    committed_at: dt.datetime
    origin: str
    machine: str
    measured_at: dt.datetime
    device_name: str
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
    baseline: str | None
    detail: dict[str, Any]
    flops: int
    bytes: int
    work: list[Any] | None
    rate: dict[str, Any] | None
    operator: str
    fp8_tflops: float | None
    bandwidth_gbps: float | None
    verdict: str | None
    change: float | None
    reason: str | None
    quarantined: bool
    registers: int | None
    stack_bytes: int | None
    shared_bytes: int | None
    code_bytes: int | None
    compile_s: float | None


@dataclass(frozen=True)
class SizeRow:
    """One implementation on one problem of a kernel at one commit, by the newest run there."""

    run_id: int
    problem: str
    origin: str
    machine: str
    implementation: str
    role: str
    median_us: float
    low_us: float
    high_us: float
    flops: int
    bytes: int
    detail: dict[str, Any]


def list_repositories(session: Session) -> list[str]:
    """Lists repositories that have a submission: those that this Tilewatch watches, oldest first, then their branches,
    those that were removed, and recorded ones."""
    own = func.bool_or(Submission.reason != "recorded")
    is_branch = Commit.repository.contains(BRANCH_START, autoescape=True)
    removed = exists().where(Repository.name == Commit.repository, Repository.removed_at.is_not(None))
    query = (
        select(Commit.repository)
        .join(Submission, Submission.commit_id == Commit.id)
        .group_by(Commit.repository)
        .order_by(own.desc(), removed, is_branch, func.min(Submission.id))
    )
    return list(session.scalars(query))


def list_watched(session: Session) -> list[str]:
    """Lists the names of the repositories that `tilewatch watch add` added and nobody removed."""
    query = select(Repository.name).where(Repository.removed_at.is_(None)).order_by(Repository.added_at)
    return list(session.scalars(query))


def list_series(session: Session) -> list[SeriesRow]:
    """Lists every series that has at least one run."""
    keys = series_keys()
    has_run = select(Run.id).join(Sweep, Sweep.id == Run.sweep_id).where(*is_of_series(keys)).limit(1).lateral()
    query = (
        select(*keys.c, GpuModel.name.label("gpu_name"))
        .select_from(keys)
        .join(has_run, true())
        .join(GpuModel, GpuModel.slug == keys.c.gpu_model)
        .order_by(*keys.c)
    )
    return read_rows(session, query, SeriesRow)


def list_branches(
    session: Session, repository: str, kernel: str, problem: str, gpu_model: str, limit: int
) -> list[str]:
    """Lists the branches of a repository that measured a series, by the names that they have as repositories; the
    newest first."""
    start = name_of_branch(repository, "").removesuffix(")")
    query = (
        select(Sweep.repository)
        .join(Run, Run.sweep_id == Sweep.id)
        .where(
            Sweep.repository.startswith(start, autoescape=True),
            Sweep.kernel == kernel,
            Sweep.problem == problem,
            Sweep.gpu_model == gpu_model,
        )
        .group_by(Sweep.repository)
        .order_by(func.max(Run.id).desc())
        .limit(limit)
    )
    return list(session.scalars(query))


_SHORT_DETAIL = Measurement.detail.op("-")("checklist")
"""What a run stored of an implementation, without its checklist: that is 3 kB, and a series has hundreds of runs."""


def list_points(
    session: Session, repository: str, kernel: str, problem: str, gpu_model: str, *, static_facts: bool = True
) -> list[PointRow]:
    """Lists every measurement of one series and of its baselines, in commit order.

    The static facts are those of the measured config's cubin; a baseline has none. Without them the winners' trials are
    not looked for: those lie far apart among millions, and took four fifths of the time (60 of 75 ms, a year's nights).
    """
    about = {"repository": repository, "kernel": kernel, "problem": problem, "gpu_model": gpu_model}
    documents = ("toolchain", "params", "detail", "work", "rate")
    return read_rows(session, _select_points(static_facts=static_facts), PointRow, documents, about)


@cache
def _select_points(*, static_facts: bool) -> Query:
    """The bound parameters are those of SERIES."""
    trial = (Trial.sweep_id == Sweep.id) & (Trial.config_id == Measurement.config_id)
    ill = (
        select(Quarantine.id)
        .where(
            Quarantine.gpu_uuid == Run.gpu_uuid,
            Quarantine.began_at <= Run.finished_at,
            func.coalesce(Quarantine.ended_at, Run.finished_at) >= Run.started_at,
        )
        .exists()
    )
    return (
        measured_points(
            select(
                Run.id.label("run_id"),
                Commit.sha,
                Commit.position,
                Commit.subject,
                Commit.author,
                Commit.committed_at,
                Run.origin,
                func.coalesce(Recording.machine, Run.host).label("machine"),
                Run.finished_at.label("measured_at"),
                Run.gpu_name.label("device_name"),
                Run.timer,
                cast(Run.toolchain, Text).label("toolchain"),
                Run.toolchain_sha256,
                Measurement.implementation,
                Measurement.role,
                cast(Config.params, Text).label("params"),
                func.cardinality(Measurement.samples_us).label("samples"),
                Measurement.median_us,
                Measurement.low_us,
                Measurement.high_us,
                Measurement.ratio,
                Measurement.ratio_low,
                Measurement.ratio_high,
                Measurement.baseline,
                cast(_SHORT_DETAIL, Text).label("detail"),
                Sweep.flops,
                Sweep.bytes,
                Sweep.space["work"].astext.label("work"),
                Sweep.space["rate"].astext.label("rate"),
                func.concat(Sweep.kernel, " ", Sweep.problem).label("operator"),
                GpuModel.fp8_tflops,
                GpuModel.bandwidth_gbps,
                Verdict.verdict,
                Verdict.change,
                Verdict.reason,
                ill.label("quarantined"),
                Compilation.registers,
                Compilation.stack_bytes,
                Compilation.shared_bytes,
                Compilation.code_bytes,
                Compilation.compile_s,
            )
        )
        .join(GpuModel, GpuModel.slug == Sweep.gpu_model)
        .outerjoin(Config, Config.id == Measurement.config_id)
        .outerjoin(Trial, trial if static_facts else false())
        .outerjoin(Compilation, Compilation.id == Trial.compilation_id)
        .where(*is_of_series({name: bindparam(name, type_=Text) for name in SERIES}))
        .order_by(Commit.position, Commit.committed_at, Run.finished_at, Run.id, Measurement.id)
    )


def list_sizes(session: Session, repository: str, kernel: str, gpu_model: str, sha: str) -> list[SizeRow]:
    """Lists what a kernel and its baselines took on each of its problems at one commit, the fewest operations first."""
    newest = (
        select(Run.id.label("run_id"))
        .join(Sweep, Sweep.id == Run.sweep_id)
        .join(Commit, Commit.id == Sweep.commit_id)
        .where(
            Commit.repository == repository,
            Commit.sha == sha,
            Sweep.kernel == kernel,
            Sweep.gpu_model == gpu_model,
        )
        .ext(distinct_on(Sweep.problem))
        .order_by(Sweep.problem, Run.finished_at.desc(), Run.id.desc())
        .subquery()
    )
    query = (
        select(
            Run.id.label("run_id"),
            Sweep.problem,
            Run.origin,
            func.coalesce(Recording.machine, Run.host).label("machine"),
            Measurement.implementation,
            Measurement.role,
            Measurement.median_us,
            Measurement.low_us,
            Measurement.high_us,
            Sweep.flops,
            Sweep.bytes,
            _SHORT_DETAIL.label("detail"),
        )
        .select_from(newest)
        .join(Run, Run.id == newest.c.run_id)
        .join(Sweep, Sweep.id == Run.sweep_id)
        .outerjoin(Recording, Recording.id == Run.recording_id)
        .join(Measurement, Measurement.run_id == Run.id)
        .order_by(Sweep.flops, Sweep.bytes, Sweep.problem, Measurement.role.desc(), Measurement.id)
    )
    return read_rows(session, query, SizeRow)


def list_raw_samples(session: Session, run_ids: Sequence[int]) -> list[RawSamplesRow]:
    """Lists every sample of a few runs."""
    query = (
        select(Measurement.run_id, Measurement.implementation, Measurement.samples_us)
        .where(Measurement.run_id.in_(run_ids), func.cardinality(Measurement.samples_us) > 0)
        .order_by(Measurement.run_id, Measurement.id)
    )
    return read_rows(session, query, RawSamplesRow)
