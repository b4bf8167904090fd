"""What needs a person, from made rows: nothing is lost, nothing is counted twice, and examples stand apart."""

import datetime as dt
from typing import Any

import pandas as pd
import pytest

from tilewatch.dashboard.frames import inbox
from tilewatch.db.models import TOTAL
from tilewatch.db.page_reads.alarms import describe_kind
from tilewatch.db.repository_names import EXAMPLES, name_of_branch

NOON = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)
NONE = pd.DataFrame()


def regression(number: int, **other: Any) -> dict[str, Any]:
    return {
        "id": number,
        "direction": "regression",
        "repository": "mine",
        "kernel": "gemm",
        "category": "code",
        "cause": "its loads lost TMA",
        "good_sha": "a" * 40,
        "bad_sha": "b" * 40,
        "bad_subject": "Let two blocks share an SM",
        "commits_in_range": 1,
        "size": 0.093,
        "low": 0.089,
        "high": 0.097,
        "state": "new",
        "owner": None,
        "series": 2,
        "gpu_models": ["h200"],
        "simulated": False,
        "counted": True,
        "opened_at": NOON,
        **other,
    }


def undecided(problem: str, reason: str, **other: Any) -> dict[str, Any]:
    about = {"repository": "mine", "kernel": "gemm", "gpu_model": "h200", "gpu_name": "NVIDIA H200", "run_id": 7}
    return {
        **about,
        "problem": problem,
        "sha": "c" * 40,
        "subject": "Tile",
        "measured_at": NOON,
        "reason": reason,
        **other,
    }


def made(*regressions: dict[str, Any], alarms: Any = (), waiting: Any = ()) -> inbox.Inbox:
    return inbox.make_inbox(pd.DataFrame(list(regressions)), pd.DataFrame(list(alarms)), pd.DataFrame(list(waiting)))


@pytest.mark.parametrize(
    ("row", "place"),
    [
        (regression(1), "items"),
        (regression(1, state="acknowledged"), "items"),
        (regression(1, state="resolved"), None),
        (regression(1, state="expected"), None),
        (regression(1, direction="improvement"), "items"),
        (regression(1, direction="improvement", state="expected"), None),
        (regression(1, direction="improvement", state="acknowledged"), None),
        (regression(1, state="reopened"), "items"),
        (regression(1, counted=False), "recorded"),
        (regression(1, counted=False, repository=EXAMPLES[0]), "examples"),
    ],
)
def test_a_change_stands_in_one_place(row: dict[str, Any], place: str | None) -> None:
    found = made(row)
    counts = {name: len(getattr(found, name)) for name in ("items", "recorded", "examples")}
    assert counts == {"items": 0, "recorded": 0, "examples": 0, **({place: 1} if place else {})}


def test_a_card_says_what_how_much_since_when_whose_and_what_to_do_next() -> None:
    (card,) = made(regression(4)).items
    assert card.title == "gemm on h200: +9.3 % time, slower (+8.9 to +9.7 %)"
    assert card.facts[0] == "since bbbbbbbbbb Let two blocks share an SM, in 2 series"
    assert card.facts[1] == "whose change: our code: its loads lost TMA"
    assert (card.page, *card.links.values()) == ("views/regressions.py", {"regression": "4"})
    assert card.diff == f"git show {'b' * 40}"
    assert card.can_acknowledge
    (several,) = made(regression(4, commits_in_range=2, direction="improvement", size=-0.03)).items
    assert several.facts[0] == "in 2 commits up to bbbbbbbbbb Let two blocks share an SM; 2 series"
    assert several.diff == f"git log --patch {'a' * 40}..{'b' * 40}"
    assert "-3.0 % time, faster" in several.title
    assert not several.can_acknowledge


@pytest.mark.parametrize(
    ("other", "fact"),
    [
        ({}, "mine, new, without an owner, opened 2026-11-20"),
        ({"owner": "kim@example.org"}, "mine, new, kim@example.org, opened 2026-11-20"),
        (
            {"simulated": True, "state": "acknowledged"},
            "mine (simulated), acknowledged, without an owner, opened 2026-11-20",
        ),
    ],
)
def test_a_card_names_the_repository_the_state_the_owner_and_the_day(other: dict[str, Any], fact: str) -> None:
    (card,) = made(regression(4, **other)).items
    assert card.facts[2] == fact
    assert card.can_acknowledge == (card.facts[2].split(", ")[1] == "new")


