"""Reads the evidence on one run: its times, cubins and commits, and the earlier run to compare it with."""

import datetime as dt
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, func, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session, aliased

from tilewatch.db import commit_order
from tilewatch.db.models import (
    TOTAL,
    CodeDiff,
    Commit,
    Compilation,
    Config,
    GpuModel,
    Measurement,
    Recording,
    Run,
    Sweep,
    Trial,
    Verdict,
)
from tilewatch.db.query_parts import MACHINE, SERIES, committed_runs, read_rows, select_row
from tilewatch.db.row_columns import JudgedRunColumns, MeasurementColumns, SeriesRow, TrialColumns


@dataclass(frozen=True)
class RunRow(SeriesRow, JudgedRunColumns):
    sweep_id: int
    arch: str
    gpu_uuid: str
    telemetry: list[dict[str, Any]]
    sweep_gpu_s: float
    started_at: dt.datetime
    noise: float | None
    policy: str | None


@dataclass(frozen=True)
class SamplesRow(MeasurementColumns):
    """The raw times of one implementation in a run. Times with the same index are from the same round."""

    config_id: int | None
    samples_us: list[float]
    throttled_us: list[float] | None  # of rounds with a throttled GPU, which no statistics use


@dataclass(frozen=True)
class CubinRow(TrialColumns):
    """The trial of one config in a sweep, with the static facts of its cubin."""

    content_key: str | None
    code_sha256: str | None
    remarks: list[dict[str, Any]] | None


@dataclass(frozen=True)
class CodeDiffRow:
    """The stored difference between the machine code of two cubins."""

    sentence: str
    changes: list[dict[str, Any]]
    instructions: list[dict[str, Any]]


@dataclass(frozen=True)
class CommitInRangeRow:
    sha: str
    subject: str
    author: str | None
    committed_at: dt.datetime


@dataclass(frozen=True)
class PartRow:
    """One problem of a weighted total. The total counts the problem's time `weight` times."""

    run_id: int
    kernel: str
    problem: str
    weight: float
    median_us: float
    verdict: str | None
    change: float | None


def find_run(session: Session, run_id: int) -> RunRow | None:
    """Returns a run with its commit, GPU and verdict; None if the run does not exist."""
    query = (
        committed_runs(
            select_row(
                RunRow,
                [Run, Commit, Sweep, GpuModel, Verdict],
                run_id=Run.id,
                gpu_name=GpuModel.name,
                machine=MACHINE,
                device_name=Run.gpu_name,
                rate=Sweep.space["rate"],
                measured_at=Run.finished_at,
            )
        )
        .join(GpuModel, GpuModel.slug == Sweep.gpu_model)
        .outerjoin(Recording, Recording.id == Run.recording_id)
        .outerjoin(Verdict, Verdict.run_id == Run.id)
        .where(Run.id == run_id)
    )
    return next(iter(read_rows(session, query, RunRow)), None)


def find_run_before(session: Session, run_id: int) -> int | None:
    """Returns the id of the previous run in a run's series; None for the first run."""
    this_run, this_sweep = aliased(Run), aliased(Sweep)
    this_commit, this_recording = aliased(Commit), aliased(Recording)
    this_machine = func.coalesce(this_recording.machine, this_run.host)
    query = (
        committed_runs(select(Run.id))
        .outerjoin(Recording, Recording.id == Run.recording_id)
        .join(this_run, this_run.id == run_id)
        .join(this_sweep, this_sweep.id == this_run.sweep_id)
        .join(this_commit, this_commit.id == this_sweep.commit_id)
        .outerjoin(this_recording, this_recording.id == this_run.recording_id)
        .where(
            *(getattr(Sweep, name) == getattr(this_sweep, name) for name in SERIES),
            commit_order.place_of() < commit_order.place_of(this_commit),
        )
        # Of several runs at that commit, the last on the same machine is chosen, else the last of all.
        .order_by(*commit_order.latest_first(), (this_machine == MACHINE).desc(), Run.finished_at.desc(), Run.id.desc())
        .limit(1)
    )
    return session.scalars(query).one_or_none()


