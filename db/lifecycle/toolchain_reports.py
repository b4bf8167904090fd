"""Opens, fills and replaces the reports that compare toolchains."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import and_, exists, func, or_, select, update
from sqlalchemy.orm import Session

from tilewatch.db.models import OPEN_JOB, Job, ToolchainReport
from tilewatch.db.natural_keys import find_or_add

Written = Literal["added", "changed", "unchanged"]


@dataclass(frozen=True)
class JudgedReport:
    """A finished report with its verdict. db/models.py describes the fields."""

    key: str
    toolchains: Sequence[str]
    made_at: dt.datetime
    contents: Mapping[str, Any]
    answer: Mapping[str, Any]
    markdown: str


def begin(session: Session, key: str, toolchains: Sequence[str], made_at: dt.datetime) -> tuple[int, bool]:
    """Opens a report unless a job is making it already. Returns the report's id and whether it is new."""
    earlier = ToolchainReport.key.startswith(f"{key}#", autoescape=True)
    is_open = and_(Job.id == ToolchainReport.job_id, Job.state.in_(OPEN_JOB))
    if (found := session.scalar(select(ToolchainReport.id).where(earlier, exists().where(is_open)))) is not None:
        return found, False
    number = session.scalar(select(func.count()).select_from(ToolchainReport).where(earlier))
    empty = {"contents": {}, "answer": {}, "markdown": ""}
    columns = {"key": f"{key}#{number}", "toolchains": list(toolchains), "made_at": made_at, **empty}
    return find_or_add(session, ToolchainReport, ("key",), columns)


def read_contents(session: Session, report_id: int) -> dict[str, Any]:
    """Returns the stored contents of a report, which are empty for a new report."""
    return session.scalars(select(ToolchainReport.contents).where(ToolchainReport.id == report_id)).one()


def find_contents(session: Session, key: str) -> dict[str, Any]:
    """Returns the contents of the report with this key; an empty dict if there is none."""
    return session.scalar(select(ToolchainReport.contents).where(ToolchainReport.key == key)) or {}


def change(session: Session, report_id: int, **columns: Any) -> None:
    """Stores new values of a report's columns."""
    session.execute(update(ToolchainReport).where(ToolchainReport.id == report_id).values(**columns))


def write_report(session: Session, report: JudgedReport) -> Written:
    """Stores a report. Returns "added", "changed" or "unchanged"."""
    columns = vars(report)
    report_id, is_new = find_or_add(session, ToolchainReport, ("key",), columns)
    if is_new:
        return "added"
    differs = or_(*(getattr(ToolchainReport, name) != columns[name] for name in ("contents", "answer", "markdown")))
    if session.scalar(select(ToolchainReport.id).where(ToolchainReport.id == report_id, differs)) is None:
        return "unchanged"
    change(session, report_id, **columns)
    return "changed"
