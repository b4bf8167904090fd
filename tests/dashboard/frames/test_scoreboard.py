"""How far from DeepGEMM, from made ratios: like with like, and a line that moves only where something changed."""

import datetime as dt
import math
import re
from typing import Any

import pandas as pd
import pytest

from tilewatch.dashboard.charts.scoreboard import describe, draw_scores
from tilewatch.dashboard.frames import scoreboard

NOON = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)
NAMES = {"h200": "NVIDIA H200"}


def series(problem: str, ratios: list[float], ages: list[int], **other: Any) -> dict[str, Any]:
    about = {"kernel": "gemm", "gpu_model": "h200", "origin": "measured", "baselines": ["deepgemm"] * len(ages)}
    return {**about, "is_planned": True, "problem": problem, "ratios": ratios, "ages": ages, **other}


def commits(count: int, days: float = 4.0) -> pd.DataFrame:
    """The newest first."""
    return pd.DataFrame(
        [
            {"committed_at": NOON - age * dt.timedelta(days=days), "sha": f"{age}" * 40, "subject": f"Change <{age}>"}
            for age in range(count)
        ]
    )


def score(*rows: dict[str, Any], count: int = 3, days: float = 4.0) -> scoreboard.GpuScore:
    (found,) = scoreboard.list_scores(pd.DataFrame(list(rows)), commits(count, days), NAMES)
    return found


def test_the_number_is_the_geometric_mean_of_the_newest_ratios() -> None:
    found = score(series("a", [0.5, 0.8], [1, 0]), series("b", [1.25], [1]))
    assert found.ratio == pytest.approx(math.sqrt(0.8 * 1.25))
    assert (found.series, found.ahead, found.gpu_name) == (2, 1, "H200")


def test_an_operator_that_takes_as_long_as_deepgemm_is_ahead() -> None:
    rows = [series(f"{ratio}", [2.0, ratio], [1, 0]) for ratio in (0.999, 1.0, 1.001)]
    assert (score(*rows).ahead, score(*rows).series) == (2, 3)


def test_only_operators_that_do_what_deepgemm_does_count() -> None:
    rows = [
        series("a", [0.9], [0]),
        series("b", [3.0], [0], kernel=scoreboard.OTHER_ARITHMETIC[0]),
        series("c", [3.0], [0], baselines=["torch_softmax"]),
        series("d", [3.0], [0], baselines=["deepgemm 0.2.5"]),
    ]
    assert score(*rows).ratio == pytest.approx(0.9)
    assert scoreboard.list_scores(pd.DataFrame(rows[1:]), commits(1), NAMES) == []


def test_a_new_operator_moves_no_earlier_place_of_the_line() -> None:
    """Its ratio of 0.5 would else look like a fall of what the others do."""
    old = [series("a", [0.8, 0.9], [2, 0]), series("b", [0.8, 0.9], [2, 0])]
    alone = score(*old)
    with_new = score(*old, series("c", [0.5], [0]))
    assert [place.ratio / found.ratio for found in (alone, with_new) for place in found.line] == pytest.approx(
        [0.8 / 0.9, 1.0] * 2
    )


def test_an_operator_that_was_not_measured_keeps_its_last_ratio() -> None:
    found = score(series("a", [0.8, 0.8, 0.8], [2, 1, 0]), series("b", [0.8, 1.0], [2, 0]))
    assert [place.ratio for place in found.line] == pytest.approx([0.8, 0.8, math.sqrt(0.8)])
    commit = commits(3).iloc[1]
    middle = found.line[1]
    assert (middle.at, middle.sha, middle.subject) == (commit["committed_at"], commit["sha"], commit["subject"])


def test_the_line_begins_where_half_of_the_series_were_measured() -> None:
    early, *late = series("a", [0.8, 0.9], [2, 0]), series("b", [0.9], [0]), series("c", [0.9], [0])
    assert [len(score(early, *late[:others]).line) for others in (0, 1, 2)] == [2, 2, 1]


