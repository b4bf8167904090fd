"""Writes the subject and the plain text of messages. A message about a regression must be enough for a decision."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from tilewatch.db.lifecycle.actions import BY_A_COMMIT
from tilewatch.db.page_reads.alarms import AlarmRow, describe_kind
from tilewatch.db.page_reads.messages import MessageRow, RegressionStory
from tilewatch.db.page_reads.regressions import RegressionRow
from tilewatch.db.page_reads.submissions import SubmissionRow
from tilewatch.metrics import split_kernel
from tilewatch.text import change_text, count_text, one_line, short_sha, write_change

LISTED = 12
"""The most lines in a section of a digest. The dashboard shows the rest too."""

HEADINGS = {
    "opened": "",
    "reopened": "back again: ",
    "recovered": "recovered: ",
    "resolved": "resolved: ",
    "expected": "expected: ",
}


@dataclass(frozen=True)
class Text:
    subject: str
    body: str


@dataclass(frozen=True)
class Day:
    """The content of a digest: a day's changes, and the regressions and alarms that are open."""

    opened: Sequence[RegressionRow]
    ended: Sequence[RegressionRow]
    still_open: Sequence[RegressionRow]
    improvements: Sequence[RegressionRow]
    alarms: Sequence[AlarmRow]
    nights: Sequence[SubmissionRow]
    failed_messages: Sequence[MessageRow]

    def list_repositories(self) -> list[str]:
        return sorted({each.repository for name in OF_A_REPOSITORY for each in getattr(self, name)})

    def of(self, *repositories: str) -> Self:
        """Returns the day with only the rows of these repositories."""
        kept = {
            name: [each for each in getattr(self, name) if each.repository in repositories] for name in OF_A_REPOSITORY
        }
        return replace(self, **kept)


OF_A_REPOSITORY = ("opened", "ended", "still_open", "improvements", "nights")
"""The fields of a Day whose rows each belong to a repository."""


def regression_text(story: RegressionStory, kind: str, dashboard_url: str) -> Text:
    regression = story.regression
    subject = f"{'simulated: ' if regression.simulated else ''}{HEADINGS[kind]}"
    if kind in ("recovered", "resolved", "expected"):
        ended = headline(regression, was="was ")
        return Text(f"{subject}{ended}", "\n".join(_ending_lines(story, kind, dashboard_url)))
    slow = [each for each in story.series if each.recovered_at is None] or story.series
    if len(slow) < len(story.series):
        regression = replace(regression, series=len(slow), gpu_models=sorted({each.gpu_model for each in slow}))
    subject += headline(regression)
    worst = slow[0]
    where = f"at {worst.problem} on {worst.gpu_name}"
    kernel, metric = split_kernel(regression.kernel)
    lines = [
        f"{write_change(regression.size)} (95 %: {change_text(regression.low)} to {change_text(regression.high)}) "
        f"{where}{_among(regression)}.",
        *([f"Not measured apart: {one_line(worst.not_apart)}"] if worst.not_apart else []),
        f"Cause ({regression.category.replace('_', ' ')}): {one_line(regression.cause)}",
        *(f"  {one_line(sentence)}" for sentence in regression.explanation),
        _since(regression),
        f"Owner: {regression.owner or 'nobody yet'}",
        f"Evidence: {evidence_link(dashboard_url, worst.run_id)}",
        f"Triage: {regression_link(dashboard_url, regression.id)}",
        "To repeat it on such a GPU:",
        f"  git checkout {regression.bad_sha}",
        f"  {shlex.join(['python', '-m', 'tilewatch.kernels', 'sweep', kernel, worst.problem])}",
        "And both sides in turns:",
        f"  {shlex.join(['tilewatch', 'replay', kernel, worst.problem])} "
        f"--of {regression.bad_sha} --beside {regression.good_sha}{'' if metric == 'time' else f' --metric {metric}'}",
        "Acknowledge it, or mark it as wrong:",
        f"  tilewatch regressions acknowledge {regression.id}",
        f"  tilewatch regressions mark {regression.id} wrong",
    ]
    return Text(subject, "\n".join(lines))


