"""Where the lines of parallel coordinates go, from made trials."""

import pytest

from tests.dashboard.fixtures.trials import frame, trial
from tilewatch.dashboard.charts import colours, parallel


def test_the_values_of_a_parameter_are_spaced_evenly_and_the_best_config_is_drawn_last() -> None:
    trials = frame(
        trial(64, 128, 32, median_us=150.0, registers=90), trial(256, 128, 32, median_us=140.0), trial(128, 128, 32)
    )
    drawn = parallel.drawing(trials)
    assert [axis["label"] for axis in drawn["axes"]] == ["tile_m", "Time, us", "Registers"]
    assert drawn["axes"][0]["ticks"] == [(0.0, "64"), (1.0, "256")]
    assert [line["at"][:2] for line in drawn["lines"]] == [[0.0, 1.0], [1.0, 0.0]]
    assert drawn["lines"][-1]["colour"] == colours.GOOD_TO_BAD[0][1]


def test_without_times_the_lines_are_of_what_compiled() -> None:
    trials = frame(trial(64, 128, 32), trial(128, 128, 32, registers=200), trial(256, 128, 32, "timeout"))
    drawn = parallel.drawing(trials)
    assert [axis["label"] for axis in drawn["axes"]] == ["tile_m", "Registers"]
    assert [line["at"] for line in drawn["lines"]] == [[1.0, 1.0], [0.0, 0.0]]


def test_a_line_tells_its_config_and_what_is_known_of_it() -> None:
    hint = parallel.drawing(frame(trial(64, 128, 32, median_us=150.0, registers=90)))["lines"][0]["hint"]
    config, facts = hint.splitlines()
    assert config == "tile_m=64 tile_n=128 tile_k=32"
    assert facts.startswith("150.0 us, Registers 90")


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [(0, 100, "0 20 40 60 80 100"), (96, 201, "100 150 200"), (0, 0.05, "0 0.01 0.02 0.03 0.04 0.05")],
)
def test_the_ticks_of_a_fact_are_round(low: float, high: float, words: str) -> None:
    trials = frame(trial(64, 128, 32, registers=low), trial(128, 128, 32, registers=high))
    ticks = parallel.drawing(trials)["axes"][1]["ticks"]
    assert " ".join(word for _, word in ticks) == words
    assert all(0 <= place <= 1 for place, _ in ticks)
