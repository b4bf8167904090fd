"""The noise of a series: what is left of it where the nights show none. How far levels moved, and since when."""

from math import exp, log

import numpy as np
import pytest

from tilewatch.worker.detection import nights as nights_module
from tilewatch.worker.detection import step_scan
from tilewatch.worker.detection.nights import Nights
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.reading import Reading

LAUNCHES_US = ((100.0,), (102.0,), (101.0,))


@pytest.mark.parametrize(
    ("kernel_us", "noise"),
    [
        (((100.0,),) * 3, Policy().min_change / 6),
        (LAUNCHES_US, 0.85 * log(1.01) / 3**0.5),
    ],
)
def test_the_noise_is_a_sixth_of_the_least_change_or_what_the_launches_leave(
    kernel_us: tuple[tuple[float, ...], ...], noise: float
) -> None:
    nights = Nights([0], [0], Policy())
    for build in range(12):
        nights.add(build, {0: Reading(build, "m", "e", kernel_us, ())})
    assert nights.noise() == pytest.approx(noise, rel=0.01)


def test_the_noise_is_of_the_distance_between_nights_whatever_its_sign() -> None:
    nights = Nights([0], [0], Policy())
    for build in range(31):
        nights.add(build, {0: Reading(build, "m", "e", ((100.0 + 2.0 * (build % 2),),) * 3, ())})
    assert nights.noise() == pytest.approx(1.4826 * log(1.02) / 2**0.5 * (1.0 + 2.0 / 26.0))


def test_the_noise_of_a_kernel_is_what_its_node_leaves_of_it() -> None:
    """All kernels but the first one follow the node, which is 2 or 4 % slower or faster from night to night."""
    ways = [0.02 * ((7 * build) % 5 - 2) for build in range(40)]
    nights = Nights([0] * 5, list(range(5)), Policy())
    for build, way in enumerate(ways):
        level = {column: 100.0 * (exp(way) if column else 1.0) for column in range(5)}
        nights.add(build, {each: Reading(build, "m", "e", ((us,),) * 3, ()) for each, us in level.items()})
    assert nights.noise().max() < 0.01


@pytest.mark.parametrize(("apart", "spread"), [(0.01, 1.5 * 1.4826 * 0.01), (0.0, 0.001)])
def test_the_moves_of_a_node_at_a_new_toolchain_spread_by_half_more_than_they_show(apart: float, spread: float) -> None:
    moves = np.array([0.0, 1.0, 2.0, 3.0, 4.0]) * apart
    residuals = np.vstack([np.zeros((10, 5)), np.tile(moves, (3, 1))])
    is_here = np.arange(13)[:, None] >= np.full(5, 10)
    common, found = step_scan._common_moves(residuals, is_here, ~is_here, np.zeros(5, dtype=np.int64))
    assert common == pytest.approx(2.0 * apart)
    assert found == pytest.approx(spread)


def play(*levels_us: tuple[int, float]) -> Nights:
    """Nights of a single series: so many at each level, with a baseline that takes twice as long."""
    nights = Nights([0], [0], Policy())
    for count, time_us in levels_us:
        for _ in range(count):
            build = len(nights.builds) and nights.builds[-1] + 1
            kernel, baseline = ((time_us,),) * 3, ((2 * time_us,),) * 3
            nights.add(build, {0: Reading(build, "m", "e", kernel, baseline)})
    return nights


@pytest.mark.parametrize(("older", "moved"), [(19, 0.0), (20, log(2.0)), (21, log(2.0))])
def test_a_level_is_that_of_the_last_forty_nights_before_a_change(older: int, moved: float) -> None:
    """Of 40 nights, 20 at another level are half, and the middle of an even number lies between both."""
    policy = Policy()
    nights = play((22, 400.0), (older, 200.0), (policy.before_nights - older, 100.0), (2, 100.0))
    assert len(nights.builds) == policy.before_nights + policy.after_nights
    kernel, baseline = nights.moves(0, 2, 0)
    assert (kernel, baseline) == pytest.approx((-moved / (2 if older == 20 else 1),) * 2)
    assert nights.size(0, 2, 0) == pytest.approx(kernel, abs=0.01)


def test_as_many_nights_are_kept_as_count_before_and_after_a_change() -> None:
    policy = Policy()
    nights = play((policy.before_nights + policy.after_nights + 3, 100.0))
    arrays = (nights.times, nights.baselines, nights.residuals, nights.launch_variances)
    kept = [nights.builds, *arrays, nights.environments, nights.code_changes]
    assert list(map(len, kept)) == [policy.before_nights + policy.after_nights] * len(kept)
    assert nights.builds[0] == 3