def headline(regression: RegressionRow, was: str = "") -> str:
    """Returns a line about a change. `was` precedes the size, such as "was " if the change has ended."""
    on = ", ".join(regression.gpu_models)
    return (
        f"{regression.kernel} of {regression.repository} on {on}: {was}{write_change(regression.size)} "
        f"since {short_sha(regression.bad_sha)} ({count_text(regression.series, 'series')})"
    )


def write_alarm(kind: str, subject: str) -> str:
    """Returns an alarm as one line of text."""
    return f"{describe_kind(kind)[0]}: {one_line(subject)}"


def digest_text(day: Day, dashboard_url: str) -> Text:
    """Returns the digest of a day, even without news, so that people notice a missing digest."""
    counts = [
        count_text(len(day.opened), "new regression"),
        f"{len(day.still_open)} open",
        count_text(len(day.alarms), "alarm"),
    ]
    sections = [
        ("New", [_line(row) for row in day.opened]),
        ("Recovered, resolved or expected", [f"{_line(row)} [{row.state}]" for row in day.ended]),
        ("Still open", [f"{_line(row)} [{row.state}, {row.owner or 'nobody'}]" for row in day.still_open]),
        ("Faster", [_line(row) for row in day.improvements]),
        ("Alarms", [write_alarm(row.kind, row.subject) for row in day.alarms]),
        ("Nightlies", [_night(row) for row in day.nights]),
        ("Could not be sent", [f"{row.subject} to {row.channel}: {row.trouble}" for row in day.failed_messages]),
    ]
    body = [f"Dashboard: {dashboard_url}"]
    for heading, lines in sections:
        if lines:
            body += ["", f"{heading}:", *(f"  {line}" for line in lines[:LISTED])]
            body += [f"  and {len(lines) - LISTED} more"] if len(lines) > LISTED else []
    return Text(f"Tilewatch: {', '.join(counts)} in all repositories", "\n".join(body))


def evidence_link(dashboard_url: str, run_id: int) -> str:
    return f"{dashboard_url}/series?run={run_id}&view=This+run"


def regression_link(dashboard_url: str, regression_id: int) -> str:
    return f"{dashboard_url}/regressions?regression={regression_id}"


def check_link(dashboard_url: str, check_id: int) -> str:
    return f"{dashboard_url}/checks?check={check_id}"


def report_link(dashboard_url: str, report_id: int) -> str:
    return f"{dashboard_url}/toolchains?report=%23{report_id}"


def _ending_lines(story: RegressionStory, kind: str, dashboard_url: str) -> list[str]:
    sentences = {
        "recovered": "All its series are back at their old level.",
        "expected": "Later nights are compared with the new level.",
    }
    last = next((event for event in reversed(story.events) if event.to_state != event.from_state), None)
    recovered = [one_line(event.note) for event in story.events if event.action == "recover" and event.note]
    by = f"By {last.who}{': ' + one_line(last.note) if last.note else ''}" if last and kind != "recovered" else ""
    how = recovered if kind == "recovered" else []
    lines = [sentences.get(kind, ""), *how, by, f"Triage: {regression_link(dashboard_url, story.regression.id)}"]
    return [line for line in lines if line]


def _among(regression: RegressionRow) -> str:
    which = "worst" if regression.size > 0 else "most improved"
    return f", the {which} of {regression.series} series so far" if regression.series > 1 else ""


def _since(regression: RegressionRow) -> str:
    """Returns a line about the commit or commits at which a change began."""
    last = f"{short_sha(regression.bad_sha)} {one_line(regression.bad_subject)}"
    first = "First bad commit" if regression.size > 0 else "First commit with it"
    if regression.category not in BY_A_COMMIT:
        first = "First seen at"
    if regression.commits_in_range <= 1:
        return f"{first}: {last}"
    return f"{first}: one of {regression.commits_in_range} after {short_sha(regression.good_sha)}, at the latest {last}"


def _line(row: RegressionRow) -> str:
    return f"#{row.id} {headline(row)}"


def _night(row: SubmissionRow) -> str:
    what = f"{row.night} {row.repository} on {row.gpu_name} at {short_sha(row.sha)}"
    return f"{what}: {row.state}, {count_text(row.runs, 'run')}"
