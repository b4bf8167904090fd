"""Figures of one sweep from made trials: what is on them, without a browser."""

import pandas as pd

from tests.dashboard.fixtures.trials import frame, trial
from tilewatch.dashboard.charts import colours
from tilewatch.dashboard.charts import sweep as charts


def fact(key: str) -> charts.Fact:
    return next(fact for fact in charts.FACTS if fact.key == key)


def test_a_cell_shows_the_fastest_of_the_configs_that_share_it() -> None:
    trials = frame(trial(64, 128, 32, median_us=150.0), trial(64, 128, 64, median_us=140.0))
    heat = charts.cells(trials, "tile_m", "tile_n", fact("median_us")).data[0]
    assert (heat.z[0][0], heat.text[0][0]) == (140.0, "140.0")
    assert "2 configs" in heat.customdata[0][0]


def test_a_cell_without_a_value_says_why() -> None:
    trials = frame(trial(64, 128, 32, median_us=150.0), trial(128, 128, 32, "timeout"))
    heat = charts.cells(trials, "tile_m", "tile_n", fact("median_us")).data[0]
    assert heat.z[0][1] is None
    assert list(heat.text[0]) == ["150.0", "timeout"]


def test_shares_of_tma_loads_are_percentages_on_a_whole_scale() -> None:
    heat = charts.cells(frame(trial(64, 128, 32)), "tile_m", "tile_n", fact("tma_share")).data[0]
    assert (heat.z[0][0], heat.zmin, heat.zmax) == (50.0, 0, 100)


def test_words_of_a_cell_lie_in_it_and_are_readable_there() -> None:
    times_us = {("64", "128"): 140.0, ("64", "256"): 280.0, ("128", "128"): 210.0, ("128", "256"): 160.0}
    trials = frame(*(trial(int(m), int(n), 32, median_us=us) for (m, n), us in times_us.items()))
    _, words = charts.cells(trials, "tile_m", "tile_n", fact("median_us")).data
    places = list(zip(words.x, words.y, strict=True))
    assert dict(zip(places, words.text, strict=True)) == {place: f"{us:.1f}" for place, us in times_us.items()}
    for place, ink in zip(places, words.textfont.color, strict=True):
        ground = colours.colour_at(colours.GOOD_TO_BAD, (times_us[place] - 140) / 140)
        assert colours.contrast(ink, ground) >= 4.5


def test_the_bar_of_outcomes_counts_every_trial_once() -> None:
    trials = frame(trial(64, 64, 32), trial(64, 128, 32), trial(64, 256, 32, "waiting"))
    bar = charts.outcomes(trials)
    assert [(part.name, list(part.x)) for part in bar.data] == [("timed 2", [2]), ("waiting 1", [1])]
    every = frame(*(trial(64, 64, 32, outcome) for outcome in ("timed", "waiting", "wrong", "hung")))
    assert charts.outcomes(every).layout.height - bar.layout.height >= 20, "a second row of names on a phone"


def test_parameters_follow_the_order_of_the_space() -> None:
    trials = charts.prepare(pd.DataFrame([trial(64, 128, 32)]), [["tile_k", []], ["tile_m", []], ["tile_n", []]])
    assert charts.parameters(trials) == ["tile_k", "tile_m", "tile_n"]