def test_what_a_node_does_is_learned_again_every_tenth_night() -> None:
    nights, seen = Nights([0], [0], Policy()), []
    for build in range(30):
        nights.add(build, {0: Reading(build, "m", "e", LAUNCHES_US, LAUNCHES_US)})
        seen.append(nights._learned[0])
    assert [build for build in range(1, 30) if seen[build] is not seen[build - 1]] == [9, 19, 29]


def test_earlier_nights_move_by_a_confirmed_change_and_later_ones_stay() -> None:
    nights = play((10, 100.0), (3, 110.0))
    times, residuals = nights.times.copy(), nights.residuals.copy()
    nights.align(0, 10, log(1.1))
    for after, before in ((nights.times, times), (nights.residuals, residuals)):
        assert (after - before)[:, 0] == pytest.approx([log(1.1)] * 10 + [0.0] * 3)
    assert nights.moves(0, 3, 0)[0] == pytest.approx(0.0)
    assert nights.size(0, 3, 0) == pytest.approx(0.0, abs=1e-3)


def launches_apart(difference: float) -> tuple[tuple[float, ...], ...]:
    """Two launches whose log times have this variance: (difference^2) / 2."""
    return (100.0,), (100.0 * exp(difference),)


@pytest.mark.parametrize(
    ("differences", "variance"),
    [
        ([0.01] * 5, 1.0),
        ([0.01] * 4 + [0.02], (4 + 4) / 5),
        ([0.01] * 10 + [0.1], (10 + 8) / 11),
        ([0.01, 0.0, 0.01, None, 0.01], 1.0),
        ([0.0] * 5, 0.0),
        ([0.02] * 4 + [0.01] * 60, 1.0),
        ([0.02] * 4 + [0.01] * 59, (59 + 4) / 60),
    ],
)
def test_the_variance_of_launches_is_the_mean_of_sixty_nights_of_which_none_counts_eight_times(
    differences: list[float | None], variance: float
) -> None:
    """Nights without a variance count for none."""
    nights = Nights([0], [0], Policy())
    for build, difference in enumerate(differences):
        kernel_us = () if difference is None else launches_apart(difference)
        nights.add(build, {0: Reading(build, "m", "e", kernel_us, ())})
    assert nights.variances == pytest.approx(variance * 0.01**2 / 2)


@pytest.mark.parametrize(
    ("environments", "is_new"),
    [
        ([("m", "e")], False),
        ([("m", "e"), ("m", "e")], False),
        ([("m", "e"), ("m", "e2")], True),
        ([("m", "e"), ("m2", "e")], True),
        ([None, ("m", "e")], False),
        ([("m", "e"), None], False),
        ([("m", "e"), None, ("m", "e2")], True),
        ([("m", "e"), None, ("m", "e")], False),
        ([("m", "e"), ("m", "e2"), ("m", "e2")], False),
    ],
)
def test_an_environment_is_new_if_the_last_one_was_another(
    environments: list[tuple[str, str] | None], is_new: bool
) -> None:
    """A night without a usable time leaves the environment as it was, whatever it names."""
    nights = Nights([0], [0], Policy())
    for build, named in enumerate(environments):
        machine, env = named or ("broken", "broken")
        nights.add(build, {0: Reading(build, machine, env, ((100.0,),) if named else (), ((90.0,),))})
        assert nights.measured.tolist() == [named is not None]
        assert np.isfinite(nights.baselines[-1]).tolist() == [named is not None]
    assert nights.has_new_environment().tolist() == [is_new]


@pytest.mark.parametrize(
    ("envs", "start", "earlier"),
    [("a", 0, 0), ("aaaa", 0, 0), ("ab", 1, 0), ("aabb", 2, 0), ("aabbbcc", 5, 2), ("aabba", 4, 2), ("abc", 2, 1)],
)
def test_the_present_environment_follows_the_one_before_from_whose_first_night_on(
    envs: str, start: int, earlier: int
) -> None:
    nights = Nights([0, 0], [0, 1], Policy())
    for build, env in enumerate(envs):
        names = {0: "a", 1: env}
        nights.add(build, {each: Reading(build, "m", name, ((100.0,),), ()) for each, name in names.items()})
    assert (nights.starts.tolist(), nights.earlier.tolist()) == ([0, start], [0, earlier])


