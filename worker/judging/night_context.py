"""Bundles what is needed to judge a night: its database transaction, its scope's history, and the verdicts so far."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from tilewatch.db.fact_writes import NewVerdict
from tilewatch.db.lifecycle import suspicions
from tilewatch.db.worker_reads.judging import Point, ReplayFact, Scope
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.verdict import SeriesVerdict
from tilewatch.worker.judging.commit_history import History


@dataclass(frozen=True)
class OpenNight:
    """A night that is judged by the judge job of the run `run_id`: once now, and after each round of replays."""

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
        """Adds a verdict. `span` has the ids of the last commit before a change and the first with all of it."""
        self.verdicts.append(
            NewVerdict(
                run_id=point.run_id,
                verdict=verdict,
                change=numbers.change,
                noise=numbers.noise,
                history_points=numbers.history_points,
                policy=numbers.policy,
                reason=reason,
                low=numbers.low,
                high=numbers.high,
                smallest=numbers.smallest,
                good_commit_id=span[0] if span else None,
                bad_commit_id=span[1] if span else None,
            )
        )

    def open_suspicion(self, point: Point, commit_ids: tuple[int, int], size: float | None, reason: str) -> int:
        """Returns the id of the suspicion of a run, and opens that suspicion if the run has none yet."""
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
