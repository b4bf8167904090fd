"""Launches answer for code, not for commits."""

from dataclasses import replace

import pytest

from tilewatch.db.lifecycle.suspicions import NOT_NEEDED
from tilewatch.db.worker_reads.judging import ReplayFact, Scope
from tilewatch.db.worker_reads.winners import Winner
from tilewatch.worker.judging import replay_answers
from tilewatch.worker.judging.replay_answers import End, Pair
from tilewatch.worker.judging.scope_judge import HISTORY_NIGHTS, HISTORY_STEP, SeriesQuestion, first_night

QUESTION = SeriesQuestion(("k", "p", "n1"), 10, 20, 4, 0)


def won(code: str, compiler: str = "c1") -> Winner:
    return Winner(1, 1, f"source of {code}", 1, {"width": 64}, f"key of {code}", "k", code, compiler)


def end(commit_id: int, side: Winner | None, code: str | None = None) -> End:
    return End(commit_id, f"sha{commit_id}", side, None, side.code_sha256 if side else code)


def fact(base: int, head: int, codes: tuple[str, str], launches: int, failure: str | None = None) -> ReplayFact:
    times = (100.0,) * launches
    return ReplayFact("k", "p", base, head, base, head, *codes, times, times, failure)


def pair(base: End, head: End, *, identical: bool = False) -> Pair:
    return Pair("k", "p", base, head, identical)


def test_a_question_is_answered_when_all_its_launches_are_there() -> None:
    asked = pair(end(1, won("a")), end(2, won("b")))
    three = replay_answers.find_stored_launches([fact(1, 2, ("a", "b"), 3)], asked)
    assert replay_answers.next_launches(QUESTION, asked, three) is None
    seven = replay_answers.find_stored_launches([fact(1, 2, ("a", "b"), 3), fact(1, 2, ("a", "b"), 4)], asked)
    answer = replay_answers.next_launches(replace(QUESTION, launches_used=3), asked, seven)
    assert answer is not None
    assert len(answer.base_us) == 4


def test_launches_of_the_same_code_answer_for_other_commits() -> None:
    asked = pair(end(1, won("a")), end(3, None, "b"))
    found = replay_answers.find_stored_launches([fact(1, 2, ("a", "b"), 4), fact(1, 4, ("a", "c"), 8)], asked)
    assert len(found.base_us) == 4


def test_launches_of_the_code_that_a_newer_compiler_makes_answer_for_commits_of_an_older_night() -> None:
    asked = pair(end(1, won("a")), end(2, None))
    facts = [fact(1, 4, ("newer a", "b"), 4), fact(1, 2, ("newer a", "b"), 0, NOT_NEEDED)]
    assert replay_answers.find_stored_launches(facts[:1], asked).base_us == ()
    answer = replay_answers.next_launches(QUESTION, asked, replay_answers.find_stored_launches(facts, asked))
    assert answer is not None
    assert len(answer.base_us) == 4


def test_a_replay_that_was_not_needed_is_no_failure_and_a_failed_one_ends_the_waiting() -> None:
    asked = pair(end(1, won("a")), end(2, won("b")))
    not_needed = replay_answers.find_stored_launches([fact(1, 2, ("a", "b"), 0, NOT_NEEDED)], asked)
    assert replay_answers.next_launches(QUESTION, asked, not_needed) is None
    failed = replay_answers.find_stored_launches([fact(1, 2, ("a", "b"), 0, "it is wrong")], asked)
    answer = replay_answers.next_launches(QUESTION, asked, failed)
    assert answer is not None
    assert answer.base_us == ()


def test_identical_code_takes_identical_time_without_a_gpu() -> None:
    asked = pair(end(1, won("a")), end(2, won("a")), identical=True)
    answer = replay_answers.next_launches(QUESTION, asked, replay_answers.find_stored_launches([], asked))
    assert answer is not None
    assert answer.base_us == answer.head_us
    assert len(answer.base_us) == QUESTION.launches


def test_sides_of_two_compilers_are_compiled_again_by_one() -> None:
    mixed = pair(end(1, won("a", "c1")), end(2, won("b", "c2")))
    assert not replay_answers.has_one_compiler(mixed)
    assert [side.code for side in replay_answers.make_sides(mixed, compiled=False)] == [None, None]
    alike = pair(end(1, won("a")), end(2, won("b")))
    assert replay_answers.has_one_compiler(alike)
    sides = replay_answers.make_sides(alike, compiled=True)
    assert [side.code and side.code.content_key for side in sides] == ["key of a", "key of b"]


def test_a_run_is_judged_from_the_same_first_night_whenever_it_is_judged() -> None:
    assert first_night(1) == first_night(HISTORY_NIGHTS) == 0
    starts = [first_night(nights) for nights in range(1, 1000)]
    assert all(nights - start <= HISTORY_NIGHTS + HISTORY_STEP for nights, start in enumerate(starts, start=1))
    assert set(starts) == set(range(0, max(starts) + 1, HISTORY_STEP))


