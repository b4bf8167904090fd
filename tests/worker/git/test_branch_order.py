"""The order of a followed branch is one that Git agrees with, whatever was pushed."""

import itertools
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.worker.fixtures import drawn_histories, odd_histories
from tests.worker.fixtures.drawn_histories import DrawnHistory
from tests.worker.fixtures.tiny_repository import git
from tilewatch.worker.git.branch_order import BranchOrder, order_branch, place_lost
from tilewatch.worker.git.commits import find_tips


def order(folder: Path, known: list[str], branch: str = "main") -> BranchOrder:
    return order_branch(folder, find_tips(folder, branch), known)


def in_order(found: BranchOrder) -> list[str]:
    return sorted(found.positions, key=found.positions.__getitem__)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn_histories.histories())
def test_git_agrees_with_the_order_of_any_history(tmp_path: Path, history: DrawnHistory) -> None:
    folder = tmp_path / "drawn.git"
    shutil.rmtree(folder, ignore_errors=True)
    shas = drawn_histories.write(folder, history)
    known: list[str] = []
    for tip, measured in zip(history.tips, history.measured, strict=True):
        found = order_branch(
            folder, [shas[tip]], [*known, *(shas[each] for each in measured if shas[each] not in known)]
        )
        known = [sha for sha in in_order(found) if sha in {*known, *(shas[each] for each in measured)}]
        assert sorted(found.positions.values()) == list(range(1, len(found.positions) + 1))
        for earlier, later in itertools.combinations(in_order(found), 2):
            assert not drawn_histories.contains(folder, earlier, later), "what it contains stands before it"
        assert {sha for sha in found.positions if drawn_histories.contains(folder, shas[tip], sha)} == (
            found.positions.keys() - found.left
        )


def test_a_plain_history_counts_its_first_parents(tmp_path: Path) -> None:
    shas = odd_histories.make(tmp_path / "r", "Two", "Three")
    assert order(tmp_path / "r", [shas[0]]) == BranchOrder(
        {sha: place for place, sha in enumerate(shas, 1)}, frozenset()
    )


def test_a_merged_branch_takes_no_place(tmp_path: Path) -> None:
    first, *_ = odd_histories.make(tmp_path / "r")
    git(tmp_path / "r", "switch", "--quiet", "--create", "feature")
    feature = odd_histories.add(tmp_path / "r", "Feature")
    git(tmp_path / "r", "switch", "--quiet", "main")
    git(tmp_path / "r", "merge", "--quiet", "--no-ff", "--message", "Merge", "feature")
    merge = git(tmp_path / "r", "rev-parse", "HEAD").strip()
    found = order(tmp_path / "r", [first])
    assert in_order(found) == [first, merge]
    assert not found.has(feature)


def test_a_foxtrot_merge_stands_after_all_that_it_merged(tmp_path: Path) -> None:
    *five, side, merge = odd_histories.make_foxtrot(tmp_path / "r")
    found = order(tmp_path / "r", five)
    assert in_order(found) == [*five, side, merge]
    assert found.left == frozenset()
    assert in_order(order(tmp_path / "r", [])) == [five[0], side, merge], "nobody knows that the others were main"
    assert in_order(order(tmp_path / "r", [five[4], merge])) == [*five, side, merge], "what leads to a known one"


def test_what_a_push_with_force_removed_stands_before_what_replaced_it(tmp_path: Path) -> None:
    base, *old = odd_histories.make(tmp_path / "r", "Old 1", "Old 2", "Old 3")
    new = odd_histories.rewrite(tmp_path / "r", base, "New 1")
    found = order(tmp_path / "r", [base, *old])
    assert in_order(found) == [base, *old, *new]
    assert found.left == frozenset(old)
    newer = odd_histories.rewrite(tmp_path / "r", base, "Newer 1")
    found = order(tmp_path / "r", [base, *old, *new])
    assert in_order(found) == [base, *old, *new, *newer], "one rewrite after the other"


def test_a_rewrite_that_is_taken_back_is_on_the_branch_again(tmp_path: Path) -> None:
    base, *old = odd_histories.make(tmp_path / "r", "Old 1", "Old 2")
    new = odd_histories.rewrite(tmp_path / "r", base, "New 1")
    git(tmp_path / "r", "reset", "--quiet", "--hard", old[-1])
    found = order(tmp_path / "r", [base, *old, *new])
    assert in_order(found) == [base, *new, *old]
    assert found.left == frozenset(new)


def test_a_branch_that_was_set_back_keeps_its_order(tmp_path: Path) -> None:
    shas = odd_histories.make(tmp_path / "r", "Two", "Three")
    git(tmp_path / "r", "reset", "--quiet", "--hard", shas[0])
    found = order(tmp_path / "r", shas)
    assert in_order(found) == shas
    assert found.left == frozenset(shas[1:])


