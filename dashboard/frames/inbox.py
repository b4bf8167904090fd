"""Lists everything that needs a person, over all repositories, such as open regressions and alarms.

Planted examples (changes made on purpose) and recordings (runs from elsewhere) are listed separately and not counted.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from tilewatch.dashboard.frames.differences import write_plan
from tilewatch.dashboard.text import day, moment
from tilewatch.db.models import OPEN_REGRESSION, TOTAL
from tilewatch.db.page_reads.alarms import describe_kind
from tilewatch.db.repository_names import is_branch, is_example
from tilewatch.grouping import group_by
from tilewatch.text import count_text, short_sha, write_change

REGRESSION, IMPROVEMENT, ALARM, UNDECIDED = "regression", "improvement", "alarm", "undecided"
KINDS = (REGRESSION, ALARM, UNDECIDED, IMPROVEMENT)
"""The kinds of items, the most urgent first."""
WHOSE = {
    "code": "our code",
    "search_space": "our search space",
    "toolchain": "the toolchain",
    "node": "the node",
    "baseline": "the baseline",
    "unknown": "not known",
}
"""Words for what caused a regression, such as "our code". The keys are the categories of causes."""


@dataclass(frozen=True)
class Item:
    """One item that needs a person. `links` maps a link's text to the URL parameters of the linked page."""

    kind: str
    title: str
    facts: tuple[str, ...]
    at: dt.datetime
    page: str
    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    diff: str = ""
    regression_id: int | None = None
    can_acknowledge: bool = False
    run_ids: tuple[int, ...] = ()
    """The undecided runs that the item's button replays."""


@dataclass(frozen=True)
class Inbox:
    items: tuple[Item, ...]
    recorded: tuple[Item, ...]
    examples: tuple[Item, ...]

    def count(self, kind: str) -> int:
        return sum(item.kind == kind for item in self.items)


def make_inbox(regressions: pd.DataFrame, alarms: pd.DataFrame, undecided: pd.DataFrame) -> Inbox:
    """Returns the inbox, with the most urgent items first."""
    here: list[Item] = [*map(_alarm, alarms.to_dict("records")), *_list_undecided(undecided)]
    recorded, examples = list[Item](), list[Item]()
    for row in regressions.to_dict("records"):
        if needs_person(row):
            place = here if row["counted"] else examples if is_example(row["repository"]) else recorded
            place.append(_change(row))
    return Inbox(*(tuple(sorted(items, key=_urgency)) for items in (here, recorded, examples)))


def needs_person(row: Mapping[Any, Any]) -> bool:
    """Returns whether a regression is open, or an improvement is not accepted yet."""
    return row["state"] in OPEN_REGRESSION if row["direction"] == REGRESSION else row["state"] == "new"


def write_sentence(inbox: Inbox) -> str:
    """Returns a sentence such as "In all repositories 2 things need a person: 2 alarms"."""
    count = len(inbox.items)
    if not count:
        return "Nothing needs a person in any repository"
    parts = [_count_kind(kind, inbox.count(kind)) for kind in KINDS if inbox.count(kind)]
    things = f"{count_text(count, 'thing')} {'needs' if count == 1 else 'need'} a person"
    return f"In all repositories {things}: {', '.join(parts)}"


def _count_kind(kind: str, count: int) -> str:
    words = {REGRESSION: "regression", ALARM: "alarm", UNDECIDED: "undecided group", IMPROVEMENT: "improvement"}
    return count_text(count, words[kind]) + (" to accept" if kind == IMPROVEMENT else "")


def _urgency(item: Item) -> tuple[int, float]:
    return KINDS.index(item.kind), -item.at.timestamp()


def _change(row: Mapping[Any, Any]) -> Item:
    size = f"{write_change(row['size'])} ({100 * row['low']:+.1f} to {100 * row['high']:+.1f} %)"
    series = count_text(row["series"], "series")
    one = row["commits_in_range"] <= 1
    since = f"{short_sha(row['bad_sha'])} {row['bad_subject']}"
    return Item(
        kind=row["direction"],
        title=f"{row['kernel']} on {', '.join(row['gpu_models'])}: {size}",
        facts=(
            f"since {since}, in {series}" if one else f"in {row['commits_in_range']} commits up to {since}; {series}",
            f"whose change: {WHOSE[row['category']]}: {row['cause']}",
            f"{row['repository']}{' (simulated)' if row['simulated'] else ''}, {row['state']}, "
            f"{row['owner'] or 'without an owner'}, opened {day(row['opened_at'])}",
        ),
        at=row["opened_at"],
        page="views/regressions.py",
        links={"Open: diff, replay, history": {"regression": str(row["id"])}},
        diff=f"git show {row['bad_sha']}" if one else f"git log --patch {row['good_sha']}..{row['bad_sha']}",
        regression_id=int(row["id"]),
        can_acknowledge=row["direction"] == REGRESSION and row["state"] != "acknowledged",
    )


def _alarm(row: Mapping[Any, Any]) -> Item:
    words, action = describe_kind(row["kind"])
    return Item(
        kind=ALARM,
        title=f"{words[0].upper()}{words[1:]}: {row['subject']}",
        facts=(row["detail"], f"{action} Since {moment(row['opened_at'])}."),
        at=row["opened_at"],
        page="views/jobs.py",
        links={"Open jobs and workers": {}},
    )


def _list_undecided(rows: pd.DataFrame) -> Sequence[Item]:
    """Lists an item for each repository and GPU model with undecided verdicts."""
    groups = group_by(rows.to_dict("records"), lambda row: (row["repository"], row["gpu_model"]))
    return [_undecided(group) for group in groups.values()]


def _undecided(rows: Sequence[Mapping[Any, Any]]) -> Item:
    first = rows[0]
    return Item(
        kind=UNDECIDED,
        title=f"{count_text(len(rows), 'series')} on {first['gpu_name']} {'is' if len(rows) == 1 else 'are'} undecided",
        facts=(*map(_describe_undecided, rows), str(first["repository"])),
        at=max(row["measured_at"] for row in rows),
        page="views/series.py",
        links={f"Open {row['kernel']} {row['problem']}": {"run": str(row["run_id"])} for row in rows},
        run_ids=tuple(
            int(row["run_id"]) for row in rows if row["kernel"] != TOTAL and not is_branch(row["repository"])
        ),
    )


def _describe_undecided(row: Mapping[Any, Any]) -> str:
    plan = write_plan(str(row["reason"]), is_recorded=False)
    at = f"{short_sha(row['sha'])} {row['subject']}"
    return f"{row['kernel']} {row['problem']}, at {at}: {row['reason']}; {plan}"
