"""Opens and closes suspicions, and stores the replays that settle them; each write may happen twice and changes nothing
then.

Whoever opened the session commits.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from tilewatch.db.models import Commit, Replay, Run, Suspicion, Sweep
from tilewatch.db.natural_keys import find_or_add
from tilewatch.db.worker_reads.judging import Scope

NOT_NEEDED = "not held: what its machine code takes is known"
"""Why a replay has no times whose sides turned out, once compiled, to be identical or to have been replayed before."""

Outcome = Literal["confirmed", "refuted", "undecided"]


def open_once(
    session: Session,
    *,
    run_id: int,
    kernel: str,
    problem: str,
    gpu_model: str,
    good_commit_id: int,
    bad_commit_id: int,
    size: float | None,
    reason: str,
) -> int:
    """Opens the suspicion of a run's night and returns its id; the first range and reason stay."""
    suspicion_id, _ = find_or_add(
        session,
        Suspicion,
        {"run_id": run_id},
        {
            "kernel": kernel,
            "problem": problem,
            "gpu_model": gpu_model,
            "good_commit_id": good_commit_id,
            "bad_commit_id": bad_commit_id,
            "size": size,
            "reason": reason,
        },
    )
    return suspicion_id


def find_id_of_run(session: Session, run_id: int) -> int | None:
    """Returns the id of the suspicion of a run; None when there is none."""
    return session.scalar(select(Suspicion.id).where(Suspicion.run_id == run_id))


def close(session: Session, run_id: int, outcome: Outcome, reason: str) -> None:
    """Ends the open suspicion of a run."""
    session.execute(
        update(Suspicion)
        .where(Suspicion.run_id == run_id, Suspicion.state == "open")
        .values(state=outcome, reason=reason, closed_at=func.clock_timestamp())
    )


def close_older(session: Session, scope: Scope, reason: str) -> int:
    """Ends what earlier nights of a scope left open: a later night asks again if it still looks like a change."""
    older = (
        select(Run.id)
        .join(Sweep, Sweep.id == Run.sweep_id)
        .join(Commit, Commit.id == Sweep.commit_id)
        .where(
            Commit.repository == scope.repository,
            Commit.position <= scope.position,
            Sweep.gpu_model == scope.gpu_model,
            Sweep.submission_id != scope.submission_id,
            Run.origin == scope.origin,
        )
    )
    ended = session.execute(
        update(Suspicion)
        .where(Suspicion.run_id.in_(older), Suspicion.state == "open")
        .values(state="undecided", reason=reason, closed_at=func.clock_timestamp())
        .returning(Suspicion.id),
        execution_options={"synchronize_session": False},
    )
    return len(ended.all())


def write_replay(
    session: Session,
    key: str,
    row: Mapping[str, Any],
    *,
    good_us: Sequence[float] = (),
    bad_us: Sequence[float] = (),
    failure: str | None = None,
) -> None:
    """Stores a replay's answer, and counts its launches on its suspicion. The first answer stays."""
    columns = {**row, "key": key, "good_us": list(good_us), "bad_us": list(bad_us), "failure": failure}
    kept = insert(Replay).values(**columns).on_conflict_do_nothing(index_elements=[Replay.key]).returning(Replay.id)
    if session.scalar(kept) is not None and row.get("suspicion_id") is not None:
        session.execute(
            update(Suspicion)
            .where(Suspicion.id == row["suspicion_id"])
            .values(launches=Suspicion.launches + len(good_us))
        )


def lock_run(session: Session, run_id: int) -> None:
    """Locks a run's row until the transaction ends: of two replays that end at once, the later then sees the
    earlier."""
    session.execute(select(Run.id).where(Run.id == run_id).with_for_update())
