"""Made frames give what changed between two snapshots, and the outcome of a night."""

import datetime as dt
import math
from typing import Any

import pandas as pd
import pytest

from tests.dashboard.fixtures.snapshots import NOW, pair, series_row
from tilewatch.dashboard.frames import changes
from tilewatch.nightlies import NightlyTimes

NIGHT = NOW.date()
TIMES = NightlyTimes(nightly_at=dt.time(3, 0), nightly_limit_h=8)


def test_a_lower_ratio_is_more_time_with_an_interval_around_it() -> None:
    row = pair([series_row(1, 1.0)], [series_row(2, 0.9)]).iloc[0]
    assert row["change"] == pytest.approx(1 / 0.9 - 1)
    assert 0 < row["change_low"] < row["change"] < row["change_high"]
    assert row["apart"]


def test_overlapping_intervals_are_not_apart() -> None:
    assert not pair([series_row(1, 1.0)], [series_row(2, 1.01)]).iloc[0]["apart"]


@pytest.mark.parametrize(
    ("before", "after", "noise"),
    [
        ({"noise": 0.003}, {"noise": 0.001}, 0.003),
        ({"noise": 0.001}, {"noise": 0.003}, 0.003),
        ({"noise": None}, {"noise": 0.002}, 0.002),
        ({"noise": None}, {"noise": None}, 0.0045),
        ({"noise": 0.003}, {"noise": 0.001, "gpu_uuid": "GPU-2"}, 0.0045),
        ({"noise": 0.003}, {"noise": 0.012, "gpu_uuid": "GPU-2"}, 0.012),
    ],
)
@pytest.mark.parametrize("of_ratio", [True, False])
def test_the_interval_adds_both_medians_errors_to_the_noise_of_two_runs(
    before: dict[str, Any], after: dict[str, Any], noise: float, of_ratio: bool
) -> None:
    """A run's noise is held to 99 of 100 differences of two runs, 2.58 standard deviations."""
    if of_ratio:
        old = series_row(1, 1.0, ratio_low=0.98, ratio_high=1.01, **before)
        new = series_row(2, 0.8, ratio_low=0.79, ratio_high=0.82, **after)
        change, low, high = 1 / 0.8 - 1, 0.98 / 0.82 - 1, 1.01 / 0.79 - 1
    else:
        old = series_row(1, None, median_us=100.0, low_us=99.0, high_us=102.0, **before)
        new = series_row(2, None, median_us=125.0, low_us=121.0, high_us=128.0, **after)
        change, low, high = 125 / 100 - 1, 121 / 102 - 1, 128 / 99 - 1
    row = pair([old], [new]).iloc[0]
    between_runs = 2.58 * math.sqrt(2) * noise
    assert row["of_ratio"] == of_ratio
    assert row["change"] == pytest.approx(change)
    assert row["change_low"] == pytest.approx(change - math.hypot(change - low, between_runs))
    assert row["change_high"] == pytest.approx(change + math.hypot(high - change, between_runs))


@pytest.mark.parametrize(("ratio", "is_apart"), [(0.9, True), (0.99, False), (1.01, False), (1.1, True)])
def test_a_change_is_apart_where_its_interval_is_on_one_side_of_zero(ratio: float, is_apart: bool) -> None:
    exact = {"ratio_low": ratio, "ratio_high": ratio}
    row = pair([series_row(1, 1.0, ratio_low=1.0, ratio_high=1.0)], [series_row(2, ratio, **exact)]).iloc[0]
    assert row["apart"] == is_apart


def test_equal_runs_without_any_noise_are_not_apart() -> None:
    """The interval begins and ends at 0."""
    exact = {"ratio_low": 1.0, "ratio_high": 1.0, "noise": 0.0}
    row = pair([series_row(1, 1.0, **exact)], [series_row(2, 1.0, **exact)]).iloc[0]
    assert (row["change_low"], row["change"], row["change_high"]) == (0.0, 0.0, 0.0)
    assert not row["apart"]


EXACT = {"ratio_low": 0.98, "ratio_high": 0.98}


def test_runs_of_a_series_differ_without_any_change_and_the_interval_has_room_for_that() -> None:
    """2 % is 3.5 standard deviations of two runs of a usual series, and 1.2 of one that strays by 1.2 %."""
    before = series_row(1, 1.0, ratio_low=1.0, ratio_high=1.0, noise=0.012)
    quiet = series_row(1, 1.0, ratio_low=1.0, ratio_high=1.0)
    assert pair([quiet], [series_row(2, 0.98, **EXACT)]).iloc[0]["apart"]
    assert not pair([before], [series_row(2, 0.98, **EXACT)]).iloc[0]["apart"]
    assert not pair([quiet], [series_row(2, 0.98, noise=0.012, **EXACT)]).iloc[0]["apart"]


def test_two_gpus_of_a_model_differ_by_more_than_the_nights_of_one() -> None:
    before = series_row(1, 1.0, ratio_low=1.0, ratio_high=1.0, noise=0.001)
    after = series_row(2, 0.99, ratio_low=0.99, ratio_high=0.99, noise=0.001)
    assert pair([before], [after]).iloc[0]["apart"]
    assert not pair([before], [{**after, "gpu_uuid": "GPU-2"}]).iloc[0]["apart"]


