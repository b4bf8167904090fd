"""Nights are compared where nothing changed; what is left is their error."""

import math

import pytest

from benchmarks import nights
from benchmarks.nights import RecordedNight, Timed, list_moved, measure_means, measure_spreads

CODE = ("code", "compiler", "driver", "baseline 1")
ONE, TWO = ("gemm", "1024", "cublas"), ("gemm", "2048", "cublas")


def night(card: str, ratios: dict[tuple[str, str, str], float], code: tuple[str, ...] = CODE) -> RecordedNight:
    timed = {series: Timed(ratio, code) for series, ratio in ratios.items()}
    return RecordedNight(card, "h100", card, card, timed)


def test_a_spread_is_that_of_one_night() -> None:
    spread = measure_spreads([night("a", {ONE: 1.0}), night("b", {ONE: math.exp(0.02)})], on_one_card=False)[ONE]
    assert spread.pairs == 1
    assert spread.sd == pytest.approx(0.02 / math.sqrt(2))
    assert spread.worst == pytest.approx(0.02)


@pytest.mark.parametrize("place", range(len(CODE)))
def test_nights_of_other_code_compiler_driver_or_baseline_are_not_compared(place: int) -> None:
    other = (*CODE[:place], "another", *CODE[place + 1 :])
    assert measure_spreads([night("a", {ONE: 1.0}), night("b", {ONE: 1.1}, other)], on_one_card=False) == {}


def test_one_card_and_two_cards_are_told_apart() -> None:
    found = [night("a", {ONE: 1.0}), night("a", {ONE: 1.01}), night("b", {ONE: 1.1})]
    assert measure_spreads(found, on_one_card=True)[ONE].pairs == 1
    assert measure_spreads(found, on_one_card=False)[ONE].pairs == 2


def test_series_that_move_together_leave_their_mean_as_uncertain_as_one_and_opposite_ones_do_not() -> None:
    both = measure_means([night("a", {ONE: 1.0, TWO: 1.0}), night("b", {ONE: math.exp(0.02), TWO: math.exp(0.02)})])
    assert both["gemm", "cublas"] == pytest.approx(0.02 / math.sqrt(2))
    opposite = measure_means(
        [night("a", {ONE: 1.0, TWO: 1.0}), night("b", {ONE: math.exp(0.02), TWO: math.exp(-0.02)})]
    )
    assert opposite["gemm", "cublas"] == pytest.approx(0.0)


@pytest.mark.parametrize(("change", "moved"), [(1.0299, []), (1.0301, ["gemm 1024 cublas: +3.0 %, same code"])])
def test_what_moved_by_more_than_three_spreads_is_named(change: float, moved: list[str]) -> None:
    spreads = {ONE: nights.Spread(3, math.log(1.03) / 3 / math.sqrt(2), 0.02)}
    assert list(list_moved([night("a", {ONE: 1.0}), night("b", {ONE: change})], spreads)) == moved


def test_the_recorded_nights_are_read() -> None:
    found = nights.read_nights()
    assert [each.finished_at for each in found] == sorted(each.finished_at for each in found)
    assert {each.gpu_model for each in found} == {"h100", "h200"}
    assert all(0 < timed.ratio < 100 for each in found for timed in each.timed.values())
