"""Makes the page of a regression for a published site."""

from sqlalchemy.orm import Session

from tilewatch.dashboard.charts import evidence as evidence_charts
from tilewatch.dashboard.frames import evidence
from tilewatch.dashboard.frames.inbox import WHOSE
from tilewatch.dashboard.frames.reads import find_evidence
from tilewatch.dashboard.panels.regression import around, tabulate_series
from tilewatch.dashboard.panels.series import run_beside
from tilewatch.dashboard.site import blocks
from tilewatch.dashboard.site.series_page import list_provenance, read_points, read_trend
from tilewatch.dashboard.site.site_content import Block, SitePage, name_regression_page, name_series_page
from tilewatch.dashboard.text import moment
from tilewatch.db.page_reads import regressions
from tilewatch.db.page_reads.regressions import RegressionRow, describe_origin
from tilewatch.text import change_text, count_text, short_sha, write_change


def read_regression_page(opened: Session, row: RegressionRow) -> SitePage:
    """Returns the public page of a regression, without owner, note and people's names."""
    changed = regressions.list_series(opened, row.id)
    worst = changed[0] if changed else None
    found = find_evidence(opened, worst.run_id) if worst is not None else None
    pages = (name_series_page(row.repository, each.kernel, each.problem, each.gpu_model) for each in changed)
    listed = [
        blocks.text(f"{write_change(row.size)} ({change_text(row.low)} to {change_text(row.high)}), {row.state}."),
        blocks.text(row.cause),
        *map(blocks.note, row.explanation),
        blocks.note(
            f"Whose change: {WHOSE.get(row.category, row.category)}. Opened {moment(row.opened_at)}.",
            describe_origin(vars(row)),
        ),
        blocks.heading(f"{count_text(len(changed), 'series')} changed"),
        blocks.table(tabulate_series(map(vars, changed)), pages),
    ]
    if worst is not None and found is not None:
        key = (row.repository, worst.kernel, worst.problem, worst.gpu_model)
        listed.append(blocks.heading(f"{worst.kernel} {worst.problem} on {worst.gpu_name}"))
        listed += read_trend(opened, key, around(read_points(opened, key), row.bad_sha), None)
        listed += [blocks.heading("Evidence"), *map(blocks.text, run_beside.list_causes(found))]
        listed += [
            blocks.chart(evidence_charts.replay(replay.good_us, replay.bad_us), evidence.replay_sentence(replay))
            for replay in found.replays
            if replay.failure is None
        ]
    listed += _list_commits(row)
    if found is not None:
        listed += [blocks.heading("Repeat it"), Block("code", evidence.repeat_commands(found))]
    title = f"{row.direction.capitalize()} of {row.kernel} on {', '.join(row.gpu_models)}"
    own = (("repository", row.repository), ("commit", f"{row.bad_sha} {row.bad_subject}"))
    return SitePage(name_regression_page(row), title, tuple(listed), own if found is None else list_provenance(found))


def _list_commits(row: RegressionRow) -> list[Block]:
    one = row.commits_in_range <= 1
    after = "" if one else f"and all after {short_sha(row.good_sha)} {row.good_subject}"
    return [
        blocks.heading("The commit" if one else f"{count_text(row.commits_in_range, 'commit')} in range"),
        blocks.text(f"{short_sha(row.bad_sha)} {row.bad_subject}", after),
        Block("code", f"git show {row.bad_sha}" if one else f"git log --patch {row.good_sha}..{row.bad_sha}"),
    ]
