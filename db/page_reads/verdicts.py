"""Reads verdicts of runs, and the smallest change that a night of a series would show."""

import datetime as dt
from dataclasses import dataclass

from sqlalchemy import select, true
from sqlalchemy.orm import Session, aliased

from tilewatch.db.models import Commit, GpuModel, Run, Sweep, Verdict
from tilewatch.db.query_parts import is_of_series, judged_runs, read_rows, series_keys


@dataclass(frozen=True)
class VerdictRow:
    """The verdict of one run. `change` is of the time, +0.05 is 5 % slower, with its 95 % interval `low` to `high`.

    The change came after `good_sha` and no later than `bad_sha`; all of these are None where nothing changed, or where
    the history is too short to say.
    """

    run_id: int
    repository: str
    kernel: str
    problem: str
    gpu_model: str
    sha: str
    subject: str
    origin: str
    measured_at: dt.datetime
    verdict: str
    change: float | None
    low: float | None
    high: float | None
    noise: float | None
    smallest: float | None
    good_sha: str | None
    bad_sha: str | None
    policy: str
    reason: str


@dataclass(frozen=True)
class DetectableChange:
    """The smallest relative change that one night of a series would show, by its newest verdict with a known noise.

    `noise` is one standard deviation between nights. Replays of a check see less than that: they compare two builds
    within the same minutes.
    """

    run_id: int
    sha: str
    measured_at: dt.datetime
    noise: float
    smallest: float
    policy: str


@dataclass(frozen=True)
class UndecidedRow:
    """A series whose newest run of this Tilewatch is undecided, with that run's commit and the reason."""

    run_id: int
    repository: str
    kernel: str
    problem: str
    gpu_model: str
    gpu_name: str
    sha: str
    subject: str
    committed_at: dt.datetime
    measured_at: dt.datetime
    reason: str


def list_undecided(session: Session) -> list[UndecidedRow]:
    """Lists them for all repositories; what came with a recording is judged no further and is left out."""
    keys = series_keys()
    newest = (
        select(Run.id.label("run_id"), Run.finished_at, Sweep.commit_id)
        .join(Sweep, Sweep.id == Run.sweep_id)
        .join(Commit, Commit.id == Sweep.commit_id)
        .where(*is_of_series(keys), Run.origin != "recorded")
        .order_by(Commit.position.desc(), Commit.committed_at.desc(), Run.finished_at.desc(), Run.id.desc())
        .limit(1)
        .lateral()
    )
    query = (
        select(
            newest.c.run_id,
            *keys.c,
            GpuModel.name.label("gpu_name"),
            Commit.sha,
            Commit.subject,
            Commit.committed_at,
            newest.c.finished_at.label("measured_at"),
            Verdict.reason,
        )
        .select_from(keys)
        .join(newest, true())
        .join(Verdict, (Verdict.run_id == newest.c.run_id) & (Verdict.verdict == "undecided"))
        .join(Commit, Commit.id == newest.c.commit_id)
        .join(GpuModel, GpuModel.slug == keys.c.gpu_model)
        .order_by(*keys.c)
    )
    return read_rows(session, query, UndecidedRow)


def list_verdicts(
    session: Session,
    *,
    repository: str,
    kernel: str | None = None,
    problem: str | None = None,
    gpu_model: str | None = None,
    verdict: str | None = None,
    limit: int = 100,
) -> list[VerdictRow]:
    """Lists the newest verdicts of a repository, or of the series of it that are named, the newest first."""
    good, bad = aliased(Commit), aliased(Commit)
    named = {"kernel": kernel, "problem": problem, "gpu_model": gpu_model}
    query = (
        judged_runs(
            select(
                Verdict.run_id,
                Sweep.repository,
                Sweep.kernel,
                Sweep.problem,
                Sweep.gpu_model,
                Commit.sha,
                Commit.subject,
                Run.origin,
                Run.finished_at.label("measured_at"),
                Verdict.verdict,
                Verdict.change,
                Verdict.low,
                Verdict.high,
                Verdict.noise,
                Verdict.smallest,
                good.sha.label("good_sha"),
                bad.sha.label("bad_sha"),
                Verdict.policy,
                Verdict.reason,
            )
        )
        .outerjoin(good, good.id == Verdict.good_commit_id)
        .outerjoin(bad, bad.id == Verdict.bad_commit_id)
        .where(Sweep.repository == repository)
        .where(*(getattr(Sweep, name) == value for name, value in named.items() if value is not None))
        .order_by(Verdict.run_id.desc())
        .limit(limit)
    )
    if verdict is not None:
        query = query.where(Verdict.verdict == verdict)
    return read_rows(session, query, VerdictRow)


def find_detectable_change(
    session: Session, repository: str, kernel: str, problem: str, gpu_model: str
) -> DetectableChange | None:
    """Returns None when no verdict of the series knows the noise yet: the history is too short."""
    query = (
        judged_runs(
            select(
                Verdict.run_id,
                Commit.sha,
                Run.finished_at.label("measured_at"),
                Verdict.noise,
                Verdict.smallest,
                Verdict.policy,
            )
        )
        .where(
            *is_of_series({"repository": repository, "kernel": kernel, "problem": problem, "gpu_model": gpu_model}),
            Verdict.noise.is_not(None),
            Verdict.smallest.is_not(None),
        )
        .order_by(Verdict.run_id.desc())
        .limit(1)
    )
    return next(iter(read_rows(session, query, DetectableChange)), None)
