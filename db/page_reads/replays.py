"""Reads the replays and the suspicion behind a run's verdict."""

import datetime as dt
from dataclasses import dataclass
from typing import Any

from sqlalchemy import or_
from sqlalchemy.orm import Session, aliased

from tilewatch.db.models import Commit, Replay, Run, Suspicion, Sweep
from tilewatch.db.query_parts import find_row, read_rows, select_row


@dataclass(frozen=True)
class ReplayRow:
    """A replay of two cubins, timed alternately on one GPU."""

    axis: str
    good_sha: str
    bad_sha: str
    good_code_sha256: str | None
    bad_code_sha256: str | None
    good_toolchain: str | None
    bad_toolchain: str | None
    good_us: list[float]  # element i: the median of launch i
    bad_us: list[float]
    failure: str | None
    host: str | None
    gpu_uuid: str | None
    origin: str
    at: dt.datetime
    counters: dict[str, Any] | None = None  # of "good" and "bad", or why they are "missing"


@dataclass(frozen=True)
class SuspicionRow:
    """A run's suspicion of a change, and the outcome."""

    state: str
    reason: str
    size: float | None
    launches: int
    opened_at: dt.datetime
    closed_at: dt.datetime | None


def find_suspicion(session: Session, run_id: int) -> SuspicionRow | None:
    """Returns a run's suspicion of a change; None if there is none."""
    query = select_row(SuspicionRow, [Suspicion]).where(Suspicion.run_id == run_id)
    return find_row(session, query, SuspicionRow)


def list_replays(session: Session, run_id: int) -> list[ReplayRow]:
    """Lists the replays of a run's suspicion, and other replays of the run's series and commit, oldest first."""
    good, bad = aliased(Commit), aliased(Commit)
    query = (
        select_row(ReplayRow, [Replay], good_sha=good.sha, bad_sha=bad.sha)
        .select_from(Run)
        .join(Sweep, Sweep.id == Run.sweep_id)
        .join(
            Replay,
            (Replay.kernel == Sweep.kernel) & (Replay.problem == Sweep.problem) & (Replay.gpu_model == Sweep.gpu_model),
        )
        .outerjoin(Suspicion, Suspicion.id == Replay.suspicion_id)
        .join(good, (good.id == Replay.good_commit_id) & (good.repository == Sweep.repository))
        .join(bad, bad.id == Replay.bad_commit_id)
        .where(Run.id == run_id, or_(Suspicion.run_id == run_id, Replay.bad_commit_id == Sweep.commit_id))
        .order_by(Replay.at, Replay.id)
    )
    return read_rows(session, query, ReplayRow)
