"""Reads checks, which compare two commits, with the outcome of each operator."""

import datetime as dt
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select, true
from sqlalchemy.orm import Session

from tilewatch.db.models import Check, CheckOperator, GpuModel
from tilewatch.db.query_parts import Query, find_row, read_rows, select_row

NEWEST = 50


@dataclass(frozen=True)
class CheckRow:
    """One row of the list of checks."""

    id: int
    repository: str
    base_sha: str
    head_sha: str
    head_subject: str
    gpu_model: str
    gpu_name: str
    arch: str
    kernel: str | None
    fail_over: float
    who: str
    changed: int | None  # operators to time; None until the check is prepared
    exit_code: int | None  # 0 for fine, 1 for slower, 2 for could not tell; None until the check has ended
    failure: str | None  # why it has no operators
    requested_at: dt.datetime
    ended_at: dt.datetime | None
    operators: int
    answered: int  # operators with an outcome
    gpu_s: float

    @property
    def state(self) -> str:
        """Returns the state of the check in words."""
        if self.exit_code is not None:
            return ("fine", "slower", "could not tell")[self.exit_code]
        return "being prepared" if self.changed is None else "being answered"


@dataclass(frozen=True)
class CheckOperatorRow:
    """A kernel and problem of a check. db/models.py explains the fields."""

    kernel: str
    problem: str
    kind: str | None  # the outcome; None if it has no outcome yet
    reason: str
    not_apart: str
    sentence: str
    moved: list[str]
    config_source: str
    base_config: dict[str, Any] | None
    head_config: dict[str, Any] | None
    base_us: list[float]
    head_us: list[float]
    change: float | None
    low: float | None
    high: float | None
    not_slower_than: float | None
    is_over: bool
    is_unsure: bool
    host: str | None
    gpu_uuid: str | None
    gpu_s: float
    ended_at: dt.datetime | None


@dataclass(frozen=True)
class CheckStory:
    """A check with its operators. A check that is not prepared has no operators."""

    check: CheckRow
    operators: tuple[CheckOperatorRow, ...]


def find_check(session: Session, check_id: int) -> CheckStory | None:
    """Returns a check with its operators; None if the check does not exist."""
    row = find_row(session, _checks().where(Check.id == check_id), CheckRow)
    if row is None:
        return None
    stored = select_row(CheckOperatorRow, [CheckOperator])
    operators = stored.where(CheckOperator.check_id == check_id).order_by(CheckOperator.id)
    return CheckStory(row, tuple(read_rows(session, operators, CheckOperatorRow)))


def list_checks(session: Session, limit: int | None = None) -> list[CheckRow]:
    """Lists the newest checks, newest first. If `limit` is None, all open checks are included."""
    query = _checks().order_by(Check.id.desc()).limit(limit)
    if limit is None:
        newest = select(Check.id).order_by(Check.id.desc()).limit(NEWEST)
        query = query.where(Check.ended_at.is_(None) | Check.id.in_(newest))
    return read_rows(session, query, CheckRow)


def _checks() -> Query:
    counted = (
        select(
            func.count().label("operators"),
            func.count(CheckOperator.kind).label("answered"),
            func.coalesce(func.sum(CheckOperator.gpu_s), 0.0).label("gpu_s"),
        )
        .where(CheckOperator.check_id == Check.id)
        .lateral()
    )
    return (
        select_row(CheckRow, [Check, GpuModel, counted], gpu_name=GpuModel.name)
        .join(GpuModel, GpuModel.slug == Check.gpu_model)
        .join(counted, true())
    )
