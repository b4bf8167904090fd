"""Launches answer for code, not for commits."""

from dataclasses import replace

import pytest

from tilewatch.db.lifecycle.suspicions import NOT_NEEDED
from tilewatch.db.worker_reads.judging import ReplayFact
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