@pytest.mark.parametrize(
    ("envs", "since", "here", "earlier"),
    [
        ("aaaa", 0, [0, 1, 2, 3], []),
        ("aaaa", 2, [2, 3], []),
        ("aabbbcc", 0, [5, 6], [2, 3, 4]),
        ("aabbbcc", 3, [5, 6], [3, 4]),
        ("aabbbcc", 5, [5, 6], []),
        ("aabbbcc", 6, [6], []),
        ("aabba", 0, [4], [2, 3]),
    ],
)
def test_a_scan_counts_the_nights_of_the_present_environment_and_those_of_the_one_before(
    envs: str, since: int, here: list[int], earlier: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No night counts for both, and none counts before an expected change."""
    nights, masks = Nights([0], [0], Policy()), list[np.ndarray]()
    for night, env in enumerate(envs):
        nights.add(10 * night, {0: Reading(10 * night, "m", env, ((100.0,),), ())})
    monkeypatch.setattr(nights_module, "scan_steps", lambda _, *given: masks.extend(given[:2]))
    nights.scan(np.array([10 * since]))
    assert [np.flatnonzero(each).tolist() for each in masks] == [here, earlier]


@pytest.mark.parametrize(("since", "size"), [(0, log(2.0) / 2), (1, 0.0), (10, 0.0)])
def test_the_size_of_a_move_counts_no_nights_before_an_expected_change(since: int, size: float) -> None:
    """Ten nights of 100 us and twelve of 200, of which the last two are the move's."""
    nights = play((10, 100.0), (12, 200.0))
    assert nights.size(0, 2, since) == pytest.approx(size, abs=0.01)
    assert nights.moves(0, 2, since) == pytest.approx((size, size))


def test_a_move_counts_no_nights_on_another_toolchain() -> None:
    nights = Nights([0], [0], Policy())
    for build in range(22):
        time_us = 100.0 if build < 10 else 200.0
        nights.add(build, {0: Reading(build, "m", f"e{build >= 10}", ((time_us,),) * 3, ((2 * time_us,),) * 3)})
    assert nights.moves(0, 2, 0) == pytest.approx((0.0, 0.0))
    assert nights.size(0, 2, 0) == pytest.approx(0.0, abs=1e-3)
    assert nights.moves(0, 12, 0) == (0.0, 0.0), "there are no nights before on this toolchain"


@pytest.mark.parametrize(
    ("after", "moved"), [((110.0,), 1.1), ((110.0, 121.0), 1.1**1.5), ((110.0, 110.0, 150.0), 1.1)]
)
def test_a_move_is_to_the_mean_of_two_nights_or_the_median_of_more(after: tuple[float, ...], moved: float) -> None:
    nights = play((10, 100.0), *((1, time_us) for time_us in after))
    assert nights.moves(0, len(after), 0)[0] == pytest.approx(log(moved))


@pytest.mark.parametrize(("kernels", "learns"), [(5, True), (6, False)])
def test_the_shares_of_a_node_are_learned_if_it_has_few_columns(kernels: int, learns: bool) -> None:
    """The last kernel does not follow the node. Each kernel has a column for its baseline."""
    nights = Nights([0] * kernels, list(range(kernels)), Policy())
    for build in range(40):
        way = 0.02 * ((7 * build) % 5 - 2)
        readings = {}
        for column in range(kernels):
            us = 100.0 * exp(0.0 if column == kernels - 1 else way)
            readings[column] = Reading(build, "m", "e", ((us,),) * 3, ((100.0 * exp(way),),) * 3)
        nights.add(build, readings)
    assert nights._shares[:-1] == pytest.approx(1.0)
    assert (nights._shares[-1] < 0.5) == learns


@pytest.mark.parametrize(
    ("codes", "changes"),
    [
        (["a"], [0]),
        (["a", "a"], [0, -1]),
        (["a", "b"], [0, 1]),
        (["a", "b", "b"], [0, 1, -1]),
        (["a", None, "b"], [0, 2, 2]),
        (["a", None, "a"], [0, -1, -1]),
        (["a", None, None], [0, 0, 0]),
        ([None, "a", "b"], [0, 0, 1]),
        (["a", "b", None, None, "a"], [0, 1, 3, 3, 3]),
    ],
)
def test_a_night_knows_in_how_many_nights_the_code_may_have_changed(
    codes: list[str | None], changes: list[int]
) -> None:
    """0 if that is not known, and -1 if the code is that of the night before."""
    nights = Nights([0], [0], Policy())
    for build, code in enumerate(codes):
        nights.add(build, {0: Reading(build, "m", "e", ((100.0,),), (), code)})
    assert nights.code_changes[:, 0].tolist() == changes
