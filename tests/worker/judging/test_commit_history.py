"""The commits between measured ones, by their positions, as the clone has them, and which of them have one code."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tests.worker.fixtures import odd_histories
from tests.worker.fixtures.odd_histories import add
from tests.worker.fixtures.tiny_repository import git
from tilewatch.db import fact_writes
from tilewatch.db.models import Commit
from tilewatch.db.worker_reads.judging import Night, ReplayFact, Scope
from tilewatch.db.worker_reads.winners import Winner, find_code
from tilewatch.text import short_sha
from tilewatch.worker.judging import commit_history
from tilewatch.worker.judging.commit_history import History, _find_first_parents, _were_identical
from tilewatch.worker.judging.replay_answers import End
from tilewatch.worker.judging.scope_judge import SeriesQuestion

WON = Winner(31, 1, "source", 1, {"tile_m": 64}, "key", "k", "code", "compiler")
SCOPE = Scope(1, 1, "ab" * 20, 20, "tilewatch", "b200", "sm_100", "measured")
IDENTICAL = ReplayFact("k", "p", 1, 2, 10, 20, "code", "code", (), (), None)


def test_commits_between_two_measured_ones_have_the_positions_between(tmp_path: Path) -> None:
    one, two, three, four, five = odd_histories.make(tmp_path / "r", "2", "3", "4", "5")
    assert _find_first_parents(tmp_path / "r", five, {1: one, 5: five}) == {2: two, 3: three, 4: four}
    assert _find_first_parents(tmp_path / "r", five, {1: one, 2: two, 5: five}) == {3: three, 4: four}
    assert _find_first_parents(tmp_path / "r", five, {1: one, 3: three, 5: five}) == {2: two, 4: four}
    assert _find_first_parents(tmp_path / "r", five, {4: four, 5: five}) == {1: one, 2: two, 3: three}
    assert _find_first_parents(tmp_path / "r", five, {5: five, 6: "b" * 40}) == {1: one, 2: two, 3: three, 4: four}


def test_commits_farther_back_than_the_clone_is_read_have_no_positions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four commits are read here: the fifth from the end is too far back to look for those before it."""
    monkeypatch.setattr(commit_history, "FARTHEST", 4)
    one, *_, four, five, six, seven, eight = odd_histories.make(tmp_path / "r", *"2345678")
    known = {1: one, 4: four, 8: eight}
    assert _find_first_parents(tmp_path / "r", eight, known) == {5: five, 6: six, 7: seven}


def make_replaced_branch(folder: Path) -> tuple[str, list[str], list[str]]:
    """Makes a history whose commits 2 to 4 were replaced. Returns commit 1, the replaced and the new ones."""
    (one,) = odd_histories.make(folder)
    git(folder, "switch", "--quiet", "--create", "left")
    left = [add(folder, f"left {number}") for number in (2, 3, 4)]
    git(folder, "switch", "--quiet", "main")
    return one, left, [add(folder, f"new {number}") for number in (2, 3, 4, 5, 6, 7)]


