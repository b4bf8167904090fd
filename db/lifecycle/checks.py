"""Changes the state of a check, which compares two commits. Repeating a write changes nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, case, exists, func, literal, or_, select, update
from sqlalchemy.orm import Session

from tilewatch.db.lifecycle.waiting import clock_now
from tilewatch.db.models import OPEN_JOB, Check, CheckOperator, Job
from tilewatch.db.natural_keys import find_or_add
from tilewatch.db.query_parts import find_row, select_row

FINE, OVER, UNSURE = 0, 1, 2
"""The exit codes of `tilewatch compare`: no operator is slower than allowed, one surely is, or one may be."""

LOST = "its job ended without an outcome"


@dataclass(frozen=True)
class CheckRequest:
    """The inputs of a check. `kernel` is None for all kernels. `fail_over` 0.02 allows 2 % slowdown."""

    repository: str
    base_sha: str
    head_sha: str
    head_subject: str
    gpu_model: str
    kernel: str | None
    fail_over: float


@dataclass(frozen=True)
class OpenOperator:
    """A kernel and problem that a check must still time at both commits."""

    check_id: int
    base_sha: str
    head_sha: str
    fail_over: float
    changed: int
    gpu_model: str
    kernel: str
    problem: str
    base_config: dict[str, int]
    head_config: dict[str, int]
    base_content_key: str
    head_content_key: str
    base_symbol: str
    head_symbol: str


def open_once(session: Session, asked: CheckRequest, who: str) -> tuple[int, bool]:
    """Adds a check unless an equal check is open or has succeeded. Returns the check's id and whether it is new."""
    key = ":".join(
        (asked.repository, asked.base_sha, asked.head_sha, asked.gpu_model, asked.kernel or "", str(asked.fail_over))
    )
    failed = or_(
        Check.failure.is_not(None), exists().where(CheckOperator.check_id == Check.id, CheckOperator.kind == "failed")
    )
    tries = session.scalar(
        select(func.count()).where(func.starts_with(Check.key, f"{key}#"), Check.ended_at.is_not(None), failed)
    )
    return find_or_add(session, Check, ("key",), {"key": f"{key}#{tries}", **vars(asked), "who": who})


def is_prepared(session: Session, check_id: int) -> bool:
    """Returns whether a check was prepared or has ended."""
    query = select(or_(Check.changed.is_not(None), Check.ended_at.is_not(None))).where(Check.id == check_id)
    return session.scalars(query).one()


def write_prepared(session: Session, check_id: int, rows: Sequence[Mapping[str, Any]]) -> list[tuple[int, str, str]]:
    """Stores the operators of a check. Returns the id, kernel and problem of each operator that must be timed."""
    waiting = []
    for row in rows:
        ended = {} if row["kind"] is None else {"ended_at": clock_now()}
        operator = {**row, "check_id": check_id, **ended}
        operator_id, _ = find_or_add(session, CheckOperator, ("check_id", "kernel", "problem"), operator)
        if row["kind"] is None:
            waiting.append((operator_id, row["kernel"], row["problem"]))
    session.execute(update(Check).where(Check.id == check_id).values(changed=len(waiting)))
    end_answered(session, check_id)
    return waiting


def find_open_operator(session: Session, operator_id: int) -> OpenOperator | None:
    """Returns an operator of a check; None if it already has an outcome."""
    query = (
        select_row(OpenOperator, [CheckOperator, Check])
        .join(Check, Check.id == CheckOperator.check_id)
        .where(CheckOperator.id == operator_id, CheckOperator.kind.is_(None))
    )
    return find_row(session, query, OpenOperator)


def write_outcome(session: Session, check_id: int, operator_id: int, columns: Mapping[str, Any]) -> None:
    """Stores the outcome of an operator if it has none yet. The last outcome ends the check."""
    which = and_(CheckOperator.id == operator_id, CheckOperator.kind.is_(None))
    _change(session, which, {**columns, "ended_at": clock_now()})
    end_answered(session, check_id)


def end_answered(session: Session, check_id: int) -> None:
    """Ends a check if all its operators have an outcome."""
    # The check is locked, so that of two operators that end at once the later one sees the earlier outcome.
    session.execute(select(Check.id).where(Check.id == check_id).with_for_update())
    is_open = exists().where(CheckOperator.check_id == Check.id, CheckOperator.kind.is_(None))
    is_over = exists().where(CheckOperator.check_id == Check.id, CheckOperator.is_over)
    is_unsure = exists().where(CheckOperator.check_id == Check.id, CheckOperator.is_unsure)
    answered = and_(Check.id == check_id, Check.ended_at.is_(None), ~is_open)
    code = case((is_over, OVER), (is_unsure, UNSURE), else_=FINE)
    session.execute(update(Check).where(answered).values(exit_code=code, ended_at=clock_now()))


def end_stranded(session: Session) -> None:
    """Ends checks and operators whose jobs failed or were cancelled."""
    preparing = Job.check_id == Check.id  # no other job is of a check that is not prepared
    unprepared = and_(
        Check.ended_at.is_(None), Check.changed.is_(None), ~exists().where(preparing, Job.state.in_(OPEN_JOB))
    )
    session.execute(
        update(Check).where(unprepared).values(failure=_reason(preparing), exit_code=UNSURE, ended_at=clock_now())
    )
    launching = and_(
        Job.check_id == CheckOperator.check_id, Job.payload["operator_id"].as_integer() == CheckOperator.id
    )
    stranded = and_(CheckOperator.kind.is_(None), ~exists().where(launching, Job.state.in_(OPEN_JOB)))
    reason = _reason(launching)
    columns = {
        "kind": "failed",
        "reason": reason,
        "sentence": literal("could not be compared: ").concat(reason),
        "is_unsure": True,
        "ended_at": clock_now(),
    }
    for check_id in _change(session, stranded, columns):
        end_answered(session, check_id)


def _reason(of_job: ColumnElement[bool]) -> ColumnElement[str]:
    """Returns the SQL expression for the reason why a job ended."""
    cancelled = literal("its job was cancelled")
    return func.coalesce(
        select(case((Job.state == "cancelled", cancelled), else_=Job.failure))
        .where(of_job)
        .order_by(Job.id.desc())
        .limit(1)
        .scalar_subquery(),
        LOST,
    )


def _change(session: Session, which: ColumnElement[bool], columns: Mapping[str, Any]) -> list[int]:
    """Changes columns of operators, and returns the sorted ids of the checks that contain these operators."""
    changed = session.scalars(update(CheckOperator).where(which).values(**columns).returning(CheckOperator.check_id))
    return sorted(set(changed))
