"""A log axis has two ticks or more, however near to each other its values are."""

import pytest

from tilewatch.dashboard.charts import axes


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (414.0, 902.0, [500, 600, 700, 800, 900]),
        (160.0, 190.0, [160, 170, 180, 190]),
        (0.9, 1.06, [0.9, 0.95, 1.0, 1.05]),
        (134.0, 134.0, [134]),
    ],
)
def test_values_with_one_number_of_1_2_5_between_them_or_none_have_round_ticks(
    low: float, high: float, ticks: list[float]
) -> None:
    assert axes.log_numbers([high, low])["tickvals"] == pytest.approx(ticks)


def test_values_that_are_further_apart_have_1_2_and_5_of_each_decade() -> None:
    assert axes.log_numbers([150.0, 2_000.0]) == axes.LOG_NUMBERS
    assert axes.log_numbers([]) == axes.LOG_NUMBERS
