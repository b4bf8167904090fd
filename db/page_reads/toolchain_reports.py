"""Reads reports that compare toolchains: the verdicts and the launch times."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, Field, TypeAdapter
from sqlalchemy import select
from sqlalchemy.orm import Session

from tilewatch.db.models import OPEN_JOB, Job, ToolchainReport
from tilewatch.db.query_parts import Query, find_row, read_rows, select_row


@dataclass(frozen=True)
class ReportRow:
    """One row of the list of reports. The first of `toolchains` is compared with the others."""

    id: int
    toolchains: Sequence[str]
    made_at: dt.datetime
    safety: str | None  # "safe", "safe if re-tuned", "not safe", "unknown"; None until there is a result
    job_state: str | None  # of the newest job that makes it, like `failure`; None for an imported report
    failure: str | None

    @property
    def title(self) -> str:
        """Returns the names of the toolchains, for example "13.4 → 13.5, 13.6"."""
        return f"{self.toolchains[0]} → {', '.join(self.toolchains[1:])}"

    @property
    def is_open(self) -> bool:
        return self.job_state in OPEN_JOB

    @property
    def state(self) -> str:
        """Returns the state of the report in words."""
        if self.is_open:
            return "being compared"
        return self.safety or "failed"


@dataclass(frozen=True)
class TimeChange:
    """The relative change of a time, where 0.02 is 2 % slower. `low` or `high` is None if infinite."""

    kind: str
    change: float
    low: float | None
    high: float | None
    launches: int


SortedConfig = Annotated[dict[str, Any], AfterValidator(lambda config: dict(sorted(config.items())))]
"""A config sorted by parameter name, as in commands. The database's jsonb does not keep the order."""


@dataclass(frozen=True)
class OperatorRow:
    """The verdict on one kernel and problem with the new toolchain `head`."""

    kernel: str
    problem: str
    arch: str
    gpu_model: str | None  # None if only the code was compared
    head: str
    safety: str
    reason: str
    static: str
    moved: tuple[str, ...]
    config: SortedConfig
    moved_to: SortedConfig | None  # the head's best config; None if it is `config` or was not searched
    frozen: TimeChange | None  # with the base's config for both toolchains; None if not timed
    retuned: TimeChange | None  # with the head's best config for the head; None if not timed


@dataclass(frozen=True)
class LadderRow:
    """The slowdown of a kernel with a new toolchain, and the share of each dependency in the slowdown."""

    kernel: str
    problem: str
    gpu_model: str
    head: str
    loss: float  # the slowdown, in percent of the base's time
    shares: Mapping[str, tuple[float, float, float]]  # each dependency's part of the loss, with its 95 % interval
    blamed: tuple[str, ...]  # the sure causes


@dataclass(frozen=True)
class ReportLaunches:
    """The times in us of an operator's launches. Element i of `base_us` and `head_us` is from launch i."""

    kernel: str
    problem: str
    gpu_model: str
    head: Annotated[str, Field(validation_alias="head_name")]
    base_us: tuple[float, ...]
    head_us: tuple[float, ...]


_OPERATORS, _LAUNCHES = TypeAdapter(tuple[OperatorRow, ...]), TypeAdapter(tuple[ReportLaunches, ...])


@dataclass(frozen=True)
class ReportStory:
    """A report with its operators. `exit_code` is 0 for safe, 1 for worse, 2 for unknown."""

    report: ReportRow
    sentence: str
    exit_code: int
    compilers: tuple[str, ...]
    gpus: tuple[str, ...]
    operators: tuple[OperatorRow, ...]
    ladders: tuple[LadderRow, ...]  # none before 2026-11-28
    frozen: tuple[ReportLaunches, ...]
    markdown: str
    contents: Mapping[str, Any]  # the file that `toolchain compare` writes


def list_reports(session: Session, limit: int = 50) -> list[ReportRow]:
    """Lists the newest reports, newest first."""
    return read_rows(session, _reports().order_by(ToolchainReport.made_at.desc()).limit(limit), ReportRow)


def list_reports_of(session: Session, compilers: tuple[str, str]) -> list[ReportRow]:
    """Lists the reports with this base compiler and head compiler, the newest first."""
    query = _reports().order_by(ToolchainReport.made_at.desc())
    sides = ToolchainReport.answer["sides"]
    base, head = compilers
    query = query.where(sides[0]["compiler"].astext == base, sides.contains([{"compiler": head}]))
    return read_rows(session, query, ReportRow)


def find_report_row(session: Session, report_id: int) -> ReportRow | None:
    """Returns a report's row in the list of reports; None if the report does not exist."""
    return find_row(session, _reports().where(ToolchainReport.id == report_id), ReportRow)


def find_report(session: Session, report_id: int) -> ReportStory | None:
    """Returns a report with its operators; None if the report does not exist or has no result."""
    row = find_report_row(session, report_id)
    if row is None or row.safety is None:
        return None
    columns = select(ToolchainReport.answer, ToolchainReport.contents, ToolchainReport.markdown)
    answer, contents, markdown = session.execute(columns.where(ToolchainReport.id == report_id)).one()
    return ReportStory(
        row,
        answer["answer"],
        answer["exit_code"],
        tuple(side["compiler"] for side in answer["sides"]),
        tuple(f"{gpu['name']} (driver {gpu['driver']})" for gpu in answer["gpus"]),
        _OPERATORS.validate_python(answer["operators"]),
        tuple(map(_read_ladder, answer.get("ladders", ()))),
        _LAUNCHES.validate_python(contents["frozen"]),
        markdown,
        contents,
    )


def _reports() -> Query:
    safety = ToolchainReport.answer["safety"].astext
    columns = select_row(ReportRow, [ToolchainReport, Job], safety=safety, job_state=Job.state)
    return columns.outerjoin(Job, Job.id == ToolchainReport.job_id)


def _read_ladder(row: Mapping[str, Any]) -> LadderRow:
    named = {name: row[name] for name in ("kernel", "problem", "gpu_model", "head")}
    ladder = row["ladder"]
    shares = {each["dependency"]: (each["points"], each["low"], each["high"]) for each in ladder["shares"]}
    return LadderRow(**named, loss=ladder["loss"], shares=shares, blamed=tuple(row["blamed"]))
