"""The states of a check: what ends it, with which exit code, and that no write counts twice."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import func, select, text, update
from sqlalchemy.orm import Session

from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import checks, jobs
from tilewatch.db.lifecycle.checks import CheckRequest
from tilewatch.db.models import Check, CheckOperator, Job
from tilewatch.db.page_reads.checks import CheckStory, find_check
from tilewatch.db.session import session

FASTER = {"kind": "faster", "change": -0.1, "base_us": [10.0, 10.1], "head_us": [9.0, 9.1]}
SLOWER = {"kind": "slower", "change": 0.1, "base_us": [10.0], "head_us": [11.0], "is_over": True}
UNDECIDED = {"kind": "undecided", "change": 0.01, "base_us": [10.0], "head_us": [10.1], "is_unsure": True}


def make_check(opened: Session) -> int:
    fact_writes.add_gpu_model(opened, slug="b200", name="B200", arch="sm_100", fp8_tflops=4500.0, bandwidth_gbps=8000.0)
    return checks.open_once(opened, CheckRequest("tilewatch", "a" * 40, "b" * 40, "Tile it", "b200", None, 0.0), "ada")[
        0
    ]


def prepare(opened: Session, check_id: int, **kinds: str | None) -> list[int]:
    """The operators of these problems with these outcomes; the ids of those without one."""
    rows = [{"kernel": "gemm", "problem": problem, "kind": kind} for problem, kind in kinds.items()]
    return [operator_id for operator_id, _, _ in checks.write_prepared(opened, check_id, rows)]


def read(opened: Session, check_id: int) -> CheckStory:
    opened.expire_all()
    story = find_check(opened, check_id)
    assert story is not None
    return story


@pytest.mark.parametrize(
    ("outcomes", "exit_code"),
    [([FASTER, FASTER], 0), ([FASTER, SLOWER], 1), ([UNDECIDED, FASTER], 2), ([UNDECIDED, SLOWER], 1)],
)
def test_the_last_outcome_ends_a_check(db_session: Session, outcomes: list[dict[str, Any]], exit_code: int) -> None:
    check_id = make_check(db_session)
    first, second = prepare(db_session, check_id, small=None, large=None, other="identical")
    checks.write_outcome(db_session, check_id, first, outcomes[0])
    half = read(db_session, check_id).check
    assert (half.exit_code, half.ended_at, half.operators, half.answered) == (None, None, 3, 2)
    checks.write_outcome(db_session, check_id, second, outcomes[1])
    ended = read(db_session, check_id).check
    assert ended.exit_code == exit_code
    assert ended.ended_at is not None


def test_of_two_operators_that_end_at_once_the_later_one_ends_the_check(db_session: Session, database_url: str) -> None:
    """If neither saw the other's outcome, the check would never end."""
    check_id = make_check(db_session)
    first, second = prepare(db_session, check_id, small=None, large=None)
    db_session.commit()
    checks.write_outcome(db_session, check_id, first, FASTER)

    def end_second() -> None:
        with session(database_url) as opened:
            checks.write_outcome(opened, check_id, second, SLOWER)

    with ThreadPoolExecutor(1) as threads, session(database_url) as looking:
        later = threads.submit(end_second)
        while not later.done() and not looking.scalar(text("select count(*) from pg_locks where not granted")):
            pass
        db_session.commit()
        later.result()
    assert read(db_session, check_id).check.exit_code == 1


def test_the_first_outcome_of_an_operator_stays(db_session: Session) -> None:
    check_id = make_check(db_session)
    first, second = prepare(db_session, check_id, small=None, large=None)
    checks.write_outcome(db_session, check_id, first, FASTER)
    before = read(db_session, check_id)
    checks.write_outcome(db_session, check_id, first, SLOWER)
    again = prepare(db_session, check_id, small=None, large=None)
    assert again == [first, second], "the operators of a second attempt are those of the first"
    assert read(db_session, check_id) == before
    assert checks.find_open_operator(db_session, first) is None


def test_an_outcome_locks_no_other_check(db_session: Session, database_url: str) -> None:
    """Two checks may end at once, and each on its own."""
    check_id = make_check(db_session)
    asked = CheckRequest("tilewatch", "a" * 40, "c" * 40, "Tile it", "b200", None, 0.0)
    other, _ = checks.open_once(db_session, asked, "ada")
    (operator,) = prepare(db_session, check_id, small=None)
    db_session.commit()
    checks.write_outcome(db_session, check_id, operator, FASTER)
    with session(database_url) as opened:
        free = opened.scalars(select(Check.id).with_for_update(skip_locked=True)).all()
    assert free == [other]


def test_an_operator_without_a_launch_ends_as_it_is_prepared(db_session: Session) -> None:
    check_id = make_check(db_session)
    waiting = checks.write_prepared(
        db_session,
        check_id,
        [{"kernel": "gemm", "problem": name, "kind": kind} for name, kind in (("a", None), ("b", "identical"))],
    )
    ended = dict(db_session.execute(select(CheckOperator.problem, CheckOperator.ended_at.is_not(None))).all())  # type: ignore[arg-type]  # rows are pairs
    assert ended == {"a": False, "b": True}
    assert [(kernel, problem) for _, kernel, problem in waiting] == [("gemm", "a")]


def test_a_check_without_changed_code_ends_as_it_is_prepared(db_session: Session) -> None:
    check_id = make_check(db_session)
    assert not checks.is_prepared(db_session, check_id)
    assert prepare(db_session, check_id, small="identical") == []
    assert read(db_session, check_id).check.exit_code == 0
    assert checks.is_prepared(db_session, check_id)


