"""Paired rounds on a fake GPU: every entry once a round, in random order, on rotating inputs, with rests."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.kernels.fixtures.fake_gpu.device import FakeGpu


def run_rounds(
    gpu: FakeGpu, times_us: dict[str, float], rounds: int, *, seed: int = 1, input_sets: int = 3, **options: Any
) -> tuple[list[list[float]], list[tuple[str, int]]]:
    """The samples, and (entry, input set) of each launch in order."""
    from tilewatch.kernels.gpu import timing
    from tilewatch.kernels.gpu.rounds import Checks, Entry, time_rounds

    timer = timing.timer()
    order: list[tuple[str, int]] = []

    def entry(name: str, time_us: float) -> Any:
        def launch(turn: int) -> None:
            order.append((name, turn))
            gpu.run(name, time_us, [])

        return Entry(launch, (name,))

    entries = [entry(name, time_us) for name, time_us in times_us.items()]
    checks = Checks([0], random.Random(seed))
    plain = {"input_sets": input_sets, "order": random.Random(seed), "before": lambda _: None, "checks": checks}
    return time_rounds(timer, entries, rounds, **plain, **options).times_us, order


def test_each_round_launches_every_entry_once(gpu: FakeGpu) -> None:
    samples, order = run_rounds(gpu, {"a": 10.0, "b": 20.0, "c": 30.0}, 50)
    assert [len(each) for each in samples] == [50, 50, 50]
    for number in range(50):
        assert {name for name, _ in order[3 * number : 3 * number + 3]} == {"a", "b", "c"}


def test_samples_stay_with_their_entry(gpu: FakeGpu) -> None:
    samples, _ = run_rounds(gpu, {"a": 10.0, "b": 20.0, "c": 30.0}, 50)
    assert [set(each) for each in samples] == [{10.0}, {20.0}, {30.0}]


def test_the_order_within_a_round_is_random_and_follows_the_seed(gpu: FakeGpu) -> None:
    times = {"a": 10.0, "b": 20.0}
    _, order = run_rounds(gpu, times, 100)
    first = [order[2 * number][0] for number in range(100)]
    assert 30 < first.count("a") < 70
    assert run_rounds(gpu, times, 100)[1] == order
    assert run_rounds(gpu, times, 100, seed=2)[1] != order


def run_checked(
    gpu: FakeGpu,
    rounds: int,
    *,
    draws: int,
    sets: tuple[int, ...] = (0, 1),
    result_bytes: int = 0,
    held: list[int] | None = None,
    time_us: float = 10.0,
) -> list[tuple[str, Any]]:
    """What two entries are called with, in order: "before" with an input set, an entry's name with it, and "checked"
    with the name and the set."""
    from tilewatch.kernels.gpu import timing
    from tilewatch.kernels.gpu.result_error import NO_ERROR, ResultError
    from tilewatch.kernels.gpu.rounds import Checks, Entry, time_rounds

    events: list[tuple[str, Any]] = []
    held = [] if held is None else held  # the number of copies after each capture and each comparison

    def entry(name: str) -> Entry:
        def launch(turn: int) -> None:
            events.append((name, turn))
            gpu.run(name, time_us, [])

        def capture(turn: int) -> Callable[[], ResultError]:
            events.append(("checked", (name, turn)))
            held.append(held[-1] + 1 if held else 1)
            return compare

        def compare() -> ResultError:
            held.append(held[-1] - 1)
            return NO_ERROR

        return Entry(launch, (name,), capture, result_bytes)

    time_rounds(
        timing.timer(), [entry("a"), entry("b")], rounds, input_sets=3, checks=Checks(sets, random.Random(draws)),
        order=random.Random(1), before=lambda turn: events.append(("before", turn)),
    )  # fmt: skip
    return events


def list_checks(events: list[tuple[str, Any]]) -> list[tuple[str, int, int]]:
    """Entry, input set and round of each launch that was compared."""
    found, launched = [], 0
    for name, what in events:
        launched += name in ("a", "b")
        if name == "checked":
            found.append((*what, (launched - 1) // 2))
    return found


def test_each_entry_is_compared_once_right_after_one_of_its_own_launches(gpu: FakeGpu) -> None:
    for draws in range(30):
        events = run_checked(gpu, 5, draws=draws)
        assert sorted(name for name, _, _ in list_checks(events)) == ["a", "b"]
        for place, event in enumerate(events):
            if event[0] == "checked":
                assert events[place - 1] == event[1], "its own launch is the last one, on the set that is compared"


def test_the_gpu_is_not_waited_for_between_launches_because_results_are_compared(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CuPy's wait is the expensive part. Bursts of 10 us launches hold all rounds but the first one."""
    waits: list[int] = []
    synchronize = gpu.synchronize
    monkeypatch.setattr(gpu, "synchronize", lambda: (waits.append(len(gpu.launches)), synchronize())[1])
    run_checked(gpu, 40, draws=1)
    began = waits[-2] - 2
    assert [each - began for each in waits[-2:]] == [2, 80]


