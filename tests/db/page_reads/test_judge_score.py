"""The score holds what people marked, how soon they were notified, and what replays cost."""

import datetime as dt

import pytest
from sqlalchemy import select, text, update
from sqlalchemy.orm import Session

from tests.worker.fixtures import open_regression
from tilewatch.db.lifecycle import messages, regressions
from tilewatch.db.models import Commit, Message, Regression, Replay, Run, Suspicion
from tilewatch.db.page_reads import judge_score


def report(opened: Session, number: int, after_h: float) -> None:
    """The first message about a regression went out so long after its bad commit."""
    messages.write(opened, key=f"m{number}", kind="opened", channel="log", subject="", body="", regression_id=number)
    bad = opened.get_one(Commit, opened.get_one(Regression, number).bad_commit_id)
    sent_at = bad.committed_at + dt.timedelta(hours=after_h)
    opened.execute(update(Message).where(Message.regression_id == number).values(state="sent", sent_at=sent_at))


def test_without_marks_there_is_no_precision(db_session: Session) -> None:
    open_regression.regress(db_session)
    found = judge_score.read_score(db_session)
    assert (found.points, found.regressions, found.improvements) == (1, 1, 0)
    assert (found.precision, found.precision_interval, found.from_commit.median_h) == (None, None, None)


def test_marks_give_precision_and_the_newest_of_several_people_counts(db_session: Session) -> None:
    numbers = [open_regression.regress(db_session, kernel=f"kernel_{each}") for each in range(4)]
    for number in numbers:
        regressions.mark(db_session, "ada", right=True, regression_id=number)
    regressions.mark(db_session, "eve", right=False, regression_id=numbers[0])
    found = judge_score.read_score(db_session)
    assert (found.right, found.wrong, found.precision) == (3, 1, 0.75)
    low, high = found.precision_interval or (0.0, 0.0)
    assert (low, high) == (pytest.approx(0.301, abs=0.001), pytest.approx(0.954, abs=0.001))
    assert found.false_alarms_per_1000 == 1000.0  # one point was judged, and it was one


def test_a_run_that_was_marked_counts_beside_regressions_and_not_twice(db_session: Session) -> None:
    number = open_regression.regress(db_session)
    run_id = db_session.scalars(select(Run.id)).one()
    regressions.mark(db_session, "ada", right=False, run_id=run_id)  # its verdict saw no change: something was missed
    assert (judge_score.read_score(db_session).wrong, judge_score.read_score(db_session).missed) == (0, 1)
    regressions.mark(db_session, "ada", right=True, regression_id=number)
    assert (judge_score.read_score(db_session).right, judge_score.read_score(db_session).missed) == (1, 0)
    db_session.execute(text("update verdicts set verdict = 'regression'"))
    assert (judge_score.read_score(db_session).right, judge_score.read_score(db_session).wrong) == (1, 0)


def test_the_time_to_detect_is_from_the_bad_commit_to_the_first_message(db_session: Session) -> None:
    for hours in (2.0, 4.0, 12.0):
        report(db_session, open_regression.regress(db_session, kernel=f"kernel_{hours}"), hours)
    open_regression.regress(db_session, kernel="unreported")
    found = judge_score.read_score(db_session).from_commit
    assert (found.count, found.median_h) == (3, pytest.approx(4.0))
    assert found.p90_h == pytest.approx(10.4)


def test_what_replays_took_is_held_against_what_was_measured_anyway(db_session: Session) -> None:
    open_regression.regress(db_session)
    run_id = db_session.scalars(select(Run.id)).one()
    good, bad = db_session.scalars(select(Commit.id).order_by(Commit.position).limit(2))
    series = {"kernel": "gemm_fp8", "problem": "1x1x1", "gpu_model": "b200"}
    about = {**series, "good_commit_id": good, "bad_commit_id": bad}
    db_session.add(
        Suspicion(run_id=run_id, **about, state="refuted", reason="gone", launches=4, closed_at=dt.datetime.now(dt.UTC))
    )
    db_session.add(
        Replay(key="r", **about, axis="commit", good_us=[1.0] * 4, bad_us=[1.0] * 4, gpu_s=1, origin="measured")
    )
    db_session.flush()
    found = judge_score.read_score(db_session)
    assert (found.suspicions, found.confirmed, found.refuted) == (1, 0, 1)
    assert (found.launches, found.runs, found.launches_a_run) == (4, 1, 4.0)
    assert judge_score.read_score(db_session, dt.datetime.now(dt.UTC) + dt.timedelta(days=1)).suspicions == 0
