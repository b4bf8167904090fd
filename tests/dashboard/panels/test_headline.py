"""The one sentence of the Overview: the inbox's own count, over all repositories."""

import datetime as dt

import pytest
from sqlalchemy import update

from tests.db.fixtures import one_commit
from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.frames.inbox import Inbox, Item
from tilewatch.dashboard.panels.headline import list_nights, sentence
from tilewatch.db.lifecycle import repositories
from tilewatch.db.models import Submission
from tilewatch.db.session import session
from tilewatch.text import write_uncounted

NOON = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)


def items(*kinds: str) -> tuple[Item, ...]:
    return tuple(Item(kind, "something", (), NOON, "views/jobs.py") for kind in kinds)


@pytest.mark.parametrize(
    ("here", "is_measured", "colour", "words"),
    [
        ((), True, "green", "Nothing needs a person in any repository."),
        ((), False, "orange", "Nothing is measured yet."),
        (("regression",), True, "red", "In all repositories 1 thing needs a person: 1 regression."),
        (
            ("alarm", "regression", "alarm", "improvement"),
            True,
            "red",
            "In all repositories 4 things need a person: 1 regression, 2 alarms, 1 improvement to accept.",
        ),
        (("alarm",), False, "orange", "In all repositories 1 thing needs a person: 1 alarm."),
        (
            ("undecided", "improvement"),
            True,
            "orange",
            "In all repositories 2 things need a person: 1 undecided group, 1 improvement to accept.",
        ),
    ],
)
def test_the_sentence_counts_what_the_inbox_has(
    here: tuple[str, ...], is_measured: bool, colour: str, words: str
) -> None:
    assert sentence(Inbox(items(*here), (), ()), is_measured=is_measured) == (colour, words)


def test_no_night_is_missing_of_a_checkout_that_is_not_watched_any_more(database_url: str) -> None:
    """The first `tilewatch up` submits a nightly of Tilewatch's own checkout; then a team adds its repository."""
    with session(database_url) as opened:
        for name in ("tilewatch", "kernels"):
            one_commit.submit(opened, f"night of {name}", name)
        opened.execute(update(Submission).values(night=NOON.date()))
    assert {night.state for night in list_nights(database_url)} == {"missing"}
    with session(database_url) as opened:
        repositories.add(opened, "kernels", "https://example.org/kernels.git", "main")
    reads.st.cache_data.clear()
    states = {night.repository: night.state for night in list_nights(database_url)}
    assert (states["kernels"], "missing" in states["tilewatch"]) == ("missing", False)


def test_what_is_apart_is_named_and_in_no_count() -> None:
    found = Inbox((), items("improvement", "improvement"), items("regression"))
    assert sentence(found, is_measured=True) == ("green", "Nothing needs a person in any repository.")
    assert (
        write_uncounted(len(found.examples), len(found.recorded))
        == "Not counted: 1 planted example and 2 changes that came with recordings."
    )
    assert write_uncounted(0, 0) == ""
