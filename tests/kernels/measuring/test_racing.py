"""Who stays in the race, on made-up timings."""

import itertools
import random

import pytest

from tilewatch.kernels.measuring.racing import RacePolicy, count_affordable, ranking, still_in

POLICY = RacePolicy()


def test_a_clearly_slower_config_leaves_and_the_best_stays() -> None:
    assert still_in({1: (100.0, 101.0, 100.5), 2: (150.0, 151.0, 150.2)}, POLICY) == [1]


def test_one_unlucky_sample_removes_nobody() -> None:
    """A single sample can be three times the median."""
    assert 2 in still_in({1: (100.0, 100.1, 100.2), 2: (99.0, 300.0, 297.0)}, POLICY)


def test_configs_within_noise_stay_until_samples_tell_them_apart() -> None:
    few = {1: (100.0, 101.0, 100.5), 2: (102.0, 103.0, 102.4)}
    assert still_in(few, POLICY) == [1, 2]
    many = {1: tuple(100 + 0.1 * i for i in range(40)), 2: tuple(105 + 0.1 * i for i in range(40))}
    assert still_in(many, POLICY) == [1]


def test_a_two_level_config_is_judged_by_what_it_could_reach() -> None:
    """Bimodal: half of its samples are the fastest of all."""
    two_level = (95.0, 120.0) * 10
    assert set(still_in({1: (100.0,) * 20, 2: two_level}, POLICY)) == {1, 2}


def test_no_samples_no_race() -> None:
    assert still_in({}, POLICY) == []


def test_all_equal_configs_all_stay() -> None:
    assert still_in(dict.fromkeys(range(5), (100.0,) * 20), POLICY) == [0, 1, 2, 3, 4]


def test_the_true_best_is_almost_never_lost() -> None:
    """500 configs, the best 1 % ahead, heavy-tailed noise of 1 %: it must reach the finalists."""
    lost = 0
    for seed in range(100):
        draw = random.Random(seed)
        level = {0: 100.0, **{each: 101.0 * (1 + abs(draw.gauss(0, 1))) for each in range(1, 500)}}
        times = {each: tuple(_sample(draw, level[each]) for _ in range(POLICY.first)) for each in level}
        for more in POLICY.rounds:
            for each in still_in(times, POLICY):
                times[each] += tuple(_sample(draw, level[each]) for _ in range(more))
        lost += 0 not in still_in(times, POLICY)[: POLICY.finalists]
    assert lost <= 1


def test_long_launches_get_fewer_samples_and_never_too_few() -> None:
    """12 finalists of 12.8 ms would take 9.2 s at 60 samples each, and rests of 40 ms add 2.4 s to that."""
    assert count_affordable(60, [100.0] * 12, POLICY) == 60
    assert count_affordable(60, [3_000.0] * 12, POLICY) == 26
    assert count_affordable(60, [5_000.0], POLICY) == 44
    assert count_affordable(60, [12_800.0] * 12, POLICY) == 20
    assert count_affordable(12, [12_800.0] * 50, POLICY) == 12


@pytest.mark.parametrize(
    ("by", "samples"), [(0.5, 60), (0.999, 60), (1.001, 59), (2.0, 30), (2.9, 20), (3.1, 20), (9.0, 20)]
)
def test_samples_shrink_only_once_a_round_takes_longer_than_it_may(by: float, samples: int) -> None:
    """Sixty launches of 30 ms take 1.8 s, and rests of 40 ms 2.4 s."""
    policy = RacePolicy(most_s=4.2 / by, least=20)
    assert count_affordable(60, [30_000.0], policy) == samples


def test_each_round_makes_the_samples_of_a_config_some_two_and_a_half_times_as_many() -> None:
    counts = list(itertools.accumulate(POLICY.rounds, initial=POLICY.first))
    assert [later / earlier for earlier, later in itertools.pairwise(counts)] == [pytest.approx(2.5, rel=0.08)] * 3


def test_finalists_that_cannot_be_told_apart_are_a_tie() -> None:
    draw = random.Random(1)
    fresh = {
        each: tuple(draw.gauss(level, 1) for _ in range(60)) for each, level in ((1, 100.0), (2, 100.1), (3, 110.0))
    }
    winner, tied = ranking(fresh, POLICY)
    assert winner in (1, 2)
    assert set(tied) == {1, 2}
    assert tied[0] == winner


