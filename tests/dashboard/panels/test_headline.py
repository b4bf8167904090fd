"""The one sentence of the Overview: the inbox's own count, over all repositories."""

import datetime as dt

import pytest

from tilewatch.dashboard.frames.inbox import Inbox, Item
from tilewatch.dashboard.panels.headline import sentence, write_apart

NOON = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)


def items(*kinds: str) -> tuple[Item, ...]:
    return tuple(Item(kind, "something", (), NOON, "views/jobs.py") for kind in kinds)


@pytest.mark.parametrize(
    ("here", "is_measured", "colour", "words"),
    [
        ((), True, "green", "Nothing needs a person."),
        ((), False, "orange", "Nothing is measured yet."),
        (("regression",), True, "red", "1 thing needs a person: 1 regression."),
        (
            ("alarm", "regression", "alarm", "improvement"),
            True,
            "red",
            "4 things need a person: 1 regression, 2 alarms, 1 improvement to accept.",
        ),
        (("alarm",), False, "orange", "1 thing needs a person: 1 alarm."),
        (
            ("undecided", "improvement"),
            True,
            "orange",
            "2 things need a person: 1 undecided group, 1 improvement to accept.",
        ),
    ],
)
def test_the_sentence_counts_what_the_inbox_has(
    here: tuple[str, ...], is_measured: bool, colour: str, words: str
) -> None:
    assert sentence(Inbox(items(*here), (), ()), is_measured=is_measured) == (colour, words)


def test_what_is_apart_is_named_and_in_no_count() -> None:
    found = Inbox((), items("improvement", "improvement"), items("regression"))
    assert sentence(found, is_measured=True) == ("green", "Nothing needs a person.")
    assert write_apart(found) == "Not counted: 1 planted example and 2 changes that came with recordings."
    assert write_apart(Inbox(items("alarm"), (), ())) == ""