@pytest.mark.parametrize(("commit_id", "code"), [(1, "a"), (2, "b"), (3, None)])
def test_the_code_at_either_commit_of_a_replay_is_known(commit_id: int, code: str | None) -> None:
    facts = [replace(fact(1, 2, ("other", "other"), 4), problem="q"), fact(1, 2, ("a", "b"), 4)]
    assert replay_answers.find_code(facts, "k", "p", commit_id) == code


@pytest.mark.parametrize(
    ("failures", "failure"),
    [
        ((None,), None),
        (("wrong",), "wrong"),
        (("wrong", None), "wrong"),
        ((None, "wrong"), "wrong"),
        (("wrong", "worse"), "worse"),
        (("wrong", NOT_NEEDED), "wrong"),
        ((NOT_NEEDED, None), None),
    ],
)
def test_a_failure_ends_the_waiting_whatever_else_was_stored(failures: list[str | None], failure: str | None) -> None:
    asked = pair(end(1, won("a")), end(2, won("b")))
    facts = [fact(1, 2, ("a", "b"), 1, each) for each in failures]
    stored = replay_answers.find_stored_launches(facts, asked)
    assert (stored.failure, len(stored.base_us), len(stored.head_us)) == (failure, len(facts), len(facts))


def test_launches_of_other_problems_or_of_unknown_code_answer_for_nothing() -> None:
    asked = pair(end(1, None), end(2, None))
    known = fact(1, 2, ("a", "b"), 4)
    unknown = replace(known, good_commit_id=7, good_code=None, bad_code=None)
    others = [
        replace(known, kernel="other"),
        replace(known, problem="other"),
        unknown,
        replace(known, good_commit_id=7),
    ]
    assert replay_answers.find_stored_launches(others, asked).base_us == ()
    assert replay_answers.find_stored_launches([known], asked).base_us == (100.0,) * 4
    swapped = pair(end(2, won("b")), end(1, won("a")))
    assert replay_answers.find_stored_launches([known], swapped).base_us == ()


def test_launches_have_their_sides_and_their_order() -> None:
    asked = pair(end(1, won("a")), end(2, won("b")))
    first, second = (replace(fact(1, 2, ("a", "b"), 1), good_us=(us,), bad_us=(us + 1.0,)) for us in (10.0, 20.0))
    stored = replay_answers.find_stored_launches([first, second], asked)
    assert (stored.base_us, stored.head_us) == ((10.0, 20.0), (11.0, 21.0))


@pytest.mark.parametrize(
    ("launches", "failure", "answered"), [(3, None, None), (4, None, 4), (5, None, 4), (3, "wrong", 3), (0, "wrong", 0)]
)
def test_a_question_awaits_all_launches_unless_no_more_will_come(
    launches: int, failure: str | None, answered: int | None
) -> None:
    asked = pair(end(1, won("a")), end(2, won("b")))
    stored = replay_answers.StoredLaunches((1.0,) * launches, (2.0,) * launches, failure)
    answer = replay_answers.next_launches(QUESTION, asked, stored)
    assert (None if answer is None else len(answer.head_us)) == answered


def test_a_question_asks_for_the_launches_that_are_missing() -> None:
    """The start is a part of the key, so that more launches are another question."""
    scope = Scope(1, 1, "ab" * 20, 20, "tilewatch", "b200", "sm_100", "measured")
    asked = pair(end(1, won("a")), end(2, won("b")))
    keys = set()
    for stored in (0, 5):
        launches = replay_answers.StoredLaunches((1.0,) * stored, (2.0,) * stored, None)
        question = replay_answers.make_question(scope, asked, launches, 12, compiled=True)
        assert (question.start, question.launches, question.axis) == (stored, 12 - stored, "commit")
        assert "sha1:sha2" in question.key
        keys.add(question.key)
    assert len(keys) == 2


def test_a_commit_that_was_not_measured_is_replayed_with_the_config_of_the_next_one() -> None:
    """Else with that of the other end."""
    unmeasured = End(1, "sha1", None, won("next"), None)
    base, head = replay_answers.make_sides(pair(unmeasured, end(2, won("b"))), compiled=True)
    assert (base.measured, head.measured) == (False, True)
    assert (base.commit_id, base.sha, head.commit_id, head.sha) == (1, "sha1", 2, "sha2")
    assert [side.code and side.code.content_key for side in (base, head)] == ["key of next", "key of b"]
    for ends in ((end(1, None), end(2, won("b"))), (end(1, won("b")), end(2, None))):
        sides = replay_answers.make_sides(pair(*ends), compiled=True)
        assert [side.code and side.code.content_key for side in sides] == ["key of b"] * 2
        assert not replay_answers.has_one_compiler(pair(*ends))


def test_the_code_at_a_commit_is_that_of_the_first_replay_that_knows_it() -> None:
    unknown = replace(fact(1, 2, ("a", "b"), 4), good_code=None, bad_code=None)
    facts = [unknown, fact(2, 1, ("c", "d"), 4), fact(1, 2, ("a", "b"), 4)]
    assert [replay_answers.find_code(facts, "k", "p", commit_id) for commit_id in (1, 2)] == ["d", "c"]
    assert replay_answers.find_code(facts, "other", "p", 1) is None