def test_the_week_before_is_a_week_before_or_the_oldest() -> None:
    four_days_apart = score(series("a", [0.7, 0.8, 0.9], [2, 1, 0]))
    assert scoreboard.write_direction(four_days_apart) == "20.0 points better since 2026-11-12"
    young = score(series("a", [0.95, 0.9], [1, 0]))
    assert scoreboard.write_direction(young) == "5.0 points worse since 2026-11-16"
    assert scoreboard.write_direction(score(series("a", [0.9], [0]))) == "nothing earlier to compare with"


@pytest.mark.parametrize(("oldest", "places"), [(2, 2), (3, 1), (4, 1)])
def test_the_line_has_no_place_before_the_commits_that_are_known(oldest: int, places: int) -> None:
    assert len(score(series("a", [0.8, 0.9], [oldest, 0]), count=3).line) == places


@pytest.mark.parametrize(
    ("days", "since"), [(3.4, "2026-11-10"), (3.5, "2026-11-13"), (7, "2026-11-13"), (7.1, "2026-11-13")]
)
def test_a_commit_of_exactly_a_week_ago_is_the_week_before(days: float, since: str) -> None:
    found = score(series("a", [0.6, 0.7, 0.8, 0.9], [3, 2, 1, 0]), count=4, days=days)
    assert scoreboard.write_direction(found).endswith(f"since {since}")


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (0.98, "2.0 points slower than DeepGEMM"),
        (1.034, "3.4 points faster than DeepGEMM"),
        (1.0, "level with DeepGEMM"),
        (1.0004, "level with DeepGEMM"),
        (0.9996, "level with DeepGEMM"),
        (1.005, "0.5 points faster than DeepGEMM"),
        (0.995, "0.5 points slower than DeepGEMM"),
    ],
)
def test_the_distance_is_in_points(ratio: float, words: str) -> None:
    assert scoreboard.write_distance(score(series("a", [ratio], [0]))) == words


@pytest.mark.parametrize(
    ("worse", "better", "is_simulated"),
    [("recorded", "measured", False), ("simulated", "measured", False), ("simulated", "recorded", False),
     ("simulated", "simulated", True)],
)  # fmt: skip
def test_what_a_gpu_measured_stands_before_what_was_recorded_or_simulated(
    worse: str, better: str, is_simulated: bool
) -> None:
    rows = [series("a", [ratio], [0], origin=origin) for ratio, origin in ((0.5, worse), (0.9, better))]
    for order in (rows, rows[::-1]):
        found = score(*order)
        assert found.ratio == pytest.approx(order[0]["ratios"][0] if is_simulated else 0.9)
        assert found.is_simulated == is_simulated
        assert score(*order, series("b", [0.9], [0], origin="simulated")).is_simulated


@pytest.mark.parametrize(
    ("ratios", "change", "words"),
    [
        ([0.9, 0.9123], 1.2, "1.2 points better since 2026-11-16"),
        ([0.9, 0.905], 0.5, "0.5 points better since 2026-11-16"),
        ([0.9, 0.8877], -1.2, "1.2 points worse since 2026-11-16"),
        ([0.9, 0.9004], 0.0, "unchanged since 2026-11-16"),
        ([0.9], 0.0, "nothing earlier to compare with"),
    ],
)
def test_the_change_of_a_score_is_in_tenths_of_a_point(ratios: list[float], change: float, words: str) -> None:
    found = score(series("a", ratios, list(range(len(ratios)))[::-1]))
    assert (scoreboard.find_change(found), scoreboard.write_direction(found)) == (change, words)


def test_the_gpu_model_with_the_most_operators_comes_first_and_an_unknown_one_by_its_slug() -> None:
    models = {"a100": 1, "b200": 1, "h200": 2}
    rows = [series(str(i), [0.9], [0], gpu_model=model) for model, count in models.items() for i in range(count)]
    found = scoreboard.list_scores(pd.DataFrame(rows), commits(1), {**NAMES, "a100": "NVIDIA Z"})
    assert [each.gpu_name for each in found] == ["H200", "Z", "b200"]
    assert [each.points for each in found] == pytest.approx([-10] * 3)


