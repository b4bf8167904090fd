"""Reads the data that one party publishes."""

import datetime as dt
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
from sqlalchemy.orm import Session

from tilewatch.dashboard.frames import scoreboard
from tilewatch.dashboard.site import blocks
from tilewatch.dashboard.site.regression_page import read_regression_page
from tilewatch.dashboard.site.series_page import read_series_page
from tilewatch.dashboard.site.site_content import Party, Section
from tilewatch.dashboard.site.toolchain_page import make_toolchain_page, make_tuned_page
from tilewatch.db.page_reads import regressions, series, snapshots, toolchain_reports
from tilewatch.db.page_reads.regressions import RegressionRow
from tilewatch.db.page_reads.snapshots import SnapshotRow
from tilewatch.db.repository_names import is_branch

WEEK = dt.timedelta(days=7)
EVER = dt.datetime.min.replace(tzinfo=dt.UTC)


def read_party(
    opened: Session,
    name: str,
    made_at: dt.datetime,
    release: str,
    tables: Sequence[Mapping[str, Any]],
    repository: str | None,
) -> Party:
    """Returns the data that a party publishes about `repository`; if None, about all repositories, without branches."""
    names = [repository] if repository else [each for each in series.list_repositories(opened) if not is_branch(each)]
    sections = [section for each in names if (section := read_section(opened, each, made_at)).after]
    shown = {section.repository for section in sections}
    rows = [row for row in series.list_series(opened) if row.repository in shown]
    pages = [page for row in rows if (page := read_series_page(opened, row)) is not None]
    pages += [read_regression_page(opened, row) for section in sections for row in section.regressions]
    reports = [toolchain_reports.find_report(opened, row.id) for row in toolchain_reports.list_reports(opened)]
    compared = {make_toolchain_page(report): report for report in reports if report is not None}
    tuned = [make_tuned_page(table) for table in tables if table["repository"] in shown]
    answers = [
        {
            "toolchains": page.title,
            "safe": report.report.safety,
            "answer": report.sentence,
            **dict(page.provenance[len(report.compilers) :]),
        }
        for page, report in compared.items()
    ]
    configs = [{"table": page.title, **dict(page.provenance[:2])} for page in tuned]
    links = (
        blocks.heading("Is a newer toolchain safe to take?"),
        blocks.table(pd.DataFrame(answers), (page.file for page in compared)),
        blocks.heading("Which config should I ship?"),
        blocks.table(pd.DataFrame(configs), (page.file for page in tuned)),
    )
    return Party(
        name=name,
        made_at=made_at,
        made_by=f"tilewatch {release}",
        sections=tuple(replace(each, regressions=tuple(map(_without_people, each.regressions))) for each in sections),
        pages=(*pages, *compared, *tuned),
        links=links,
    )


def read_section(opened: Session, repository: str, until: dt.datetime, since: dt.datetime | None = None) -> Section:
    """Returns a repository's data as of `until`, with measurements from `since` for comparison."""
    after = snapshots.list_points_as_of(opened, repository, until, until=until)
    moves = regressions.find_last_moves(opened, until)
    earlier = since or max((row.measured_at for row in after), default=until) - WEEK
    return Section(
        repository=repository,
        after=tuple(map(_without_uuid, after)),
        before=tuple(map(_without_uuid, snapshots.list_points_as_of(opened, repository, earlier, until=until))),
        judged=tuple(
            row for row in snapshots.list_judged_changes(opened, repository, EVER) if row.measured_at <= until
        ),
        recent=tuple(snapshots.list_recent_ratios(opened, repository, scoreboard.RECENT_COMMITS, until)),
        commits=tuple(snapshots.list_commits(opened, repository, until=until)),
        regressions=tuple(
            replace(row, state=moves[row.id].to_state)
            for row in regressions.list_regressions(opened)
            if row.repository == repository and row.id in moves
        ),
    )


def _without_uuid(row: SnapshotRow) -> SnapshotRow:
    """Returns a point with a hash in place of the GPU's UUID."""
    return replace(row, gpu_uuid=hashlib.sha256(row.gpu_uuid.encode()).hexdigest()[:12])


def _without_people(row: RegressionRow) -> RegressionRow:
    """Returns a regression without its owner, note and link, which are not public."""
    return replace(row, owner=None, note=None, link=None)
