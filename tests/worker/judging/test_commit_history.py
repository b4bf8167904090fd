"""The commits between measured ones, by their positions, as the clone has them."""

from pathlib import Path

from tests.worker.fixtures import odd_histories
from tests.worker.fixtures.odd_histories import add
from tests.worker.fixtures.tiny_repository import git
from tilewatch.worker.judging.commit_history import _find_first_parents


def test_commits_between_two_measured_ones_have_the_positions_between(tmp_path: Path) -> None:
    one, two, three, four, five = odd_histories.make(tmp_path / "r", "2", "3", "4", "5")
    assert _find_first_parents(tmp_path / "r", five, {1: one, 5: five}) == {2: two, 3: three, 4: four}
    assert _find_first_parents(tmp_path / "r", five, {1: one, 2: two, 5: five}) == {3: three, 4: four}
    assert _find_first_parents(tmp_path / "r", five, {1: one, 3: three, 5: five}) == {2: two, 4: four}
    assert _find_first_parents(tmp_path / "r", five, {4: four, 5: five}) == {1: one, 2: two, 3: three}
    assert _find_first_parents(tmp_path / "r", five, {5: five, 6: "b" * 40}) == {1: one, 2: two, 3: three, 4: four}


def test_commits_that_lead_to_one_that_left_the_branch_are_those_of_its_own_line(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    (one,) = odd_histories.make(folder)
    git(folder, "switch", "--quiet", "--create", "left")
    left = [add(folder, f"left {number}") for number in (2, 3, 4)]
    git(folder, "switch", "--quiet", "main")
    new = [add(folder, f"new {number}") for number in (2, 3, 4, 5, 6, 7)]
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