@pytest.mark.parametrize(("most_bytes", "copies"), [(99, 1), (199, 1), (200, 2), (250, 2), (300, 3), (2000, 20)])
def test_copies_of_results_are_compared_before_they_take_much_memory(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, most_bytes: int, copies: int
) -> None:
    """Two entries are compared in each of ten parts of the rounds."""
    from tilewatch.kernels.gpu import rounds

    monkeypatch.setattr(rounds, "MOST_CAPTURED_BYTES", most_bytes)
    held: list[int] = []
    run_checked(gpu, 100, draws=1, result_bytes=100, held=held)
    assert (max(held), held[-1], len(held)) == (copies, 0, 2 * 20)


def test_a_burst_that_is_launched_in_parts_is_as_long_as_one_that_is_not(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two launches of 1.5 ms take more than a quarter of a burst, and the GPU rests."""
    from tilewatch.kernels.gpu import rounds

    monkeypatch.setattr(rounds, "MOST_CAPTURED_BYTES", 100)
    for draws in range(20):
        gpu.reset()
        run_checked(gpu, 2, draws=draws, result_bytes=100, time_us=1500.0)
        assert gpu.slept_s == [0.04]


def test_what_is_compared_is_drawn_over_all_rounds_and_over_the_sets_that_have_a_reference(gpu: FakeGpu) -> None:
    seen = {(turn, number) for draws in range(200) for _, turn, number in list_checks(run_checked(gpu, 4, draws=draws))}
    assert seen == {(turn, number) for turn in (0, 1) for number in range(4)}


def test_many_rounds_are_compared_in_each_part_of_them(gpu: FakeGpu) -> None:
    for draws in range(20):
        checks = list_checks(run_checked(gpu, 39, draws=draws))
        for name in ("a", "b"):
            assert [number // 13 for each, _, number in checks if each == name] == [0, 1, 2]


def test_an_entry_may_be_compared_on_one_set_alone(gpu: FakeGpu) -> None:
    assert {turn for draws in range(20) for _, turn, _ in list_checks(run_checked(gpu, 3, draws=draws, sets=(1,)))} == {
        1
    }


def test_outputs_are_reset_for_the_input_set_of_each_launch(gpu: FakeGpu) -> None:
    events = [each for each in run_checked(gpu, 7, draws=1) if each[0] != "checked"]
    assert [name for name, _ in events[::2]] == ["before"] * 14
    assert [turn for _, turn in events[::2]] == [turn for _, turn in events[1::2]]


def test_entries_without_a_check_are_not_drawn(gpu: FakeGpu) -> None:
    _, order = run_rounds(gpu, {"a": 10.0, "b": 20.0}, 7)
    assert [turn for _, turn in order[::2]] == [turn for _, turn in order[1::2]] == [0, 1, 2, 0, 1, 2, 0]


def test_all_entries_of_a_round_take_the_same_input_set_and_rounds_rotate(gpu: FakeGpu) -> None:
    """But for the rounds in which one is compared, on a set that is drawn."""
    for draws in range(20):
        events = run_checked(gpu, 12, draws=draws)
        turns = [turn for name, turn in events if name in ("a", "b")]
        drawn = {number for _, _, number in list_checks(events)}
        assert turns[::2] == turns[1::2]
        assert all(turn == number % 3 for number, turn in enumerate(turns[::2]) if number not in drawn)
        assert all(turns[2 * number] in (0, 1) for number in drawn)


def test_pairing_is_kept_while_the_gpu_slows_down(gpu: FakeGpu) -> None:
    """Sample r of both entries comes from round r: their ratio stays although times triple."""
    gpu.drift = lambda number: 1 + number / 100
    (ours, theirs), _ = run_rounds(gpu, {"a": 10.0, "b": 20.0}, 100)
    assert max(ours) > 2.5 * min(ours)
    assert [y / x for x, y in zip(ours, theirs, strict=True)] == pytest.approx([2.0] * 100, rel=0.02)


def test_bursts_with_rests_stay_under_the_power_cap(gpu: FakeGpu) -> None:
    gpu.power_cap = True
    (samples,), _ = run_rounds(gpu, {"a": 200.0}, 600)
    assert set(samples) == {200.0}
    assert len(gpu.slept_s) > 10
    gpu.reset()
    gpu.power_cap = True
    (samples,), _ = run_rounds(gpu, {"a": 200.0}, 600, rest=False)
    assert not gpu.slept_s
    assert np.median(samples) > 200.0, "without rests the same launches meet the cap: so the test above can fail"


def test_a_burst_lasts_some_milliseconds_and_no_rest_follows_the_last(gpu: FakeGpu) -> None:
    run_rounds(gpu, {"a": 1000.0}, 17)
    assert len(gpu.slept_s) == 1, (
        "1 round, then 8, then 8 with the last: no rest after the first, which was short, nor after the last"
    )


@pytest.mark.parametrize(
    ("round_us", "at_once"),
    [(1.0, 8000), (1000.0, 8), (1001.0, 7), (4000.0, 2), (4001.0, 1), (8000.0, 1), (8001.0, 1), (1e6, 1)],
)
def test_a_burst_has_as_many_rounds_as_fit_into_eight_milliseconds(round_us: float, at_once: int) -> None:
    from tilewatch.kernels.gpu.rounds import count_at_once, find_rests_us

    assert count_at_once(round_us) == at_once
    rests_us = [find_rests_us(rounds, round_us) for rounds in (at_once - 1, at_once, 2 * at_once, 5 * at_once)]
    assert rests_us == pytest.approx([0.0, 40_000.0, 80_000.0, 200_000.0])


@pytest.mark.parametrize(
    ("time_us", "rounds", "rests"),
    [(2000.0, 2, 0), (2001.0, 2, 1), (2001.0, 1, 0), (8000.0, 3, 2), (1000.0, 9, 0), (1000.0, 10, 1), (100.0, 90, 1)],
)
def test_the_gpu_rests_between_bursts_that_take_more_than_two_milliseconds(
    gpu: FakeGpu, time_us: float, rounds: int, rests: int
) -> None:
    """The first burst is one round. A quarter of a burst does not heat the GPU."""
    run_rounds(gpu, {"a": time_us}, rounds)
    assert gpu.slept_s == [0.04] * rests


def test_a_launch_longer_than_a_burst_still_runs_round_by_round(gpu: FakeGpu) -> None:
    (samples,), _ = run_rounds(gpu, {"a": 50_000.0}, 3)
    assert samples == [50_000.0] * 3
    assert len(gpu.slept_s) == 2


@pytest.mark.parametrize(
    ("set_bytes", "sets"),
    [(0, 40), (1, 40), (10, 4), (13, 4), (14, 3), (20, 2), (39, 2), (40, 2), (400, 2), (500, 2), (501, 1), (2000, 1)],
)
@pytest.mark.usefixtures("gpu")
def test_inputs_fill_four_times_l2_and_have_at_least_two_sets_if_they_fit(set_bytes: int, sets: int) -> None:
    from tilewatch.kernels.gpu.rounds import count_input_sets

    assert count_input_sets(set_bytes, l2_bytes=10, budget_bytes=1000.0) == sets


@pytest.mark.usefixtures("gpu")
def test_inputs_of_an_eighth_of_the_memory_have_two_sets_and_those_of_host_code_of_a_twentieth() -> None:
    """Two sets are two references (docs/operate/security.md)."""
    import cupy

    from tilewatch.kernels.contract import Array
    from tilewatch.kernels.gpu import prepared_problem
    from tilewatch.kernels.gpu.host_code import input_sets

    memory = cupy.cuda.Device().mem_info[1]
    sizes = {share: int(share * memory) for share in (0.049, 0.051, 0.124, 0.126)}
    of_kernels = {share: prepared_problem.count_sets([Array("x", (size,), "uint8")]) for share, size in sizes.items()}
    assert (of_kernels[0.124], of_kernels[0.126]) == (2, 1)
    assert (input_sets.count_sets(sizes[0.049]), input_sets.count_sets(sizes[0.051])) == (2, 1)
    small = memory // 100
    for of_other_configs, sets in ((0, 2), (4 * small, 2), (4 * small + 8, 1)):
        assert input_sets.count_sets(small, of_other_configs) == sets, "each set has what other configs read, too"
