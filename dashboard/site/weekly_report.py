"""Writes the weekly report: one page with the charts of a week, which can be mailed and needs no server.

    python -m tilewatch.dashboard.site.weekly_report ORDER

ORDER is JSON with the fields of ReportOrder. `tilewatch report` runs this, because workers do not import the dashboard.
"""

import datetime as dt
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from markupsafe import Markup
from plotly.offline import get_plotlyjs
from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from tilewatch.dashboard.charts import grid, scoreboard, sorted_changes
from tilewatch.dashboard.frames import gpu_time
from tilewatch.dashboard.frames.row_frames import to_frame
from tilewatch.dashboard.site import blocks, templates
from tilewatch.dashboard.site.rendering import LEGEND, list_scores, pair_points, tabulate_regressions, write_apart
from tilewatch.dashboard.site.score_picture import draw_picture
from tilewatch.dashboard.site.series_page import keep_newest, read_points, read_trend
from tilewatch.dashboard.site.session_output import write_from
from tilewatch.dashboard.site.site_content import Block, Section
from tilewatch.dashboard.site.site_reads import WEEK, read_section
from tilewatch.dashboard.site.templates import insert
from tilewatch.dashboard.text import day, moment
from tilewatch.db.models import OPEN_REGRESSION
from tilewatch.db.page_reads import gpu_health
from tilewatch.db.page_reads import regressions as regression_queries
from tilewatch.db.page_reads import series as series_queries
from tilewatch.db.page_reads.regressions import RegressionRow
from tilewatch.db.page_reads.snapshots import JudgedChangeRow
from tilewatch.db.page_reads.submissions import SubmissionRow, list_nightlies
from tilewatch.errors import ExpectedError
from tilewatch.text import count_text

MOST_TRENDS = 6
"""The most trends in the report. Nobody reads a mail with more pictures."""


@dataclass(frozen=True)
class Week:
    """The data of one week: changes confirmed in the week, regressions open at its end, and verdicts."""

    since: dt.datetime
    until: dt.datetime
    section: Section
    opened: Sequence[RegressionRow]
    waiting: Sequence[RegressionRow]
    judged: Sequence[JudgedChangeRow]
    nights: pd.DataFrame
    trends: Sequence[Block]
    gpu_times: pd.DataFrame


def read_week(session: Session, until: dt.datetime, repository: str | None = None) -> Week:
    """Returns the data of the week before `until`. If `repository` is None, uses the first watched repository."""
    since = until - WEEK
    if repository is None:
        repository = next(iter(series_queries.list_repositories(session)), "")
    section = read_section(session, repository, until, since)
    opened = [row for row in section.regressions if row.opened_at > since]
    judged = [row for row in section.judged if row.verdict != "undecided" and row.measured_at > since]
    return Week(
        since=since,
        until=until,
        section=section,
        opened=opened,
        waiting=[row for row in section.regressions if row.direction == "regression" and row.state in OPEN_REGRESSION],
        judged=judged,
        nights=_count_nights(session, repository, since, until),
        trends=[
            block
            for series in _list_worst(session, opened, judged)
            for key in [(repository, *series)]
            for points in [read_points(session, key)]
            for block in read_trend(session, key, keep_newest(points[points["measured_at"] <= until]), None)
        ],
        gpu_times=to_frame(gpu_health.GpuTimeRow, gpu_health.list_gpu_times(session, since, until)),
    )


def _count_nights(session: Session, repository: str, since: dt.datetime, until: dt.datetime) -> pd.DataFrame:
    """Returns the numbers of a repository's nightlies in the week, by GPU model and state."""
    nightlies = to_frame(SubmissionRow, list_nightlies(session, since, until))
    nightlies = nightlies[nightlies["repository"] == repository]
    return nightlies.groupby(["gpu_name", "state"]).size().rename("nights").reset_index()


def _list_worst(
    session: Session, opened: Sequence[RegressionRow], judged: Sequence[JudgedChangeRow]
) -> Sequence[tuple[str, str, str]]:
    """Returns (kernel, problem, GPU model) for each of the series with the largest changes."""
    worst = sorted(opened, key=lambda row: -abs(row.size))
    listed = [row for each in worst for row in regression_queries.list_series(session, each.id)[:1]]
    largest = sorted(judged, key=lambda row: -abs(row.change or 0.0))
    return list(dict.fromkeys((row.kernel, row.problem, row.gpu_model) for row in listed or largest))[:MOST_TRENDS]