def test_a_history_that_has_nothing_in_common_with_the_old_one_follows_it(tmp_path: Path) -> None:
    old = odd_histories.make(tmp_path / "r", "Old 2")
    git(tmp_path / "r", "switch", "--quiet", "--orphan", "other")
    new = odd_histories.add(tmp_path / "r", "New 1")
    git(tmp_path / "r", "branch", "--force", "main", "other")
    found = order(tmp_path / "r", old)
    assert in_order(found) == [*old, new]
    assert found.left == frozenset(old)


def test_commits_that_the_repository_lost_keep_their_place(tmp_path: Path) -> None:
    first, second = odd_histories.make(tmp_path / "r", "Two")
    gone, older = "f" * 40, "e" * 40
    found = order(tmp_path / "r", [older, first, gone, second])
    assert in_order(found) == [older, first, gone, second]
    assert found.left == {gone, older}


@pytest.mark.parametrize(
    ("known", "lost", "expected"),
    [
        (("a", "b"), (), ["a", "b"]),
        (("x", "a", "b"), ("x",), ["x", "a", "b"]),
        (("a", "x", "y", "b"), ("x", "y"), ["a", "x", "y", "b"]),
        (("a", "b", "x"), ("x",), ["a", "b", "x"]),
    ],
)
def test_a_lost_commit_follows_the_known_one_before_it(
    known: tuple[str, ...], lost: tuple[str, ...], expected: list[str]
) -> None:
    assert place_lost(["a", "b"], known, lost) == expected


def test_nothing_of_a_shallow_clone_counts_as_removed(tmp_path: Path) -> None:
    shas = odd_histories.make(tmp_path / "r", "Two", "Three")
    git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{tmp_path}/r", "shallow")
    found = order(tmp_path / "shallow", shas[:2], "HEAD")
    assert in_order(found) == shas
    assert found.left == frozenset()


@pytest.mark.parametrize("dates", [("1764288000 +0000", "1 +0000"), ("99999999999 +0000", "1764288000 +0000")])
def test_dates_play_no_part(tmp_path: Path, dates: tuple[str, str]) -> None:
    odd_histories.make(tmp_path / "r")
    first = odd_histories.date_oddly(tmp_path / "r", dates[0])
    second = odd_histories.add(tmp_path / "r", "Two")
    second = odd_histories.date_oddly(tmp_path / "r", dates[1])
    assert in_order(order(tmp_path / "r", [first])) == [first, second]


def test_a_graft_and_a_replaced_commit_change_nothing(tmp_path: Path) -> None:
    shas = odd_histories.make(tmp_path / "r", "Two", "Three")
    git(tmp_path / "r", "replace", "--graft", shas[2])
    (tmp_path / "r" / ".git" / "info").mkdir(exist_ok=True)
    (tmp_path / "r" / ".git" / "info" / "grafts").write_text(f"{shas[1]}\n")
    assert git(tmp_path / "r", "rev-list", "--count", "HEAD").strip() == "1", "what git shows on this machine"
    assert in_order(order(tmp_path / "r", shas)) == shas


def test_a_repository_of_long_hashes_is_ordered_alike(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    git(tmp_path / "r", "init", "--quiet", "--object-format", "sha256", "--initial-branch", "main")
    shas = [odd_histories.add(tmp_path / "r", subject) for subject in ("One", "Two", "Three")]
    new = odd_histories.rewrite(tmp_path / "r", shas[0], "New")
    assert {len(sha) for sha in shas} == {64}
    assert in_order(order(tmp_path / "r", shas)) == [*shas, *new]


def test_a_tag_with_the_name_of_the_branch_is_not_the_branch(tmp_path: Path) -> None:
    shas = odd_histories.make(tmp_path / "r", "Two")
    git(tmp_path / "r", "tag", "main", shas[0])
    assert in_order(order(tmp_path / "r", [])) == shas


def test_an_octopus_merge_stands_after_all_of_its_parents(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    (first,) = odd_histories.make(folder)
    arms = []
    for name in ("a", "b", "c"):
        git(folder, "switch", "--quiet", "--create", name, first)
        arms.append(odd_histories.add(folder, name))
    tree = git(folder, "rev-parse", "HEAD^{tree}").strip()
    parents = [word for arm in arms for word in ("-p", arm)]
    octopus = git(folder, "commit-tree", tree, *parents, "-m", "Octopus").strip()
    git(folder, "update-ref", "refs/heads/main", octopus)
    assert in_order(order(folder, [first, *arms])) == [first, *arms, octopus]
    assert order(folder, [first, *arms]).left == frozenset()


def test_a_merge_of_a_line_with_its_own_rewrite_has_left_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    base, *old = odd_histories.make(folder, "Old 1", "Old 2")
    git(folder, "branch", "old")
    new = odd_histories.rewrite(folder, base, "New 1")
    git(folder, "merge", "--quiet", "--strategy", "ours", "--no-ff", "--message", "Both", "old")
    merge = git(folder, "rev-parse", "HEAD").strip()
    found = order(folder, [base, *old])
    assert in_order(found) == [base, *old, *new, merge]
    assert found.left == frozenset()