def test_a_check_without_a_job_is_ended(db_session: Session) -> None:
    unprepared = make_check(db_session)
    checks.end_stranded(db_session)
    ended = read(db_session, unprepared).check
    assert (ended.exit_code, ended.failure) == (2, checks.LOST)
    again = make_check(db_session)
    assert again != unprepared
    (waiting,) = prepare(db_session, again, small=None)
    checks.end_stranded(db_session)
    (operator,) = read(db_session, again).operators
    assert (operator.kind, operator.reason, operator.is_unsure) == ("failed", checks.LOST, True)
    assert read(db_session, again).check.exit_code == 2
    assert checks.find_open_operator(db_session, waiting) is None


def test_an_equal_check_is_found_again_unless_something_of_it_could_not_be_compared(db_session: Session) -> None:
    first = make_check(db_session)
    (operator,) = prepare(db_session, first, small=None, other="identical")
    assert make_check(db_session) == first, "it has not ended"
    checks.write_outcome(db_session, first, operator, SLOWER)
    asked = CheckRequest("tilewatch", "a" * 40, "c" * 40, "Tile it", "b200", None, 0.0)
    prepare(db_session, checks.open_once(db_session, asked, "ada")[0], small="failed")
    assert make_check(db_session) == first
    db_session.execute(update(CheckOperator).where(CheckOperator.id == operator).values(kind="failed"))
    assert make_check(db_session) != first


def test_a_failure_within_an_open_check_or_of_another_check_makes_no_new_one(db_session: Session) -> None:
    first = make_check(db_session)
    (operator,) = prepare(db_session, first, small=None, large="failed")
    asked = CheckRequest("tilewatch", "a" * 40, "c" * 40, "Tile it", "b200", None, 0.0)
    other, _ = checks.open_once(db_session, asked, "ada")
    failed = {"failure": "its GPU is gone", "exit_code": 2, "ended_at": func.now()}
    db_session.execute(update(Check).where(Check.id == other).values(**failed))
    assert make_check(db_session) == first
    checks.write_outcome(db_session, first, operator, FASTER)
    assert make_check(db_session) != first


def test_a_check_that_has_ended_stays_as_it_ended_and_is_not_prepared_again(db_session: Session) -> None:
    unprepared = make_check(db_session)
    checks.end_stranded(db_session)
    lost = read(db_session, unprepared)
    end_job(db_session, "failed", "a later failure", unprepared)
    checks.end_stranded(db_session)
    assert read(db_session, unprepared) == lost
    assert checks.is_prepared(db_session, unprepared)
    answered = make_check(db_session)
    prepare(db_session, answered, small="identical")
    ended = read(db_session, answered)
    prepare(db_session, answered, small="identical")
    assert read(db_session, answered) == ended


def test_what_a_job_will_still_answer_is_not_stranded_and_another_job_answers_nothing(db_session: Session) -> None:
    """Of two operators one has its job, so the other one alone is ended, and so is a check that nobody prepares."""
    check_id = make_check(db_session)
    held, lost = prepare(db_session, check_id, small=None, large=None)
    payload = {"operator_id": held}
    jobs.add(db_session, key="check:1", kind="check", queue="b200", subject="gemm", payload=payload, check_id=check_id)
    checks.end_stranded(db_session)
    assert {each.problem: each.kind for each in read(db_session, check_id).operators} == {
        "small": None,
        "large": "failed",
    }
    assert checks.find_open_operator(db_session, held) is not None
    assert checks.find_open_operator(db_session, lost) is None


def end_job(opened: Session, state: str, failure: str, check_id: int, operator_id: int | None = None) -> None:
    """A job that prepares the check, or launches the operator, and has ended with this state."""
    kind, payload = ("prepare_check", {}) if operator_id is None else ("check", {"operator_id": operator_id})
    of = {"kind": kind, "queue": "b200", "subject": "gemm", "payload": payload, "check_id": check_id}
    job_id, _ = jobs.add(opened, key=f"job {opened.scalar(select(func.count(Job.id)))}", **of)  # type: ignore[arg-type]  # a test's short hand
    said = failure if state in ("failed", "poison") else None
    opened.execute(update(Job).where(Job.id == job_id).values(state=state, failure=said))


@pytest.mark.parametrize(
    ("states", "reason"),
    [
        (["failed"], "failure 0"),
        (["poison"], "failure 0"),
        (["cancelled"], "its job was cancelled"),
        (["done"], checks.LOST),
        (["failed", "failed"], "failure 1"),
        (["failed", "cancelled"], "its job was cancelled"),
        (["cancelled", "failed"], "failure 1"),
    ],
    ids=str,
)
def test_what_is_stranded_has_the_reason_of_its_own_last_job(
    db_session: Session, states: list[str], reason: str
) -> None:
    asked = CheckRequest("tilewatch", "a" * 40, "c" * 40, "Tile it", "b200", None, 0.0)
    prepared, unprepared = make_check(db_session), checks.open_once(db_session, asked, "ada")[0]
    operator, other = prepare(db_session, prepared, small=None, large=None)
    for number, state in enumerate(states):
        end_job(db_session, state, f"failure {number}", unprepared)
        end_job(db_session, state, f"failure {number}", prepared, operator)
    end_job(db_session, "failed", "of the other check", prepared)
    end_job(db_session, "failed", "of the other operator", prepared, other)
    checks.end_stranded(db_session)
    assert (read(db_session, unprepared).check.failure, read(db_session, prepared).check.failure) == (reason, None)
    reasons = {each.problem: (each.reason, each.sentence) for each in read(db_session, prepared).operators}
    assert reasons == {
        "small": (reason, f"could not be compared: {reason}"),
        "large": ("of the other operator", "could not be compared: of the other operator"),
    }
