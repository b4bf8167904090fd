"""The outcomes of suspicions: which nights close which of them, and that the first outcome stays."""

from typing import Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tests.worker.fixtures import open_regression
from tilewatch.db import fact_writes
from tilewatch.db.fact_writes import NewVerdict
from tilewatch.db.lifecycle import actions, suspicions
from tilewatch.db.lifecycle.suspicions import AWAITS_REPLAY
from tilewatch.db.models import Regression, Replay, Run, Suspicion, Sweep, Verdict
from tilewatch.db.session import session
from tilewatch.db.worker_reads.judging import Scope

TONIGHT = 7
"""The position of the commit of the night that is judged."""


def suspect(
    opened: Session, night: int, *, repository: str = "tilewatch", position: int = TONIGHT - 1, **row: Any
) -> tuple[int, one_commit.Planned]:
    """A night with one run and an open suspicion of it; `row` are columns of its run."""
    planned = one_commit.submit(opened, f"night {night}", repository, sha=f"{night:040x}", position=position)
    run_id = one_commit.measure(opened, planned, f"run {night}")
    if gpu_model := row.pop("gpu_model", None):
        fact_writes.add_gpu_model(
            opened, slug=gpu_model, name=gpu_model, arch="sm_90", fp8_tflops=None, bandwidth_gbps=None
        )
        opened.execute(update(Sweep).where(Sweep.id == planned.sweep_id).values(gpu_model=gpu_model))
    if row:
        opened.execute(update(Run).where(Run.id == run_id).values(**row))
    commit_id = opened.get_one(Sweep, planned.sweep_id).commit_id
    of = {"kernel": "gemm_fp8", "problem": "320x32576x7168", "gpu_model": "b200"}
    ends = {"good_commit_id": commit_id, "bad_commit_id": commit_id}
    suspicions.open_once(opened, run_id=run_id, **of, **ends, size=0.05, reason="+5.0%")  # type: ignore[arg-type]  # a test's short hand
    verdict = {"verdict": "undecided", "change": 0.05, "noise": 0.01, "history_points": 3, "policy": "p"}
    fact_writes.write_verdicts(opened, [NewVerdict(run_id=run_id, reason=f"+5.0%{AWAITS_REPLAY}", **verdict)])  # type: ignore[arg-type]  # a test's short hand
    return run_id, planned


def list_outcomes(opened: Session) -> dict[int, tuple[str, str]]:
    query = select(Suspicion.run_id, Suspicion.state, Suspicion.reason)
    return {run_id: (state, reason) for run_id, state, reason in opened.execute(query)}


@pytest.mark.parametrize(
    ("differs", "is_closed"),
    [
        ({}, True),
        ({"position": TONIGHT}, True),
        ({"position": TONIGHT + 1}, False),
        ({"repository": "another"}, False),
        ({"gpu_model": "h200"}, False),
        ({"origin": "simulated", "timer": "simulated"}, False),
    ],
    ids=str,
)
def test_a_night_closes_the_suspicions_of_the_earlier_nights_of_its_scope_alone(
    db_session: Session, differs: dict[str, Any], is_closed: bool
) -> None:
    other, _ = suspect(db_session, 1, **differs)
    tonight, planned = suspect(db_session, 2, position=TONIGHT)
    scope = Scope(planned.submission_id, 0, "", TONIGHT, "tilewatch", "b200", "sm_100", "measured")
    assert suspicions.close_older(db_session, scope, "too late") == is_closed
    states = {run_id: state for run_id, (state, _) in list_outcomes(db_session).items()}
    assert states == {tonight: "open", other: "undecided" if is_closed else "open"}
    reasons = [db_session.get_one(Verdict, run_id).reason for run_id in (other, tonight)]
    assert [reason.endswith(AWAITS_REPLAY) for reason in reasons] == [not is_closed, True]


def test_a_night_that_is_judged_again_closes_none_of_a_later_night_of_its_commit(db_session: Session) -> None:
    _, planned = suspect(db_session, 1, position=TONIGHT)
    suspect(db_session, 2, position=TONIGHT)
    scope = Scope(planned.submission_id, 0, "", TONIGHT, "tilewatch", "b200", "sm_100", "measured")
    assert suspicions.close_older(db_session, scope, "too late") == 0


def test_a_verdict_awaits_no_replay_after_its_request_was_refused(db_session: Session) -> None:
    run_id, _ = suspect(db_session, 1)
    action_id = actions.ask(db_session, "ada", "bisect", {"run": run_id})
    actions.end_request(db_session, action_id or 0, refused=True, outcome="its repository is gone")
    assert db_session.get_one(Verdict, run_id).reason == "+5.0%"


def test_the_first_outcome_of_a_suspicion_stays(db_session: Session) -> None:
    earlier, _ = suspect(db_session, 1)
    other, planned = suspect(db_session, 2, position=TONIGHT)
    suspicions.close(db_session, earlier, "confirmed", "replays show it")
    suspicions.close(db_session, earlier, "refuted", "replays do not show it")
    scope = Scope(planned.submission_id, 0, "", TONIGHT, "tilewatch", "b200", "sm_100", "measured")
    assert suspicions.close_older(db_session, scope, "too late") == 0
    assert list_outcomes(db_session) == {earlier: ("confirmed", "replays show it"), other: ("open", "+5.0%")}


def test_a_run_has_one_suspicion_which_is_found_by_its_number(db_session: Session) -> None:
    run_id, _ = suspect(db_session, 1)
    found = suspicions.find_id_of_run(db_session, run_id)
    assert found is not None
    assert db_session.get_one(Suspicion, found).run_id == run_id
    assert suspicions.find_id_of_run(db_session, 4711) is None


def test_a_replay_is_stored_once_and_its_launches_are_counted_once(db_session: Session) -> None:
    number = open_regression.regress(db_session)
    regression = db_session.get_one(Regression, number)
    run_id, _ = suspect(db_session, 2)
    suspicion_id = suspicions.find_id_of_run(db_session, run_id)
    row = {"kernel": "k", "problem": "p", "gpu_model": "b200", "axis": "commit", "gpu_s": 2.0, "origin": "measured"}
    row |= {"good_commit_id": regression.good_commit_id, "bad_commit_id": regression.bad_commit_id}
    of = {**row, "suspicion_id": suspicion_id}
    for key, held, times in (("a", of, [1.0, 2.0]), ("a", of, [3.0]), ("b", of, [4.0]), ("c", row, [5.0])):
        suspicions.write_replay(db_session, key, held, good_us=times, bad_us=times)
    db_session.expire_all()
    assert db_session.get_one(Suspicion, suspicion_id).launches == 3
    stored = db_session.execute(select(Replay.key, Replay.good_us, Replay.failure).order_by(Replay.key)).all()
    assert [tuple(each) for each in stored] == [("a", [1.0, 2.0], None), ("b", [4.0], None), ("c", [5.0], None)]


def test_a_run_is_locked_alone(db_session: Session, database_url: str) -> None:
    """Two requests for a replay of it would both find none that was asked for."""
    run_id, _ = suspect(db_session, 1)
    other, _ = suspect(db_session, 2)
    db_session.commit()
    suspicions.lock_run(db_session, run_id)
    with session(database_url) as opened:
        assert opened.scalars(select(Run.id).with_for_update(skip_locked=True)).all() == [other]
