"""Changes reports that compare two toolchains. Every such change is here. Whoever opened the session commits."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import and_, exists, func, or_, select, update
from sqlalchemy.orm import Session

from tilewatch.db.models import OPEN_JOB, Job, ToolchainReport
from tilewatch.db.natural_keys import find_or_add

Written = Literal["added", "changed", "unchanged"]


@dataclass(frozen=True)
class JudgedReport:
    """The columns of a report; db/models.py says what they mean."""

    key: str
    a: str
    b: str
    made_at: dt.datetime
    contents: Mapping[str, Any]
    answer: Mapping[str, Any]
    markdown: str


def begin(session: Session, key: str, a: str, b: str, made_at: dt.datetime) -> tuple[int, bool]:
    """Opens a report that jobs will make. Returns its id, and whether it is new: one that jobs make just now is found
    again by its key, and one that has ended is not."""
    earlier = ToolchainReport.key.startswith(f"{key}#", autoescape=True)
    is_open = and_(Job.id == ToolchainReport.job_id, Job.state.in_(OPEN_JOB))
    if (found := session.scalar(select(ToolchainReport.id).where(earlier, exists().where(is_open)))) is not None:
        return found, False
    number = session.scalar(select(func.count()).select_from(ToolchainReport).where(earlier))
    rest = {"a": a, "b": b, "made_at": made_at, "contents": {}, "answer": {}, "markdown": ""}
    return find_or_add(session, ToolchainReport, {"key": f"{key}#{number}"}, rest)


def write_job(session: Session, report_id: int, job_id: int) -> None:
    """Names the job that goes on with a report."""
    session.execute(update(ToolchainReport).where(ToolchainReport.id == report_id).values(job_id=job_id))


def read_contents(session: Session, report_id: int) -> dict[str, Any]:
    """Returns an empty one for a report that has nothing yet."""
    return session.scalars(select(ToolchainReport.contents).where(ToolchainReport.id == report_id)).one()


def write_progress(
    session: Session, report_id: int, contents: Mapping[str, Any], answer: Mapping[str, Any], markdown: str
) -> None:
    """Stores what jobs have found so far."""
    columns = {"contents": contents, "answer": answer, "markdown": markdown}
    session.execute(update(ToolchainReport).where(ToolchainReport.id == report_id).values(**columns))


def write_report(session: Session, report: JudgedReport) -> Written:
    """Stores a report, or what is new in one that is stored: later launches, or another judgement of the same."""
    columns = {name: value for name, value in vars(report).items() if name != "key"}
    report_id, is_new = find_or_add(session, ToolchainReport, {"key": report.key}, columns)
    if is_new:
        return "added"
    differs = or_(*(getattr(ToolchainReport, name) != columns[name] for name in ("contents", "answer", "markdown")))
    if session.scalar(select(ToolchainReport.id).where(ToolchainReport.id == report_id, differs)) is None:
        return "unchanged"
    session.execute(update(ToolchainReport).where(ToolchainReport.id == report_id).values(**columns))
    return "changed"
