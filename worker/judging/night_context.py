"""Holds the data for judging a night: its transaction, its history and its verdicts so far."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.orm import Session

from tilewatch.db.fact_writes import NewVerdict
from tilewatch.db.lifecycle import suspicions
from tilewatch.db.lifecycle.jobs import Priority, UnsentJob
from tilewatch.db.worker_reads import judging
from tilewatch.db.worker_reads.judging import Night, Point, ReplayFact, Scope
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.worker.context import Context
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.verdict import SeriesVerdict
from tilewatch.worker.git import watched
from tilewatch.worker.judging.commit_history import History
from tilewatch.worker.queue import follow_up
from tilewatch.worker.queue.replay_job import BuildQuestion, ReplayJob


@dataclass(frozen=True)
class OpenNight:
    """A night that is being judged in a transaction. `run_id` is the run of the judge job."""

    session: Session
    scope: Scope
    history: History
    facts: Sequence[ReplayFact]
    run_id: int
    policy: Policy
    store: CubinStore
    library: str
    verdicts: list[NewVerdict] = field(default_factory=list)  # written together: a night may have thousands

    def add_verdict(
        self, point: Point, numbers: SeriesVerdict, verdict: str, reason: str, span: tuple[int, int] | None = None
    ) -> None:
        """Adds a verdict. `span` has the ids of the commits before and after the change."""
        columns: dict[str, Any] = {**vars(numbers), "verdict": verdict, "reason": reason}
        del columns["first_bad"]  # the commits of `span` are stored instead
        columns["good_commit_id"], columns["bad_commit_id"] = span or (None, None)
        self.verdicts.append(NewVerdict(run_id=point.run_id, **columns))

    def queue(self, question: BuildQuestion, priority: Priority, suspicion_id: int | None = None) -> list[UnsentJob]:
        """Queues the job for a replay. Returns the jobs to send, an empty list if the job exists already."""
        night = (self.run_id, self.scope.submission_id)
        job = ReplayJob(question, self.scope.repository, self.library, *night, suspicion_id)
        return follow_up.ask(self.session, job, priority)

    def open_suspicion(self, point: Point, commit_ids: tuple[int, int], size: float | None, reason: str) -> int:
        """Opens a suspicion for a run if the run has none, and returns the suspicion's id."""
        return suspicions.open_once(
            self.session,
            run_id=point.run_id,
            kernel=point.kernel,
            problem=point.problem,
            gpu_model=self.scope.gpu_model,
            good_commit_id=commit_ids[0],
            bad_commit_id=commit_ids[1],
            size=size,
            reason=reason,
        )


def open_night(session: Session, context: Context, scope: Scope, nights: Sequence[Night], run_id: int) -> OpenNight:
    """Returns the night of a judge job, ready to be judged in the given transaction."""
    facts = judging.list_replays(session, scope, nights[0].position if nights else 0)
    history = History(session, watched.find_history(session, context, scope.repository), scope, nights, facts)
    store = CubinStore(context.store_url)
    return OpenNight(session, scope, history, facts, run_id, context.policy, store, context.library)
