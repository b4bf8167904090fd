"""The landscape chart shows where a search space moved, from made trials."""

from typing import Any

import pandas as pd

from tilewatch.dashboard.charts import search_space, sweep


def trials(*rows: tuple[int, str, float | None], tile: int = 64) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "config_id": config,
                "outcome": outcome,
                "median_us": us,
                "failure": None if us else "did not end",
                "param.tile_m": tile * config,
            }
            for config, outcome, us in rows
        ]
    )


BEFORE = trials((1, "timed", 100.0), (2, "timed", 110.0), (3, "hung", None), (4, "timed", 120.0))
AFTER = trials((1, "timed", 130.0), (2, "timed", 110.0), (3, "timed", 115.0), (4, "timeout", None))


def test_a_regret_is_of_the_fastest_of_this_sweep() -> None:
    found = search_space.regret("last month's winner", {"tile_m": 64}, AFTER, ())
    assert (found.median_us, round(found.slower or 0, 3), found.why) == (130.0, 0.182, "")


def test_a_config_in_the_tie_is_no_regret_to_speak_of() -> None:
    assert search_space.regret("x", {"tile_m": 192}, AFTER, {3}).why == "not distinguishable from the winner"


def test_a_config_that_fails_now_says_how_and_one_of_another_space_says_so() -> None:
    assert search_space.regret("x", {"tile_m": 256}, AFTER, ()).why == "timeout"
    assert search_space.regret("x", {"tile_m": 7}, AFTER, ()).why == "not in this search space"


def test_newly_failing_configs_are_told_apart_from_those_that_work_again() -> None:
    kinds = search_space.changed_outcomes(search_space.pair_trials(BEFORE, AFTER))
    assert {kind: rows["config"].tolist() for kind, rows in kinds.items()} == {
        "Newly failing": ["tile_m=256"],
        "Working again": ["tile_m=192"],
    }
    assert kinds["Newly failing"].iloc[0]["failure"] == "did not end"


def test_a_config_that_still_waits_has_not_ended_differently() -> None:
    waiting = trials((1, "waiting", None))
    assert search_space.changed_outcomes(search_space.pair_trials(BEFORE, waiting)) == {}


def test_a_config_that_was_not_launched_has_not_ended_differently() -> None:
    """A later run leaves out what was wrong, and its config counted as working again."""
    for outcome in ("wrong", "launch error", "crashed", "hung"):
        compiled, launched = trials((1, "compiled", None)), trials((1, outcome, None))
        for pair in ((compiled, launched), (launched, compiled)):
            assert search_space.changed_outcomes(search_space.pair_trials(*pair)) == {}
    mended = search_space.pair_trials(trials((1, "compile error", None)), trials((1, "compiled", None)))
    assert list(search_space.changed_outcomes(mended)) == ["Working again"]


def test_parameters_stay_whole_numbers_where_one_space_has_more_configs() -> None:
    more = trials((1, "timed", 100.0), (2, "timed", 110.0))
    kinds = search_space.changed_outcomes(search_space.pair_trials(more, trials((1, "wrong", None))))
    assert kinds["Newly failing"]["config"].tolist() == ["tile_m=64"]


def test_the_summary_counts_what_visibly_moved() -> None:
    sentence = search_space.describe_shift(search_space.pair_trials(BEFORE, AFTER))
    assert "of 2 configs timed at both, 1 are more than 2 % slower and 0 as much faster" in sentence
    assert (
        search_space.describe_shift(search_space.pair_trials(BEFORE, trials((9, "timed", 1.0))))
        == "No config was timed at both commits."
    )


def test_the_shift_shows_each_config_and_marks_the_winners() -> None:
    figure = search_space.shift_figure(
        search_space.pair_trials(BEFORE, AFTER), [("winner at a", 1), ("winner at b", 2)]
    )
    points, old, new = figure.data
    assert sorted(round(value) for value in points.y) == [0, 30]
    assert [round(value) for value in old.y] == [30]
    assert (old.marker.symbol, new.marker.symbol) == ("star-open", "star")


def test_configs_that_only_one_space_has_are_a_sentence() -> None:
    both = search_space.pair_trials(BEFORE, trials((1, "timed", 1.0), (9, "timed", 1.0)))
    assert search_space.describe_space_changes(both) == "The search space changed: 1 config added, 3 configs removed."
    assert search_space.describe_space_changes(search_space.pair_trials(BEFORE, AFTER)) == ""


def test_the_place_of_a_config_is_among_those_that_were_timed() -> None:
    assert search_space.rank(AFTER, 1) == (3, 3)
    assert search_space.rank(AFTER, 4) is None


def test_the_names_of_parameters_come_without_their_prefix() -> None:
    row: dict[str, Any] = BEFORE.iloc[0].to_dict()
    assert sweep.config_of_trial(row) == "tile_m=64"
