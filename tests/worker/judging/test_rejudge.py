"""Which verdicts another policy would change."""

import datetime as dt
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tilewatch.db.models import Verdict
from tilewatch.db.session import session
from tilewatch.db.worker_reads.judging import JudgedRun, Night, Point, Scope
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.verdict import ConfirmedChange
from tilewatch.worker.judging import rejudge as module
from tilewatch.worker.judging.commit_history import History
from tilewatch.worker.judging.rejudge import ChangedVerdict, _differences, rejudge
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


def test_the_verdicts_of_all_repositories_are_judged_again_and_stay_as_they_are(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repository that cannot be judged is named, and the runs of the others are counted."""
    names = ("one", "three", "two")
    with session(database_url) as opened:
        for name in names:
            one_commit.measure(opened, one_commit.submit(opened, f"night of {name}", name), f"run of {name}")
        opened.execute(update(Verdict).values(verdict="regression"))
    context: Any = SimpleNamespace(database_url=database_url, repository=tmp_path / "other", replay_launches=100)
    known = rejudge(context, Policy(), one_commit.NOON.date())
    assert [(each.was, each.would_be, each.night) for each in known.changed] == [
        ("regression", "undecided", one_commit.NOON.date())
    ] * 3
    assert (known.runs, known.failures) == (3, ())
    of_day_after = rejudge(context, Policy(), one_commit.NOON.date() + dt.timedelta(days=1))
    assert (of_day_after.runs, of_day_after.changed) == (0, ())

    rejudge_scope = module._rejudge_scope

    def fail_on_three(opened: Session, context: Any, scope: Scope, *rest: Any) -> Any:
        return 1 / 0 if scope.repository == "three" else rejudge_scope(opened, context, scope, *rest)

    monkeypatch.setattr(module, "_rejudge_scope", fail_on_three)
    left = rejudge(context, Policy(), one_commit.NOON.date())
    assert (left.runs, len(left.changed)) == (2, 2)
    assert left.failures == ("three on b200 cannot be judged again: ZeroDivisionError: division by zero",)
    with session(database_url) as opened:
        assert {each.verdict for each in opened.query(Verdict)} == {"regression"}

    def lose_postgres(*_: object) -> None:
        raise OperationalError("select 1", {}, Exception("the server closed the connection"))

    monkeypatch.setattr(module, "_rejudge_scope", lose_postgres)
    with pytest.raises(OperationalError):
        rejudge(context, Policy(), one_commit.NOON.date())
