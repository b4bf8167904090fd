"""A replay of an undecided run is asked for once, by a person with a name, and where it is possible alone."""

from collections.abc import Callable

import pytest
from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tests.db.fixtures.one_commit import NOON
from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import actions, suspicions
from tilewatch.db.lifecycle.regressions import NotPossible
from tilewatch.db.models import TOTAL, Action, Commit, Compilation, Quarantine, Recording, Run, Sweep, Verdict, Worker
from tilewatch.db.repository_names import name_of_branch


@pytest.fixture
def undecided(db_session: Session) -> int:
    """The run of the second of two measured commits, with a live worker of its GPU model."""
    for position in (7, 8):
        planned = one_commit.submit(db_session, f"night {position}", sha=f"{position:040x}", position=position)
        fact_writes.add_compilations(db_session, [one_commit.compiled(code) for code in planned.code_keys])
        fact_writes.attach_compilations(db_session, compiler=one_commit.COMPILER, sweep_ids=[planned.sweep_id])
        run_id = one_commit.measure(db_session, planned, f"run {position}")
    db_session.add(Worker(name="gpu", kind="gpu", host="node-a", gpu_model="b200", gpu_uuid="GPU-1", toolchain={}))
    db_session.flush()
    return run_id


def read_reason(opened: Session, run_id: int) -> str:
    return str(opened.scalar(select(Verdict.reason).where(Verdict.run_id == run_id)))


def test_a_replay_is_asked_for_once_and_the_verdict_and_the_actions_say_so(db_session: Session, undecided: int) -> None:
    before = read_reason(db_session, undecided)
    said = actions.replay(db_session, undecided, "ada")
    assert said == f"a replay of run {undecided} is asked for; a worker queues it within a minute"
    for _ in range(2):
        with pytest.raises(NotPossible, match="a replay is asked for already"):
            actions.replay(db_session, undecided, "eve")
    (asked,) = db_session.scalars(select(Action))
    assert (asked.who, asked.state, asked.wanted) == ("ada", "asked", {"run": undecided})
    assert read_reason(db_session, undecided) == f"{before}; a replay is asked for"
    actions.end_request(db_session, asked.id, refused=False, outcome="not sure enough")
    actions.replay(db_session, undecided, "eve")
    assert read_reason(db_session, undecided) == f"{before}; a replay is asked for", "and not twice"


def judge(opened: Session, run_id: int, verdict: str) -> None:
    opened.execute(update(Verdict).where(Verdict.run_id == run_id).values(verdict=verdict))


def suspect(opened: Session, run_id: int) -> None:
    commit_id = opened.get_one(Sweep, opened.get_one(Run, run_id).sweep_id).commit_id
    of = {"kernel": "gemm_fp8", "problem": "320x32576x7168", "gpu_model": "b200"}
    ends = {"good_commit_id": commit_id, "bad_commit_id": commit_id}
    suspicions.open_once(opened, run_id=run_id, **of, **ends, size=0.05, reason="+5.0%")  # type: ignore[arg-type]  # a test's short hand


def record(opened: Session, run_id: int) -> None:
    recording = Recording(sha256="f" * 64, file_name="r.jsonl.gz", machine="lab", recorded_at=NOON)
    opened.add(recording)
    opened.flush()
    opened.execute(update(Run).where(Run.id == run_id).values(origin="recorded", recording_id=recording.id))


def move_to_branch(opened: Session) -> None:
    name = name_of_branch("tilewatch", "topic")
    opened.execute(update(Commit).values(repository=name))
    opened.execute(update(Sweep).values(repository=name))


OBSTACLES: dict[str, Callable[[Session, int], object]] = {
    "it was recorded elsewhere, so its cubins are not here": record,
    "its verdict is unchanged": lambda opened, run_id: judge(opened, run_id, "unchanged"),
    "it is not judged yet": lambda opened, run_id: opened.execute(delete(Verdict).where(Verdict.run_id == run_id)),
    "a weighted total has no cubin; replay its parts": lambda opened, _: opened.execute(
        update(Sweep).values(kernel=TOTAL)
    ),
    "its night is still being judged": suspect,
    "no earlier commit of its series was measured here": lambda opened, run_id: opened.execute(
        delete(Run).where(Run.id != run_id)
    ),
    "no config gave a right answer, so it has no cubin": lambda opened, _: opened.execute(
        update(Compilation).values(status="timeout", content_key=None, code_sha256=None, failure="15 s")
    ),
    "no B200 has a worker now": lambda opened, _: opened.execute(update(Worker).values(seen_at=NOON)),
}


@pytest.mark.parametrize(("why_not", "bring_about"), OBSTACLES.items(), ids=OBSTACLES)
def test_where_no_replay_is_possible_a_sentence_says_why(
    db_session: Session, undecided: int, why_not: str, bring_about: Callable[[Session, int], object]
) -> None:
    bring_about(db_session, undecided)
    db_session.expire_all()
    with pytest.raises(NotPossible, match=f"^run {undecided} is not replayed: {why_not}$"):
        actions.replay(db_session, undecided, "ada")
    assert db_session.scalar(select(func.count(Action.id))) == 0


def test_a_run_of_a_branch_an_ill_gpu_and_a_run_that_is_not_there_are_refused(
    db_session: Session, undecided: int
) -> None:
    with pytest.raises(NotPossible, match="there is no run 4711"):
        actions.replay(db_session, 4711, "ada")
    db_session.add(Quarantine(gpu_uuid="GPU-1", host="node-a", gpu_model="b200", kind="ecc", reason="hot", evidence={}))
    db_session.flush()
    with pytest.raises(NotPossible, match="no B200 has a worker now"):
        actions.replay(db_session, undecided, "ada")
    move_to_branch(db_session)
    db_session.expire_all()
    with pytest.raises(NotPossible, match="a branch has no series of nights"):
        actions.replay(db_session, undecided, "ada")
