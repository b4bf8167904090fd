"""Changes reports that compare two toolchains. Every such change is here. Whoever opened the session commits."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from tilewatch.db.models import ToolchainReport
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
