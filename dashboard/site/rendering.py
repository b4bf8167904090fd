"""Renders a site's data as HTML. Every text is escaped; only drawings from charts/ are inserted raw."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import jinja2
import pandas as pd
from markupsafe import Markup

from tilewatch.dashboard.charts import grid, scoreboard
from tilewatch.dashboard.frames import changes, differences
from tilewatch.dashboard.frames import scoreboard as scores
from tilewatch.dashboard.frames.inbox import REGRESSION, WHOSE
from tilewatch.dashboard.frames.row_frames import to_frame
from tilewatch.dashboard.frames.scoreboard import GpuScore
from tilewatch.dashboard.site import blocks
from tilewatch.dashboard.site.site_content import (
    Block,
    Party,
    Section,
    name_page,
    name_regression_page,
    name_series_page,
)
from tilewatch.dashboard.site.templates import insert
from tilewatch.dashboard.text import day, moment, time_text
from tilewatch.db.models import OPEN_REGRESSION
from tilewatch.db.page_reads import snapshots
from tilewatch.db.page_reads.regressions import RegressionRow, RegressionSeriesRow, describe_origin
from tilewatch.db.repository_names import is_example
from tilewatch.text import change_text, count_text, short_sha, write_uncounted

LEGEND = (
    "The main baseline's time / ours: over 1.00 is faster than the baseline. ▲ ▼: faster or slower than a week before, "
    "△ ▽: not judged yet, undecided or not confirmed. Operators that became slower come first, "
    "then the lowest ratio."
)
Known = Mapping[str, str]
"""The files of a party's pages in the folder of the site, keyed by the file names that the pages use for each other."""


@dataclass(frozen=True)
class FrontSection:
    """One repository's section of the front page."""

    repository: str
    scoreboard: Markup
    sentence: str
    counts: str
    provenance: str
    regressions: Block
    groups: Mapping[str, Markup]
    others: Block


def render(parties: Sequence[Party], templates: jinja2.Environment) -> Iterator[tuple[str, str]]:
    """Yields (file name, HTML) for each page of the site that `parties[0]` publishes."""
    known = [_name_files(party, place) for place, party in enumerate(parties)]
    fronts = [
        (party, files, [_draw_section(section, files) for section in party.sections], _write_provenance(party))
        for party, files in zip(parties, known, strict=True)
    ]
    index = templates.get_template("index.html")
    own = [("published", _write_provenance(parties[0]))]
    yield "index.html", index.render(fronts=fronts, legend=LEGEND, title="How far from DeepGEMM", provenance=own)
    template = templates.get_template("page.html")
    for party, files, _, published in fronts:
        for page in party.pages:
            others = {name: file for name, file in files.items() if name != page.file}
            about = {"title": page.title, "provenance": [*page.provenance, ("published", published)]}
            yield files[page.file], template.render(page=page, known=others, **about)


def _write_provenance(party: Party) -> str:
    return f"{moment(party.made_at)} by {party.name}, with {party.made_by}"


def _name_files(party: Party, place: int) -> Known:
    prefix = "" if place == 0 else f"{name_page('from', party.name, party.name).removesuffix('.html')}-"
    return {page.file: f"{prefix}{page.file}" for page in party.pages}


def list_scores(section: Section) -> list[GpuScore]:
    names = {row.gpu_model: row.gpu_name for row in section.after}
    recent = to_frame(snapshots.RecentRatiosRow, section.recent)
    return scores.list_scores(recent, to_frame(snapshots.CommitRow, section.commits), names)


def pair_points(section: Section) -> pd.DataFrame:
    """Returns one row per series, with its change since `section.before` and a finding such as SLOWER."""
    before, after = (to_frame(snapshots.SnapshotRow, rows) for rows in (section.before, section.after))
    judged = to_frame(snapshots.JudgedChangeRow, section.judged)
    return changes.one_row_per_series(differences.add_findings(changes.pair_snapshots(before, after), judged))


def _draw_section(section: Section, known: Known) -> FrontSection:
    pairs = pair_points(section)
    sparks = grid.index_sparks(to_frame(snapshots.RecentRatiosRow, section.recent))

    def lead(row: grid.Row) -> str:
        return known.get(_name_page_of(row), "index.html")

    others = pairs[pairs["ratio"].isna()].to_dict("records")
    rows = sorted(
        section.regressions,
        key=lambda row: (row.direction != REGRESSION, row.state not in OPEN_REGRESSION, -abs(row.size)),
    )
    return FrontSection(
        repository=section.repository,
        scoreboard=insert(scoreboard.draw_scores(list_scores(section))),
        sentence=write_sentence(section),
        counts=f"{differences.write_counts(pairs, 'a week before')}.",
        provenance=_describe_newest(pairs),
        regressions=blocks.table(tabulate_regressions(rows), map(name_regression_page, rows)),
        groups={name: insert(html) for name, html in grid.draw_groups(pairs, lead, sparks).items()},
        others=blocks.table(_tabulate_others(others), map(_name_page_of, others)),
    )


def _name_page_of(row: grid.Row) -> str:
    return name_series_page(*(str(row[each]) for each in ("repository", *changes.SERIES)))


def _tabulate_others(rows: Sequence[grid.Row]) -> pd.DataFrame:
    """Returns the times of series without a ratio."""
    listed = [
        {
            "series": f"{row['kernel']} {row['problem']}",
            "GPU": row["gpu_name"],
            "time": time_text(row["median_us"]),
            "change in a week": "" if pd.isna(row["change"]) else differences.write_cell(row),
        }
        for row in rows
    ]
    return pd.DataFrame(listed)


def write_sentence(section: Section) -> str:
    """Returns a sentence on the open regressions. Deliberate examples and recordings are counted separately."""
    counted = [row for row in section.regressions if row.counted and row.direction == REGRESSION]
    waiting = [row for row in counted if row.state in OPEN_REGRESSION]
    verb = "is" if len(waiting) == 1 else "are"
    return f"{count_text(len(waiting), 'regression')} {verb} open. {write_apart(section.regressions)}".rstrip()


def write_apart(rows: Sequence[RegressionRow]) -> str:
    """Returns a sentence that counts deliberate example changes and recorded changes; empty without such changes."""
    apart = [row for row in rows if not row.counted]
    examples = sum(is_example(row.repository) for row in apart)
    return write_uncounted(examples, len(apart) - examples)


def _describe_newest(after: pd.DataFrame) -> str:
    newest = after.sort_values("measured_at").iloc[-1]
    hosts = ", ".join(sorted(set(after["machine"])))
    commit = f"{short_sha(newest['sha'])} {newest['subject']}"
    return f"Newest measurement {moment(newest['measured_at'])}, commit {commit}. Measured on {hosts}."


def tabulate_regressions(rows: Sequence[RegressionRow]) -> pd.DataFrame:
    listed = [
        {
            "kernel": f"{row.kernel}{describe_origin(vars(row))}",
            "time": write_size(row),
            "state": f"{row.direction}, {row.state}",
            "since": f"{short_sha(row.bad_sha)} {row.bad_subject}",
            "whose change": WHOSE.get(row.category, row.category),
            "GPUs": ", ".join(row.gpu_models),
            "series": str(row.series),
            "opened": day(row.opened_at),
        }
        for row in rows
    ]
    return pd.DataFrame(listed)


def write_size(row: RegressionRow | RegressionSeriesRow) -> str:
    return f"{change_text(row.size)} ({change_text(row.low)} to {change_text(row.high)})"