Part = Block | Markup


def page(week: Week) -> str:
    """Returns the HTML of the whole report."""
    pairs = pair_points(week.section)
    listed: list[Part] = [
        blocks.text(headline(week)),
        insert(f'<div class="scoreboard">{scoreboard.draw_scores(list_scores(week.section))}</div>'),
        *_regressions("Confirmed this week", week.opened),
        *_regressions("Open at its end", week.waiting),
        *_ratios(pairs),
        *_movers(pairs),
        *week.trends,
        *_nights(week),
        blocks.note(f"As of {moment(week.until)}. Times are medians; intervals are of 95 %."),
    ]
    inserted = {"style": templates.STYLE, "script": templates.SCRIPT, "plotly": get_plotlyjs()}
    html: str = (
        templates.open_templates()
        .get_template("week.html")
        .render(
            since=day(week.since), until=day(week.until), listed=listed, **{n: insert(s) for n, s in inserted.items()}
        )
    )
    return html


def headline(week: Week) -> str:
    counted = [row.direction for row in week.opened if row.counted]
    regressions, improvements = counted.count("regression"), counted.count("improvement")
    waiting = sum(row.counted for row in week.waiting)
    apart = write_apart(list({row.id: row for row in (*week.opened, *week.waiting)}.values()))
    return (
        f"{count_text(regressions, 'regression')} and {count_text(improvements, 'improvement')} were confirmed, "
        f"{count_text(waiting, 'regression')} {'is' if waiting == 1 else 'are'} open, in "
        f"{len(pair_points(week.section)):,} series of {week.section.repository}; "
        f"{count_text(len(week.judged), 'verdict')} of a change. {apart}"
    ).rstrip()


def _regressions(title: str, rows: Sequence[RegressionRow]) -> Iterable[Part]:
    yield blocks.heading(title)
    if not rows:
        yield blocks.text("None.")
        return
    table = tabulate_regressions(rows).assign(cause=[row.cause for row in rows])
    table.insert(0, "#", [row.id for row in rows])
    yield blocks.table(table.assign(owner=[row.owner or "nobody" for row in rows]))


def _ratios(pairs: pd.DataFrame) -> Iterable[Part]:
    for group, html in grid.draw_groups(pairs, None, grid.NO_SPARKS).items():
        yield blocks.heading(group)
        yield insert(f'<div class="series-grid">{html}</div>')
    if pairs["ratio"].notna().any():
        yield blocks.note(LEGEND)


def _movers(pairs: pd.DataFrame) -> Iterable[Part]:
    compared = pairs.dropna(subset="change")
    if len(compared):
        words = "Biggest movers of the week"
        yield blocks.heading(words)
        where = compared["gpu_name"].str.removeprefix("NVIDIA ")
        yield blocks.chart(sorted_changes.draw_sorted_changes(compared.assign(where=where)), words)


def _nights(week: Week) -> Iterable[Part]:
    yield blocks.heading("Nights")
    if week.nights.empty:
        yield blocks.text("No nightly was submitted this week.")
        return
    yield blocks.table(week.nights.rename(columns={"gpu_name": "GPU"}))
    if not week.gpu_times.empty:
        yield blocks.table(gpu_time.tabulate(week.gpu_times))


@dataclass(frozen=True)
class ReportOrder:
    """A request for a report on the week before `until`. `html` and `png` are the files to write, or None."""

    html: Path | None
    png: Path | None
    until: dt.date | None
    repository: str | None


def _draw(week: Week) -> bytes:
    scores = list_scores(week.section)
    if not scores:
        raise ExpectedError("there is no scoreboard to draw: no operator was measured beside DeepGEMM")
    return draw_picture(scores)


def _write(file: Path, content: bytes) -> str:
    file.write_bytes(content)
    return f"wrote {file}, {len(content) / 1e6:.1f} MB"


def main(arguments: Sequence[str]) -> int:
    order = TypeAdapter(ReportOrder).validate_json(arguments[0])
    until = dt.datetime.combine(order.until, dt.time.max, dt.UTC) if order.until else dt.datetime.now(dt.UTC)

    def write(opened: Session) -> str:
        week = read_week(opened, until, order.repository)
        wrote = [] if order.html is None else [_write(order.html, page(week).encode())]
        return "\n".join(wrote if order.png is None else [*wrote, _write(order.png, _draw(week))])

    return write_from(os.environ.get("TILEWATCH_DATABASE_URL", ""), write)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