def test_an_operator_that_the_nightly_left_out_does_not_count() -> None:
    """It was renamed, and counted under both names."""
    gone, renamed = series("a", [0.5], [1], is_planned=False), series("a", [0.9], [0], kernel="gemm_new")
    assert score(gone, renamed).ratio == pytest.approx(0.9)
    assert scoreboard.list_scores(pd.DataFrame([gone]), commits(2), NAMES) == []


def test_a_card_has_its_number_its_sentence_and_its_line_with_words_escaped() -> None:
    found = score(series("a", [0.8, 0.9], [1, 0]))
    html = draw_scores([found])
    assert "<b>0.90</b>" in html
    direction = '<i aria-hidden="true">▲</i> 10.0 points better since <time>2026-11-16</time>'
    assert f'10.0 points slower than DeepGEMM; <strong class="better">{direction}</strong>' in html
    assert "0 of 1 operator at or over 1.00" in html
    assert "Change &lt;1&gt;" in html
    assert describe([found]).startswith("H200: 0.90, 10.0 points slower than DeepGEMM")
    assert "<svg" not in draw_scores([score(series("a", [0.9], [0]))]), "one place is no line"


@pytest.mark.parametrize(
    ("ratios", "marked"), [([0.5, 0.6], "better"), ([0.6, 0.5], "worse"), ([0.6, 0.6], None), ([0.6], None)]
)
def test_the_direction_has_the_colour_of_its_side(ratios: list[float], marked: str | None) -> None:
    card = draw_scores([score(series("a", ratios, list(range(len(ratios)))[::-1]))])
    assert re.findall(r'<strong class="(\w+)"><i aria-hidden="true">[▲▼]', card) == ([marked] if marked else [])


def test_a_line_never_turns_back_where_a_commit_is_older_than_its_parent() -> None:
    history = commits(4)
    history.loc[1, "committed_at"] = history.loc[3, "committed_at"] - dt.timedelta(days=30)
    rows = pd.DataFrame([series("a", [0.7, 0.8, 0.9, 0.95], [3, 2, 1, 0])])
    html = draw_scores(scoreboard.list_scores(rows, history, NAMES))
    across = [float(x) for x in re.findall(r'<circle cx="([0-9.]+)"', html)]
    assert len(across) == 4
    assert across == sorted(across)
    assert across[1] == across[2], "it stands where its parent does"


@pytest.mark.parametrize("ratios", [[0.8, 0.9], [0.98, 1.05], [1.1, 1.17], [1.0, 1.0], [0.999, 1.2]])
def test_both_labels_of_the_line_can_be_read(ratios: list[float]) -> None:
    html = draw_scores([score(series("a", ratios, [1, 0]))])
    low, high = sorted(float(y) for y in re.findall(r'<text x="28" y="([0-9.]+)"', html))
    assert high - low >= 16, "letters are 12 px high"


@pytest.mark.parametrize(
    ("kernel", "baseline", "group"),
    [
        ("gemm", "deepgemm", scoreboard.LIKE_DEEPGEMM),
        (scoreboard.OTHER_ARITHMETIC[0], "deepgemm", scoreboard.LIBRARIES),
        ("softmax", "torch_softmax", scoreboard.LIBRARIES),
        ("moe", "deepgemm_moe_gate_up", scoreboard.LIBRARIES),
        ("softmax", "copy", scoreboard.MEMORY),
        (scoreboard.SAMPLES[0], "cublas", scoreboard.TUTORIAL),
    ],
)
def test_each_series_stands_among_those_with_its_kind_of_baseline(kernel: str, baseline: str, group: str) -> None:
    assert scoreboard.find_group(kernel, baseline) == group