def test_without_deepgemm_the_time_tells_the_change_and_slower_is_plus() -> None:
    row = pair([series_row(1, None, median_us=100.0)], [series_row(2, None, median_us=125.0)]).iloc[0]
    assert row["change"] == pytest.approx(0.25)


def test_ratios_to_two_baselines_are_not_compared() -> None:
    """0.9 of cuDNN after 1.2 of DeepGEMM is no loss of speed: the time says what happened."""
    after = series_row(2, 0.9, baseline="attention_cudnn", median_us=100 / 1.2)
    (row,) = pair([series_row(1, 1.2)], [after]).itertuples()
    assert row.change == pytest.approx(0.0)


def test_a_faster_version_of_the_baseline_is_no_loss_of_speed() -> None:
    """DeepGEMM 0.2.5 takes a fifth less than 0.1.0, and our kernel what it took before."""
    before = series_row(1, 1.0, median_us=100.0)
    faster = series_row(2, 0.8, median_us=100.0, baseline_version="0.2.5")
    assert pair([before], [faster]).iloc[0]["change"] == pytest.approx(0.0)
    assert pair([before], [{**faster, "baseline_version": None}]).iloc[0]["change"] == pytest.approx(0.25)


def test_the_same_run_and_a_new_series_have_no_change() -> None:
    same = pair([series_row(1, 1.0)], [series_row(1, 1.0)]).iloc[0]
    new = pair([series_row(1, 1.0)], [series_row(2, 1.0, problem="64x64x64")]).iloc[0]
    assert pd.isna(same["change"])
    assert pd.isna(new["change"])
    assert not same["apart"]
    assert not new["apart"]


def test_a_recording_is_not_compared_with_what_was_measured_here() -> None:
    recorded = series_row(2, 0.5, origin="recorded")
    assert pd.isna(pair([series_row(1, 1.0)], [recorded]).iloc[0]["change"])
    assert changes.one_row_per_series(pd.DataFrame([recorded, series_row(1, 1.0)]))["run_id"].tolist() == [1]


def test_a_simulated_run_stands_for_a_series_only_where_no_gpu_measured_it() -> None:
    recorded = series_row(2, 0.5, origin="recorded")
    simulated = series_row(3, 0.5, origin="simulated", measured_at=NOW + dt.timedelta(days=1))
    assert changes.one_row_per_series(pd.DataFrame([simulated, recorded]))["run_id"].tolist() == [2]
    assert changes.one_row_per_series(pd.DataFrame([simulated]))["run_id"].tolist() == [3]


def test_of_two_runs_of_a_series_the_later_one_remains_and_series_are_in_order() -> None:
    late, early = (series_row(run_id, 1.0, measured_at=NOW + dt.timedelta(days=run_id)) for run_id in (3, 2))
    first = series_row(1, 1.0, kernel="a")
    rows = changes.one_row_per_series(pd.DataFrame([early, late, first]))
    assert rows["run_id"].tolist() == [1, 3]
    assert list(rows) == list(late)


def test_only_the_series_that_are_asked_for_remain() -> None:
    rows = pd.DataFrame([series_row(1, 1.0), series_row(2, 1.0, gpu_model="b200")])
    assert changes.keep_series(rows, rows.iloc[[1]])["run_id"].tolist() == [2]
    for given, of in ((rows, rows.iloc[[]]), (rows.iloc[[]], rows), (rows, rows.assign(kernel="other"))):
        kept = changes.keep_series(given, of)
        assert (len(kept), list(kept)) == (0, list(rows))


@pytest.mark.parametrize(
    ("state", "hours", "shown"),
    [
        ("measured", 5, "done"),
        ("static facts only", 5, "done"),
        ("measuring", 7, "running"),
        ("measuring", 9, "late"),
        ("judging", 9, "late"),
        ("failed", 9, "failed"),
        ("cancelled", 1, "failed"),
    ],
)
def test_a_nightly_is_late_by_the_limit_of_its_alarm(state: str, hours: int, shown: str) -> None:
    night = pd.Series({"night": NIGHT, "state": state, "requested_at": NOW - dt.timedelta(hours=hours)})
    assert changes.night_state(night, NIGHT, NOW, TIMES) == shown


def test_the_newest_nightly_is_missing_when_its_alarm_says_so_and_that_of_a_dropped_gpu_model_is_not() -> None:
    night = pd.Series({"night": NIGHT, "state": "measured", "requested_at": NOW})
    tomorrow = dt.datetime.combine(NIGHT + dt.timedelta(days=1), dt.time(3, 30), dt.UTC)
    assert changes.night_state(night, NIGHT, tomorrow - dt.timedelta(minutes=1), TIMES) == "done"
    assert changes.night_state(night, NIGHT, tomorrow, TIMES) == "missing"
    day = dt.timedelta(days=1)
    assert changes.night_state(night, NIGHT + day, tomorrow, TIMES) == "done"
    assert changes.night_state(night, NIGHT + day, tomorrow + day, TIMES) == "done", "another model's is missing"
