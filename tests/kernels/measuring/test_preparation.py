"""What a library is asked for, and when: it learns which inputs count once it has said what it launches."""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilewatch.kernels.measuring import preparation as asking
from tilewatch.kernels.measuring.description_schema import BadDescription
from tilewatch.kernels.measuring.preparation import (
    SEEDS,
    Preparation,
    describe,
    describe_operator,
    draw_seed,
    make_question,
    prepare,
)

LIMIT_S = 60.0
WANTED = Preparation(Path("library"), "k", "8x16", "file:///store", configs=({"tile": 16},))


class Library:
    """Answers as a library's process does, and keeps what it was asked."""

    def __init__(self, *answers: Mapping[str, Any]) -> None:
        self.answers, self.asked = list(answers), list[Mapping[str, Any]]()

    def ask(self, request: Mapping[str, Any], *, deadline_s: float) -> dict[str, Any]:
        assert 0 < deadline_s <= LIMIT_S, "what is left of all requests' common time"
        self.asked.append(request)
        return dict(self.answers.pop(0))

    def begin(self, request: Mapping[str, Any]) -> None:
        self.asked.append({"begun": request["ask"]})

    def finish(self, *, deadline_s: float) -> dict[str, Any]:
        assert 0 < deadline_s <= LIMIT_S
        return dict(self.answers.pop(0))


def test_a_problem_is_described_beside_what_other_sides_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watched operator has no such description, whatever the other sides have."""
    checked: list[Any] = []
    monkeypatch.setattr(asking, "validate_description", lambda *of: checked.append(of))
    wanted = replace(WANTED, sides={"older": {"kernel": "k", "flops": 1}})
    library = Library({"problem": {"kernel": "k"}}, {"problem": None})
    described = describe(library, wanted, time.monotonic() + LIMIT_S)  # type: ignore[arg-type]
    assert described == {"older": {"kernel": "k", "flops": 1}, "library": {"kernel": "k"}}
    assert describe(library, wanted, time.monotonic() + LIMIT_S) is None  # type: ignore[arg-type]
    assert checked == [({"kernel": "k"}, "k")], "what it said is checked"
    assert library.asked == [{**make_question(wanted), "ask": "describe problem"}] * 2


def test_a_made_up_problem_is_refused() -> None:
    with pytest.raises(BadDescription):
        describe(Library({"problem": {"kernel": "k"}}), WANTED, time.monotonic() + LIMIT_S)  # type: ignore[arg-type]


def test_the_seed_follows_the_description_of_an_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Any] = []
    monkeypatch.setattr(asking, "validate_operator", lambda *of: checked.append(of))
    library = Library({"operator": {"configs": 1, "sets": 0}, "stated": "it has to"}, {"operator": {"sets": 2}})
    answer = describe_operator(library, WANTED, Path("library"), time.monotonic() + LIMIT_S)
    assert [(each["ask"], each.get("seed")) for each in library.asked] == [
        ("describe operator", None),
        ("hand over", WANTED.seed),
    ]
    assert (answer.operator, answer.why, answer.stated) == ({"configs": 1, "sets": 2}, "", "it has to")
    assert checked == [({"configs": 1, "sets": 2}, "k")], "all that it said is checked"


@pytest.mark.parametrize("before", [[], [{"operator": {"configs": 1}, "stated": "it has to"}]])
def test_host_code_that_cannot_be_described_says_why_at_either_request(before: list[Any]) -> None:
    library = Library(*before, {"stays": "it " + "x" * 1000, **({} if before else {"stated": "it has to"})})
    answer = describe_operator(library, WANTED, Path("library"), time.monotonic() + LIMIT_S)
    assert (answer.operator, len(answer.why), answer.stated) == (None, asking.LONGEST_REASON, "it has to")


@pytest.mark.parametrize("before", [[], [{"operator": {"configs": 1}, "stated": "it has to"}]])
def test_a_reason_that_a_watch_file_states_is_cut_at_either_request(before: list[Any]) -> None:
    """A library's process may have made it up."""
    longest = asking.LONGEST_REASON
    for stated in ("x" * longest, "x" * longest + "y"):
        library = Library(*before, {"stays": "it stays", "stated": stated})
        answer = describe_operator(library, WANTED, Path("library"), time.monotonic() + LIMIT_S)
        assert (answer.why, answer.stated) == ("it stays", "x" * longest)


def test_both_processes_make_inputs_before_the_reference_is_expected() -> None:
    library, measuring = Library({"outputs": ["reference"]}), Library({"introduction": 1})
    problems = {"library": {"kernel": "k"}}
    found = prepare(library, measuring, WANTED, problems, time.monotonic() + LIMIT_S)  # type: ignore[arg-type]
    assert found == {"introduction": 1}
    assert library.asked == [{"begun": "reference"}]
    assert measuring.asked == [{"begun": "prepare"}, {"ask": "expect", "outputs": ["reference"]}]
    assert asking.left_s(time.monotonic() - 1) == 0.0


def test_a_question_names_no_seed_and_the_configs_that_are_launched() -> None:
    asked = make_question(WANTED)
    assert "seed" not in asked
    assert (asked["configs"], WANTED.request["seed"]) == ([{"tile": 16}], WANTED.seed)


def test_seeds_are_drawn_and_fit_every_generator() -> None:
    seeds = {draw_seed() for _ in range(100)}
    assert len(seeds) > 90
    assert all(0 <= each < SEEDS == 2**31 for each in seeds)
