"""Which verdicts another policy would change."""

import datetime as dt

from sqlalchemy.orm import Session

from tilewatch.db.worker_reads.judging import JudgedRun, Night, Point, Scope
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.verdict import ConfirmedChange
from tilewatch.worker.judging.commit_history import History
from tilewatch.worker.judging.rejudge import ChangedVerdict, _differences
from tilewatch.worker.judging.scope_judge import ScopeJudge, series_of

DAY = dt.date(2026, 11, 20)
SCOPE = Scope(1, 1, "ab" * 20, 20, "tilewatch", "b200", "sm_100", "measured")


def test_only_a_stored_verdict_that_would_be_another_is_listed(db_session: Session) -> None:
    """Of four runs with a slower time, one has no verdict, and one has this verdict already."""
    points = [Point(1, run, "gemm", f"{run}", "n1", "toolchain", 9.0, 8.9, 9.1, None, None) for run in range(4)]
    judge = ScopeJudge([series_of(point) for point in points], Policy(), 100)
    judge.alerts = {series_of(point): ConfirmedChange(point.run_id, 7, 0.05, 0.001) for point in points[:3]}
    was = {
        run: JudgedRun(run, DAY, verdict) for run, verdict in ((1, "regression"), (2, "unchanged"), (3, "undecided"))
    }
    night = Night(1, 1, "cd" * 20, 7)
    (changed,) = _differences(judge, History(db_session, None, SCOPE, ()), SCOPE, night, points, was)
    reason = judge.verdict(series_of(points[2])).reason
    assert changed == ChangedVerdict(DAY, "gemm", "2", "b200", "cd" * 20, "unchanged", "regression", reason)