def list_samples(session: Session, run_id: int) -> list[SamplesRow]:
    """Lists the raw times of a run, the kernel's times before the baselines' times."""
    query = (
        select_row(
            SamplesRow,
            [Measurement, Config],
            throttled_us=Measurement.detail["throttled_us"],
            detail=Measurement.detail.op("-")("throttled_us"),
        )
        .outerjoin(Config, Config.id == Measurement.config_id)
        .where(Measurement.run_id == run_id, func.cardinality(Measurement.samples_us) > 0)
        .order_by(Measurement.role.desc(), Measurement.id)
    )
    return read_rows(session, query, SamplesRow)


def find_cubin(session: Session, sweep_id: int, config_id: int) -> CubinRow | None:
    """Returns a config's trial in a sweep, with its cubin; None if the trial does not exist."""
    query = (
        select_row(CubinRow, [Config, Trial, Compilation], compile_status=Compilation.status)
        .join(Config, Config.id == Trial.config_id)
        .outerjoin(Compilation, Compilation.id == Trial.compilation_id)
        .where(Trial.sweep_id == sweep_id, Trial.config_id == config_id)
    )
    return next(iter(read_rows(session, query, CubinRow)), None)


def find_next_best(session: Session, sweep_id: int, config_id: int) -> int | None:
    """Returns the id of a sweep's fastest config except `config_id`; None if no other config has a time."""
    query = (
        select(Trial.config_id)
        .where(Trial.sweep_id == sweep_id, Trial.status == "timed", Trial.config_id != config_id)
        .order_by(Trial.median_us)
        .limit(1)
    )
    return session.scalars(query).one_or_none()


def find_code_diff(session: Session, base: CubinRow | None, head: CubinRow | None) -> CodeDiffRow | None:
    """Returns the stored difference between two cubins; None if no difference is stored."""
    keys = tuple(cubin.content_key if cubin else None for cubin in (base, head))
    query = select(CodeDiff.sentence, CodeDiff.changes, CodeDiff.instructions).where(
        CodeDiff.base_key == keys[0], CodeDiff.head_key == keys[1]
    )
    return next(iter(read_rows(session, query, CodeDiffRow)), None)


def list_commits_between(session: Session, repository: str, after: int, up_to: int) -> list[CommitInRangeRow]:
    """Lists the stored commits after one position, up to and including another position, newest first."""
    query = (
        select(Commit.sha, Commit.subject, Commit.author, Commit.committed_at)
        .where(Commit.repository == repository, Commit.position > after, Commit.position <= up_to)
        .order_by(*commit_order.latest_first())
    )
    return read_rows(session, query, CommitInRangeRow)


def list_parts_of_total(session: Session, run_id: int) -> list[PartRow]:
    """Lists the problems that a weighted total adds up, the largest share first."""
    total, total_run = aliased(Sweep), aliased(Run)
    part_of = Sweep.parts_of[total.problem]
    weight = part_of["weight"].as_float()
    newest = (
        select_row(PartRow, [Sweep, Measurement, Verdict], run_id=Run.id, weight=weight)
        .select_from(total_run)
        .join(total, and_(total.id == total_run.sweep_id, total.kernel == TOTAL))
        .join(Sweep, and_(Sweep.submission_id == total.submission_id, part_of.is_not(None)))
        .join(Run, and_(Run.sweep_id == Sweep.id, Run.origin == total_run.origin))
        .join(Measurement, and_(Measurement.run_id == Run.id, Measurement.role == "kernel"))
        .outerjoin(Verdict, Verdict.run_id == Run.id)
        .where(total_run.id == run_id)
        .ext(distinct_on(Sweep.kernel, Sweep.problem))
        .order_by(Sweep.kernel, Sweep.problem, Run.id.desc())
        .subquery()
    )
    query = select(newest).order_by((newest.c.weight * newest.c.median_us).desc())
    return read_rows(session, query, PartRow)


def has_simulated_runs(session: Session, repository: str, newest: int = 50) -> bool:
    """Returns whether any run of a repository's newest sweeps was simulated."""
    sweeps = select(Sweep.id).where(Sweep.repository == repository).order_by(Sweep.id.desc()).limit(newest)
    origins = select(Run.origin).where(Run.sweep_id.in_(sweeps)).distinct()
    return "simulated" in session.scalars(origins)