def test_overlapping_intervals_are_a_tie_although_medians_differ() -> None:
    first = [100.0 + each for each in range(40)]
    second = [103.0 + each for each in range(40)]
    assert ranking({1: first, 2: second}, POLICY) == (1, (1, 2))


def test_intervals_that_touch_overlap() -> None:
    first = [100.0, 101.0, 102.0]
    assert ranking({1: first, 2: [102.0, 103.0, 104.0]}, POLICY) == (1, (1, 2))
    assert ranking({1: first, 2: [102.1, 103.0, 104.0]}, POLICY) == (1, (1,))


def test_medians_within_the_tie_s_share_are_a_tie_although_intervals_are_apart() -> None:
    level = {1: [100.0] * 40, 2: [100.0 * (1 + 0.9 * POLICY.tie)] * 40, 3: [100.0 * (1 + 1.1 * POLICY.tie)] * 40}
    assert ranking(level, POLICY) == (1, (1, 2))


def test_the_winner_is_the_lowest_median_and_not_the_lowest_sample() -> None:
    assert ranking({1: [100.0] * 39 + [50.0], 2: [98.0] * 40}, POLICY)[0] == 2


def test_more_samples_leave_less_room_for_luck() -> None:
    """With five samples 10 % may be bad luck, with six and more they are not: intervals decide."""
    slower = {count: {1: (100.0,) * count, 2: (110.0,) * count} for count in (5, 6)}
    assert still_in(slower[5], POLICY) == [1, 2]
    assert still_in(slower[6], POLICY) == [1]
    assert still_in({1: (100.0,) * 20, 2: (100.9,) * 20}, POLICY) == [1, 2], "within the margin for calm rounds"


@pytest.mark.parametrize(
    ("fastest", "reaches_us"),
    [((100.0, 110.0, 150.0), 150.0), ((150.0, 100.0, 110.0, 105.0, 120.0), 150.0), ((100.0,) * 5, 100.0)],
)
def test_few_samples_stay_as_long_as_the_slowest_of_the_fastest_config_is_within_luck(
    fastest: tuple[float, ...], reaches_us: float
) -> None:
    """A lower bound is the fastest sample less the margin, and an upper bound the slowest sample."""
    for by, left in ((0.999, [1, 2]), (1.001, [1])):
        slower = reaches_us / (1 - POLICY.luck) * by
        assert still_in({1: fastest, 2: (slower, 2 * slower, 3 * slower)}, POLICY) == left


def test_a_config_whose_lower_bound_is_the_fastest_one_s_upper_bound_stays() -> None:
    samples = {1: (100.0, 110.0, 150.0), 2: (300.0, 310.0, 320.0)}
    assert still_in(samples, RacePolicy(luck=0.5)) == [1, 2], "a half of 300 is 150"


def test_who_stays_is_ordered_by_median() -> None:
    assert still_in({1: (102.0,) * 3, 2: (100.0,) * 3, 3: (101.0,) * 3}, POLICY) == [2, 3, 1]


def _sample(draw: random.Random, level: float) -> float:
    return level * (1 + abs(draw.gauss(0, 0.01)) + (draw.random() < 0.02) * draw.random() * 2)


def test_timings_that_only_grow_keep_the_first_and_its_neighbours() -> None:
    """Monotone: each config 5 % slower than the one before."""
    samples = {each: (100.0 * 1.05**each,) * 20 for each in range(30)}
    assert still_in(samples, POLICY) == [0]
    few = {each: times[:3] for each, times in samples.items()}
    assert still_in(few, POLICY) == [0, 1, 2, 3], "with three samples a config within the margin for luck may still win"


def test_a_clock_that_slows_for_everybody_changes_no_ranking() -> None:
    """Interleaved samples of two configs while the GPU throttles more and more."""
    slower = [1 + 0.01 * i for i in range(30)]
    winner, tied = ranking({1: [100 * s for s in slower], 2: [130 * s for s in slower]}, POLICY)
    assert (winner, tied) == (1, (1,))