def test_commits_that_lead_to_one_that_left_the_branch_are_those_of_its_own_line(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    one, left, new = make_replaced_branch(folder)
    assert _find_first_parents(folder, new[-1], {1: one, 4: left[-1]}) == {2: left[0], 3: left[1]}
    both = {1: one, 4: left[-1], 7: new[-1]}
    assert _find_first_parents(folder, new[-1], both) == {2: left[0], 3: left[1], 5: new[3], 6: new[4]}


def test_a_side_branch_that_was_merged_does_not_lead_from_a_commit_of_the_branch(tmp_path: Path) -> None:
    """The first parents of a foxtrot merge are the side branch's, which does not contain what was measured before."""
    *five, side, merge = odd_histories.make_foxtrot(tmp_path / "r")
    assert _find_first_parents(tmp_path / "r", merge, {5: five[-1], 8: merge}) == dict(
        zip((1, 2, 3, 4), five[:4], strict=True)
    )
    assert side not in _find_first_parents(tmp_path / "r", merge, {1: five[0], 5: five[-1], 8: merge}).values()


def test_a_single_replay_of_both_commits_that_found_one_code_makes_them_identical() -> None:
    others = [
        replace(IDENTICAL, bad_code="other"),
        replace(IDENTICAL, good_code=None, bad_code=None),
        replace(IDENTICAL, good_commit_id=2, bad_commit_id=1),
        replace(IDENTICAL, bad_commit_id=3),
    ]
    assert not _were_identical(others, 1, 2)
    assert _were_identical([*others, IDENTICAL], 1, 2)


def test_winners_of_two_configs_are_one_code_if_each_config_is_at_both_commits(db_session: Session) -> None:
    planned = [one_commit.submit(db_session, key=sha, sha=sha * 40, position=int(sha)) for sha in ("1", "2")]
    fact_writes.add_compilations(db_session, [one_commit.compiled(code) for code in planned[0].code_keys])
    for each in planned:
        submission_id = each.submission_id
        fact_writes.attach_compilations(db_session, compiler=one_commit.COMPILER, submission_id=submission_id)
    sides = []
    for place, each in enumerate(planned):
        config_id = each.config_ids[place]
        code = find_code(db_session, each.sweep_id, config_id)
        assert code is not None
        source = f"source {place}"
        sides.append(replace(WON, sweep_id=each.sweep_id, source_sha256=source, config_id=config_id, code_sha256=code))
    base, head = sides
    history = History(db_session, None, SCOPE, ())
    assert history._is_same(base, head)
    assert not history._is_same(replace(base, code_sha256="other"), head)
    assert not history._is_same(base, replace(head, code_sha256="other"))
    assert history._is_same(base, replace(head, source_sha256=base.source_sha256, code_sha256="other"))


@pytest.mark.parametrize("base", [WON, None])
@pytest.mark.parametrize("head", [WON, None])
def test_a_question_has_a_pair_if_one_of_its_ends_was_measured(
    db_session: Session, base: Winner | None, head: Winner | None
) -> None:
    ends = {10: End(1, "one", base, None, None), 20: End(2, "two", head, None, None)}

    class Known(History):
        def _end(self, build: int, *_: object) -> End | None:
            return ends.get(build)

    history = Known(db_session, None, SCOPE, ())
    pair = history.find_pair(SeriesQuestion(("k", "p", "n1"), 10, 20, 4, 0), ())
    assert (None if pair is None else (pair.base, pair.head)) == (tuple(ends.values()) if base or head else None)
    for ends_unknown in ((10, 21), (9, 20)):
        assert history.find_pair(SeriesQuestion(("k", "p", "n1"), *ends_unknown, 4, 0), ()) is None


@pytest.mark.parametrize(("code", "is_identical"), [(WON.code_sha256, True), ("other", False), (None, False)])
def test_a_commit_whose_code_only_a_replay_found_is_identical_to_a_measured_one_with_that_code(
    db_session: Session, code: str | None, is_identical: bool
) -> None:
    measured, replayed = End(1, "one", WON, None, WON.code_sha256), End(2, "two", None, WON, code)
    history = History(db_session, None, SCOPE, ())
    assert history._is_identical(measured, replayed) == is_identical
    assert history._is_identical(replayed, measured) == is_identical


def test_a_run_is_found_at_the_commit_of_its_winner(db_session: Session) -> None:
    history = History(db_session, None, SCOPE, ())
    history._sides = {7: {("k", "p"): {"n0": replace(WON, run_id=30), "n1": WON}}, 8: {}}
    found = [history.find_run_at(("k", "p", host), commit_id) for commit_id in (7, 8) for host in ("n0", "n1", "n2")]
    assert found == [30, 31, 30, None, None, None], "of the own host, or else of the first run"


def test_the_builds_between_two_are_all_positions_or_those_on_the_path_if_the_clone_knows_both(
    db_session: Session, tmp_path: Path
) -> None:
    """Commits 2 to 4 were measured on a branch that was replaced since."""
    folder = tmp_path / "r"
    one, left, new = make_replaced_branch(folder)
    nights = [Night(1, 1, one, 1), Night(2, 2, left[-1], 4), Night(3, 3, new[-1], 7)]
    scope = replace(SCOPE, sha=new[-1], position=7)
    history = History(db_session, folder, scope, nights)
    assert history.list_between(1, 7) == [5, 6]
    assert history.list_between(1, 4) == [2, 3]
    assert history.list_between(1, 9) == history.list_between(0, 9)[1:] == [2, 3, 4, 5, 6, 7, 8], "9 is unknown"
    assert history.list_between(-2, 1) == [-1, 0]
    assert History(db_session, None, scope, nights).list_between(1, 7) == [2, 3, 4, 5, 6]


def test_a_commit_that_nobody_measured_is_found_in_the_clone_and_stored_once(
    db_session: Session, tmp_path: Path
) -> None:
    one, two, three = odd_histories.make(tmp_path / "r", "2", "3")
    nights = [Night(1, 71, one, 1), Night(2, 73, three, 3)]
    history = History(db_session, tmp_path / "r", replace(SCOPE, sha=three, position=3), nights)
    assert [history.sha(build) for build in (1, 2, 3)] == [one, two, three]
    with pytest.raises(KeyError):
        history.sha(4)
    assert [history.commit_id(build) for build in (1, 3, 4)] == [71, 73, None]
    stored = history.commit_id(2)
    (commit,) = db_session.scalars(select(Commit))
    assert (commit.id, commit.sha, commit.position, commit.repository) == (stored, two, 2, SCOPE.repository)
    assert history.commit_id(2) == stored
    assert History(db_session, None, SCOPE, nights).commit_id(2) is None


SERIES = ("k", "p", "n1")


def known_history(session: Session, facts: Sequence[ReplayFact] = (), **won: Winner | None) -> History:
    """A history of nights at 1, 2, ... with these best configs, the newest first; None: not measured there."""
    nights = [Night(number, 70 + number, sha * 40, number) for number, sha in enumerate(won, 1)]
    history = History(session, None, SCOPE, nights[::-1], facts)
    history._sides = {
        70 + number: {} if each is None else {("k", "p"): {"n1": each}} for number, each in enumerate(won.values(), 1)
    }
    return history


def test_a_commit_without_a_run_stands_for_the_newest_run_with_the_code_that_a_replay_found_there(
    db_session: Session,
) -> None:
    old, new = replace(WON, run_id=30, code_sha256="old"), replace(WON, run_id=33, code_sha256="new")
    found = replace(IDENTICAL, good_commit_id=72, bad_commit_id=80, good_code="old", bad_code="old")
    history = known_history(db_session, [found], a=old, b=replace(old, run_id=31), c=None, d=new)
    assert history.find_run_at(("k", "p", "n1"), 80) == 31
    history._sides[71]["k", "p"] = {"n1": new, "n2": old}
    assert history.find_run_at(("k", "p", "n2"), 80) == 30, "of the same machine, though it is not the newest"
    assert known_history(db_session, [], a=old, d=new).find_run_at(("k", "p", "n1"), 73) is None
    assert known_history(db_session, [found], d=new).find_run_at(("k", "p", "n1"), 80) is None


def test_the_previous_run_is_the_newest_one_before_a_build(db_session: Session) -> None:
    other = replace(WON, source_sha256="other", code_sha256="other")
    history = known_history(db_session, a=WON, b=None, c=WON, d=other)
    assert [history.find_previous(SERIES, build) for build in (1, 2, 3, 4, 5)] == [
        None,
        None,
        (1, True),
        (3, False),
        None,
    ]
    assert [history.find_same_code(SERIES, build) for build in (1, 3, 4)] == [None, short_sha("a" * 40), None]
    assert history.find_previous(("k", "other", "n1"), 3) is None
    fact = replace(IDENTICAL, good_commit_id=73, bad_commit_id=74)
    for facts, is_same in (([fact], True), ([replace(fact, kernel="other")], False)):
        assert known_history(db_session, facts, a=WON, b=None, c=WON, d=other).find_previous(SERIES, 4) == (3, is_same)


@pytest.mark.parametrize(
    ("first_bad", "last_good", "ends"),
    [
        (12, None, (10, 12)),
        (13, None, (12, 14)),
        (14, None, (12, 14)),
        (14, 10, (10, 14)),
        (16, None, (14, 16)),
        (17, None, (16, 16)),
        (10, None, (10, 10)),
    ],
)
def test_a_change_lies_between_the_nearest_tested_commits(
    db_session: Session, first_bad: int, last_good: int | None, ends: tuple[int, int]
) -> None:
    """Replays tested commits at 10, 12, 14 and 16, whose ids are ten times as large."""
    facts = [
        replace(
            IDENTICAL,
            good_commit_id=10 * a,
            bad_commit_id=10 * b,
            good_position=a,
            bad_position=b,
            good_code=f"code of {a}",
            bad_code="new",
        )
        for a, b in ((10, 12), (14, 16))
    ]
    history = History(db_session, None, SCOPE, ())
    for in_any_order in (facts, facts[::-1]):
        found = history.find_range(SERIES, first_bad, in_any_order, last_good)
        assert found == tuple(10 * each for each in ends)


def test_a_commit_with_the_old_machine_code_is_before_the_change(db_session: Session) -> None:
    """Nights at 10 and 16 differ; replays found the code of commit 10 at 12, and that of 12 at 14."""
    ids = ((100, 10), (120, 12), (140, 14), (160, 16))
    facts = [
        replace(IDENTICAL, good_commit_id=a_id, good_position=a, bad_commit_id=b_id, bad_position=b, bad_code=code)
        for ((a_id, a), (b_id, b)), code in zip(pairwise(ids), ("code", "code", "new"), strict=True)
    ]
    history = History(db_session, None, SCOPE, ())
    assert history.find_range(SERIES, 11, facts) == (140, 160)
    assert history.find_range(SERIES, 11, facts[:2]) == (120, 140), "the last commit is never before its change"
    others = [replace(fact, problem="other") for fact in facts[1:]]
    assert history.find_range(SERIES, 11, [facts[0], *others, facts[2]]) == (140, 160), "140 is known to have that code"
    assert history.find_range(SERIES, 11, [facts[0], *others]) == (100, 120)
    unknown = [replace(fact, good_code=None, bad_code=None) for fact in facts]
    assert history.find_range(SERIES, 11, unknown) == (100, 120)
