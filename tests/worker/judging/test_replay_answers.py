"""Launches answer for code, not for commits; a policy file changes only what it names."""

from dataclasses import replace
from pathlib import Path

import pytest

from tilewatch.db.lifecycle.suspicions import NOT_NEEDED
from tilewatch.db.worker_reads.judging import ReplayFact
from tilewatch.db.worker_reads.winners import Winner
from tilewatch.worker.detection import policy
from tilewatch.worker.detection.policy import BadPolicy, Policy
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


def test_a_policy_file_changes_only_what_it_names(tmp_path: Path) -> None:
    file = tmp_path / "bolder.json"
    file.write_text('{"believed_deviations": 2, "min_history": 4}')
    found = policy.load(file)
    assert (found.name, found.believed_deviations, found.min_history) == ("bolder", 2.0, 4)
    assert found.min_change == Policy().min_change
    assert policy.load(None) == Policy()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "is not JSON"),
        ("[1]", "is not a JSON object"),
        ('{"alone": 2}', "has 'alone', which no policy has"),
        ('{"budget": "much"}', "has budget='much'; expected a number"),
        ('{"min_history": 2.5}', "has min_history=2.5; expected a whole number"),
        ('{"min_history": -1}', "has min_history=-1; expected a whole number from 0 up"),
        ('{"min_history": NaN}', "has min_history=nan; expected a number from -1,000,000 to 1,000,000"),
        ('{"budget": -Infinity}', "has budget=-inf; expected a number from"),
        ('{"name": "mine"}', "has 'name'"),
    ],
)
def test_a_policy_that_makes_no_sense_is_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "p.json"
    file.write_text(text)
    with pytest.raises(BadPolicy, match=sentence):
        policy.load(file)
    with pytest.raises(BadPolicy, match="cannot be read"):
        policy.load(tmp_path / "none.json")
