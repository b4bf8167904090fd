"""Opens and closes suspicions of changes, and stores the replays that confirm or refute them."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sqlalchemy import func, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from tilewatch.db.models import Commit, Replay, Run, Suspicion, Sweep, Verdict
from tilewatch.db.natural_keys import find_or_add
from tilewatch.db.query_parts import committed_runs
from tilewatch.db.worker_reads.judging import Scope

NOT_NEEDED = "not held: what its machine code takes is known"
"""The failure of a replay that did not run because its two cubins were identical or had been replayed before."""

AWAITS_REPLAY = "; a replay is asked for"
"""The end of an undecided verdict's reason while a replay that decides it is in the queue."""

Outcome = Literal["confirmed", "refuted", "undecided"]


def open_once(session: Session, **row: Any) -> int:
    """Opens a suspicion unless the run already has a suspicion. Returns the suspicion's id."""
    return find_or_add(session, Suspicion, ("run_id",), row)[0]


def find_id_of_run(session: Session, run_id: int) -> int | None:
    """Returns the id of a run's suspicion; None if there is none."""
    return session.scalar(select(Suspicion.id).where(Suspicion.run_id == run_id))


def close(session: Session, run_id: int, outcome: Outcome, reason: str) -> None:
    """Closes a run's suspicion if it is open or undecided."""
    session.execute(
        update(Suspicion)
        .where(Suspicion.run_id == run_id, Suspicion.state.in_(("open", "undecided")))
        .values(state=outcome, reason=reason, closed_at=func.clock_timestamp())
    )


def close_older(session: Session, scope: Scope, reason: str) -> int:
    """Closes the open suspicions on runs of earlier submissions as undecided, and returns their number."""
    older = committed_runs(select(Run.id)).where(
        Commit.repository == scope.repository,
        tuple_(Commit.position, Sweep.submission_id) < tuple_(scope.position, scope.submission_id),
        Sweep.gpu_model == scope.gpu_model,
        Run.origin == scope.origin,
    )
    # A change that is still suspected gets a new suspicion in the scope's night.
    ended = session.scalars(
        update(Suspicion)
        .where(Suspicion.run_id.in_(older), Suspicion.state == "open")
        .values(state="undecided", reason=reason, closed_at=func.clock_timestamp())
        .returning(Suspicion.run_id)
    ).all()
    await_no_replay(session, ended)
    return len(ended)


def await_no_replay(session: Session, run_ids: Sequence[int]) -> None:
    """Removes the note "a replay is asked for" from the verdicts on these runs."""
    reason = func.replace(Verdict.reason, AWAITS_REPLAY, "")
    session.execute(update(Verdict).where(Verdict.run_id.in_(run_ids)).values(reason=reason))


def write_replay(
    session: Session,
    key: str,
    row: Mapping[str, Any],
    *,
    good_us: Sequence[float] = (),
    bad_us: Sequence[float] = (),
    failure: str | None = None,
) -> None:
    """Stores a replay's result if `key` is new, and updates the launch count of the replay's suspicion."""
    columns = {**row, "key": key, "good_us": list(good_us), "bad_us": list(bad_us), "failure": failure}
    kept = insert(Replay).values(**columns).on_conflict_do_nothing(index_elements=[Replay.key]).returning(Replay.id)
    if session.scalar(kept) is not None and row.get("suspicion_id") is not None:
        session.execute(
            update(Suspicion)
            .where(Suspicion.id == row["suspicion_id"])
            .values(launches=Suspicion.launches + len(good_us))
        )


def lock_run(session: Session, run_id: int) -> None:
    """Locks a run until the transaction ends, so that two requests for a replay of the run cannot overlap."""
    session.execute(select(Run.id).where(Run.id == run_id).with_for_update())
