"""What a sweep says first: what won, beside the baseline, the next config and the config that ships."""

from typing import Any

import pandas as pd
import pytest

from tilewatch.dashboard.panels.series.sweep import common_text
from tilewatch.dashboard.panels.series.sweep_winner import headline, is_whole, list_reasons


def trials(*times_us: float | None) -> pd.DataFrame:
    rows = [
        {"config_id": i, "median_us": us, "outcome": "timed" if us else "compile error", "param.tile_m": 64 * (i + 1)}
        for i, us in enumerate(times_us)
    ]
    return pd.DataFrame(rows)


def won(**other: Any) -> dict[str, Any]:
    measured = {"config_id": 0, "median_us": 100.0, "ratio": 0.8, "ratio_low": 0.79, "ratio_high": 0.81}
    return {**measured, "baseline": "deepgemm", "detail": {}, **other}


@pytest.mark.parametrize(
    ("winner", "words"),
    [
        (won(), "The fastest config takes 100.0 us: slower than DeepGEMM (0.80x DeepGEMM)"),
        (
            won(ratio=1.25, ratio_low=1.24, ratio_high=1.26),
            "The fastest config takes 100.0 us: faster than DeepGEMM (1.25x DeepGEMM)",
        ),
        (
            won(ratio=1.0, ratio_low=0.99, ratio_high=1.01),
            "The fastest config takes 100.0 us: as fast as DeepGEMM (1.00x DeepGEMM)",
        ),
        (won(ratio=None, baseline=None), "The fastest config takes 100.0 us; no baseline was measured"),
    ],
)
def test_the_headline_holds_the_winner_against_its_baseline(winner: dict[str, Any], words: str) -> None:
    assert headline(winner) == words


@pytest.mark.parametrize(
    ("ships", "tie", "words"),
    [
        (None, {0}, ["The next one is 2.0 % slower."]),
        (
            {"tile_m": 192},
            {0, 1},
            [
                "The next one is 2.0 % slower; 1 other config cannot be told apart from the winner.",
                "The config that ships is 30.0 % slower than the winner.",
            ],
        ),
        ({"tile_m": 128}, {0, 1}, [..., "The config that ships is as fast as the winner."]),
        ({"tile_m": 256}, {0}, [..., "The config that ships has no time here: compile error."]),
        ({"tile_m": 7}, {0}, [..., "The config that ships has no time here: not in this search space."]),
    ],
)
def test_the_reasons_name_the_next_config_the_tie_and_the_config_that_ships(
    ships: dict[str, int] | None, tie: set[int], words: list[Any]
) -> None:
    counted, *others = list_reasons(trials(100.0, 102.0, 130.0, None), won(), ships, tie)
    assert counted == "3 configs of 4 gave a right answer and a time."
    assert [each for each, word in zip(others, words, strict=True) if word is not ...] == [
        word for word in words if word is not ...
    ]


def test_a_single_config_has_no_next_one() -> None:
    assert list_reasons(trials(100.0), won(), None, {0}) == ["1 config of 1 gave a right answer and a time."]


def test_a_slim_recording_says_how_many_configs_its_sweep_had() -> None:
    kept = won() | {"detail": {"whole_sweep": {"timed": 56, "tried": 58}}}
    assert list_reasons(trials(100.0), kept, None, {0}) == [
        "56 configs of 58 gave a right answer and a time. The recording has the winner alone."
    ]


def test_a_winner_that_was_timed_again_names_the_last_sweep() -> None:
    winner = won() | {"detail": {"last_sweep": "2026-11-25"}}
    assert list_reasons(trials(100.0, None), winner, None, {0})[0] == (
        "Nothing has changed since the last sweep on 2026-11-25: the winner and its ties were timed again."
    )


PART = {"space": 5760, "tried": 1911, "untried": 3849, "full_look": None, "chance_1": 0.312, "chance_3": 0.071}


@pytest.mark.parametrize(
    ("certificate", "sentence"),
    [
        (
            PART,
            "Of 5,760 configs 1,911 were tried with this code and driver: another one is better by 1 % with a chance "
            "of at most 32 %, by 3 % of at most 8 %, which is weak.",
        ),
        (
            PART | {"chance_1": 0.05, "chance_3": 0.004},
            "Of 5,760 configs 1,911 were tried with this code and driver: another one is better by 1 % with a chance "
            "of at most 5 %, by 3 % of at most 1 %.",
        ),
        (
            PART | {"tried": 5760, "untried": 0, "full_look": "2026-11-28"},
            "All 5,760 configs of the space were tried with this code and driver, the last of them on 2026-11-28.",
        ),
    ],
)
def test_the_last_sentence_states_what_was_not_tried(certificate: dict[str, Any], sentence: str) -> None:
    winner = won() | {"detail": {"certificate": certificate}}
    assert list_reasons(trials(100.0, 102.0), winner, None, {0})[-1] == sentence


def test_what_the_fastest_configs_have_in_common_is_named() -> None:
    fastest = pd.DataFrame({"param.tile_m": [64, 64], "param.tile_n": [64, 128]})
    assert common_text(fastest, ["tile_m", "tile_n"]) == "All of them have tile_m=64."
    assert common_text(fastest, ["tile_n"]) == "They have no parameter in common."
    assert common_text(fastest.head(1), ["tile_m"]) == ""


AXES = [["tile", list(range(36))], ["stages", [2, 3, 4]], ["swizzle", list(range(10))]]


@pytest.mark.parametrize(
    ("reason", "configs", "axes", "whole"),
    [
        ("recorded", 95, AXES, True),
        ("recorded", 6, AXES, False),
        ("recorded", 3, AXES[1:2], True),
        ("manual", 1, AXES, True),
    ],
)
def test_a_sweep_is_whole_unless_a_recording_tried_a_few_of_its_configs(
    reason: str, configs: int, axes: list[Any], whole: bool
) -> None:
    """The first is `gemm_fp8_scaled` with `split`: its `only` rule leaves 95 of 1080 configs."""
    assert is_whole(reason, configs, axes) is whole
