"""Draws regressions, messages, alarms, tokens and scores as tables on a terminal."""

import dataclasses
import datetime as dt
import json
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tilewatch.db.page_reads.alarms import AlarmRow
from tilewatch.db.page_reads.judge_score import Delay, Score
from tilewatch.db.page_reads.messages import MessageRow, RegressionStory
from tilewatch.db.page_reads.regressions import RegressionRow, describe_origin
from tilewatch.db.page_reads.tokens import TokenRow
from tilewatch.db.repository_names import is_example
from tilewatch.text import change_text, count_text, one_line, short_sha, without_controls, write_change, write_uncounted
from tilewatch.worker.notify.wording import write_alarm

Found = TypeVar("Found", bound=Any)
ROW_OF_A_FILE = 1_000


def print_answer(found: Found, draw: Callable[[Found], RenderableType], *, as_json: bool) -> None:
    """Prints dataclasses as JSON, or as the table that `draw` returns."""
    if as_json:
        plain = [dataclasses.asdict(row) for row in found] if isinstance(found, list) else dataclasses.asdict(found)
        print(json.dumps(plain, default=str))
    else:
        show(draw(found))


class Terminal(Console):
    """A console that prints text literally: markup such as `[/red]` and control characters have no effect."""

    def __init__(self) -> None:
        super().__init__(markup=False, emoji=False)
        if not self.is_terminal and "COLUMNS" not in os.environ:
            self.width = ROW_OF_A_FILE  # so that text is not folded

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(without_controls(text), **options)


def show(drawn: RenderableType) -> None:
    Terminal().print(drawn)


def draw_regressions(rows: Sequence[RegressionRow]) -> RenderableType:
    if not rows:
        return "no regression is open"
    table = new_table("", "state", "kernel", "GPUs", "series", "size", "cause", "since", "owner")
    for row in rows:
        table.add_row(
            str(row.id),
            row.state,
            f"{row.kernel}{describe_origin(vars(row))}",
            ", ".join(row.gpu_models),
            str(row.series),
            write_change(row.size),
            row.category.replace("_", " "),
            f"{short_sha(row.bad_sha)} {one_line(row.bad_subject)}",
            row.owner or "nobody",
        )
    counted, examples = sum(row.counted for row in rows), sum(is_example(row.repository) for row in rows)
    apart = write_uncounted(examples, len(rows) - counted - examples)
    return Group(table, "", f"{count_text(counted, rows[0].direction)} in all repositories. {apart}".rstrip())


def draw_story(story: RegressionStory) -> RenderableType:
    row = story.regression
    whose = f"{row.repository}{describe_origin(vars(row))}"
    facts = [
        f"{row.direction} {row.id} of {row.kernel} in {whose}: {row.state}, owned by {row.owner or 'nobody'}",
        f"cause ({row.category.replace('_', ' ')}): {one_line(row.cause)}",
        *(f"  {one_line(sentence)}" for sentence in row.explanation),
        f"after {short_sha(row.good_sha)}, at the latest {short_sha(row.bad_sha)} {one_line(row.bad_subject)}",
        *([f"note: {row.note}"] if row.note else []),
        *([f"link: {row.link}"] if row.link else []),
    ]
    series = new_table("problem", "GPU", "size", "95 %", "run", "recovered")
    for one in story.series:
        interval = f"{change_text(one.low)} to {change_text(one.high)}"
        recovered = f"{one.recovered_at:%Y-%m-%d}" if one.recovered_at else ""
        series.add_row(one.problem, one.gpu_name, write_change(one.size), interval, str(one.run_id), recovered)
    changes = ((_write_time(each.at), each.who, each.action, each.to_state, each.note) for each in story.events)
    events = new_table("when (UTC)", "who", "action", "new state", "note", rows=changes)
    parts: list[RenderableType] = ["\n".join(facts), "", series, "", events]
    return Group(*parts, *(["", draw_messages(story.messages)] if story.messages else []))


def draw_messages(rows: Sequence[MessageRow]) -> RenderableType:
    if not rows:
        return "there are no messages"
    cells = ((row.id, row.state, row.channel, row.subject, _write_time(row.sent_at), row.trouble) for row in rows)
    return new_table("message", "state", "channel", "subject", "sent (UTC)", "why not", rows=cells)


def draw_alarms(rows: Sequence[AlarmRow]) -> RenderableType:
    if not rows:
        return "no alarm is open"
    cells = ((_write_time(row.opened_at), write_alarm(row.kind, row.subject), row.detail) for row in rows)
    return new_table("since (UTC)", "alarm", "detail", rows=cells)


def draw_tokens(rows: Sequence[TokenRow]) -> RenderableType:
    if not rows:
        return "there are no tokens; `tilewatch token add` makes one"
    table = new_table("token", "may", "GPU s spent in 24 h", "made (UTC)", "by", "revoked (UTC)")
    for row in rows:
        spent = f"{row.spent_gpu_s:.0f} of {row.gpu_s:.0f}"
        made, revoked = _write_time(row.made_at), _write_time(row.revoked_at)
        table.add_row(row.name, ", ".join(row.rights), spent, made, row.made_by, revoked)
    return table


def draw_score(score: Score) -> RenderableType:
    interval = score.precision_interval
    precision = "no verdict is marked yet"
    if score.precision is not None and interval is not None:
        precision = (
            f"{score.precision:.0%} (95 %: {interval[0]:.0%} to {interval[1]:.0%})"
            f" of {score.right + score.wrong} marked; {score.missed} missed"
        )
    false_alarms = "none judged" if score.false_alarms_per_1000 is None else f"{score.false_alarms_per_1000:.2f}"
    launches = "" if score.launches_a_run is None else f", {score.launches_a_run:.2f} for each run"
    closed = f"{score.confirmed} confirmed, {score.refuted} refuted, {score.undecided} undecided"
    rows = {
        "points judged": score.points,
        "regressions, improvements": f"{score.regressions}, {score.improvements}",
        "precision": precision,
        "false alarms in 1,000 points": f"{false_alarms} (allowed: {score.budget_per_1000:.2f})",
        "bad commit to message": _hours(score.from_commit),
        "bad run to message": _hours(score.from_run),
        "suspicions": f"{score.suspicions}: {closed}",
        "replay launches": f"{score.launches}{launches}",
    }
    return new_table("", "", rows=rows.items())


def _hours(delay: Delay) -> str:
    if delay.median_h is None or delay.p90_h is None:
        return "no message was sent yet"
    return f"median {delay.median_h:.1f} h, 90th percentile {delay.p90_h:.1f} h"


def new_table(*headings: str, rows: Iterable[Sequence[object]] = ()) -> Table:
    """Returns a table, with a heading row if any heading has text. None becomes an empty cell."""
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(headings))
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*("" if cell is None else str(cell) for cell in row))
    return table


def _write_time(at: dt.datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M}" if at else ""
