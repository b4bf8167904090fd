"""A policy file changes only what it names, and the thresholds fit each other."""

from pathlib import Path

import pytest

from tilewatch.worker.detection import policy
from tilewatch.worker.detection.policy import BadPolicy, Policy


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
        ('{"budget": true}', "has budget=True; expected a number"),
        ('{"worth_launches": 1000001}', "has worth_launches=1000001; expected a number from -1,000,000 to 1,000,000"),
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


@pytest.mark.parametrize("number", [0, policy.MOST])
def test_a_number_may_reach_its_bounds(tmp_path: Path, number: int) -> None:
    file = tmp_path / "p.json"
    file.write_text(f'{{"min_history": {number}, "min_change": {-number}}}')
    found = policy.load(file)
    assert (found.min_history, found.min_change) == (number, -number)


def test_the_thresholds_fit_each_other() -> None:
    """A suspicion must be able to become a report within the launches, nights and rounds that it may have."""
    own = Policy()
    assert own.first_launches < own.least_launches < own.sizing_launches < own.most_launches
    assert own.min_history <= own.fresh_nights + own.after_nights < own.before_nights
    assert own.late_worth_launches < own.worth_launches * 0.1, "nobody acts on old news"
    assert own.first_launches <= own.late_worth_launches, "else no older change is ever asked about"
    assert own.size_error <= own.min_change / 2, "the size of the least change must differ from none"
    assert own.changes_a_point < 1 - own.located, "one build is named against odds that any build changed"
    assert own.reasoned_log_odds < own.believed_log_odds < own.nightly_log_odds