def test_the_most_urgent_comes_first_and_the_newest_of_a_kind() -> None:
    alarm = {"kind": "nightly_late", "subject": "NVIDIA B200", "detail": "it compiles", "opened_at": NOON}
    later = regression(2, opened_at=NOON + dt.timedelta(hours=1))
    found = made(regression(3, direction="improvement"), regression(1), later, alarms=[alarm])
    assert [(item.kind, item.regression_id) for item in found.items] == [
        ("regression", 2),
        ("regression", 1),
        ("alarm", None),
        ("improvement", 3),
    ]
    assert inbox.write_sentence(found) == (
        "In all repositories 4 things need a person: 2 regressions, 1 alarm, 1 improvement to accept"
    )


@pytest.mark.parametrize(
    ("regressions", "sentence"),
    [
        ([], "Nothing needs a person in any repository"),
        ([regression(1, counted=False)], "Nothing needs a person in any repository"),
        ([regression(1)], "In all repositories 1 thing needs a person: 1 regression"),
        ([regression(1), regression(2)], "In all repositories 2 things need a person: 2 regressions"),
    ],
)
def test_a_sentence_counts_what_needs_a_person(regressions: list[dict[str, Any]], sentence: str) -> None:
    assert inbox.write_sentence(made(*regressions)) == sentence


def test_an_alarm_says_what_to_do_and_has_no_button() -> None:
    alarm = {"kind": "nightly_late", "subject": "NVIDIA B200", "detail": "it compiles", "opened_at": NOON}
    (card,) = made(alarms=[alarm], waiting=[]).items
    words, action = describe_kind("nightly_late")
    assert card.title == f"{words.capitalize()}: NVIDIA B200"
    assert card.facts == ("it compiles", f"{action} Since 2026-11-20 12:00 UTC.")
    assert (card.page, card.can_acknowledge, card.regression_id, card.run_ids) == ("views/jobs.py", False, None, ())


def test_undecided_series_ask_for_a_person_once_per_gpu_model() -> None:
    rows = [
        undecided("2", "not sure enough: 8 launches differ by 0.5%"),
        undecided("3", "not sure enough: 4 launches differ by 0.7%", run_id=8),
        undecided("4", "not sure enough: 4 launches", gpu_model="b200", gpu_name="NVIDIA B200"),
    ]
    found = made(waiting=rows)
    assert [item.title for item in found.items] == [
        "2 series on NVIDIA H200 are undecided",
        "1 series on NVIDIA B200 is undecided",
    ]
    assert found.items[0].run_ids == (7, 8)
    days = [undecided(str(day), "not sure enough", measured_at=NOON + dt.timedelta(days=day)) for day in (1, 2, 0)]
    assert made(waiting=days).items[0].at == NOON + dt.timedelta(days=2)


@pytest.mark.parametrize("other", [{"kernel": TOTAL}, {"repository": name_of_branch("mine", "topic")}])
def test_no_replay_is_offered_of_a_run_that_cannot_have_one(other: dict[str, str]) -> None:
    assert made(waiting=[undecided("2", "not sure enough: 8 launches", **other)]).items[0].run_ids == ()


def test_a_card_shows_the_commit_the_reason_and_a_link_of_each_undecided_series() -> None:
    """Four series stood under the commit and the reason of the first (2026-11-30)."""
    rows = [
        undecided(str(number), f"not sure enough: reason {number}", sha=str(number) * 40, run_id=number)
        for number in range(1, 5)
    ]
    (card,) = made(waiting=rows).items
    assert card.facts == (
        *(
            f"gemm {n}, at {str(n) * 10} Tile: not sure enough: reason {n}; a replay with more launches decides"
            for n in range(1, 5)
        ),
        "mine",
    )
    assert card.links == {f"Open gemm {n}": {"run": str(n)} for n in range(1, 5)}
