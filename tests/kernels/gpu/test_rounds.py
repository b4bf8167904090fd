"""Paired rounds on a fake GPU: every entry once a round, in random order, on rotating inputs, with rests."""

import random
from typing import Any

import numpy as np
import pytest

from tests.kernels.fixtures.fake_gpu.device import FakeGpu


def run_rounds(
    gpu: FakeGpu, times_us: dict[str, float], rounds: int, *, seed: int = 1, input_sets: int = 3, **options: Any
) -> tuple[list[list[float]], list[tuple[str, int]]]:
    """The samples, and (entry, input set) of each launch in order."""
    from tilewatch.kernels.gpu import timing
    from tilewatch.kernels.gpu.rounds import Entry, time_rounds

    timer = timing.timer()
    order: list[tuple[str, int]] = []

    def entry(name: str, time_us: float) -> Any:
        def launch(turn: int) -> None:
            order.append((name, turn))
            gpu.run(name, time_us, [])

        return Entry(launch, (name,))

    entries = [entry(name, time_us) for name, time_us in times_us.items()]
    options = {"input_sets": input_sets, "order": random.Random(seed), "before": lambda: None, **options}
    samples = time_rounds(timer, entries, rounds, **options)
    return samples, order


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


def test_the_last_round_takes_the_first_input_set_and_is_checked_entry_by_entry(gpu: FakeGpu) -> None:
    """Each check finds the output of its own entry."""
    from tilewatch.kernels.gpu import timing
    from tilewatch.kernels.gpu.rounds import Entry, time_rounds

    events: list[tuple[str, object]] = []

    def entry(name: str) -> Entry:
        def launch(turn: int) -> None:
            events.append((name, turn))
            gpu.run(name, 10.0, [])

        return Entry(launch, (name,), lambda: events.append((name, "checked")))

    time_rounds(
        timing.timer(), [entry("a"), entry("b")], 5, input_sets=3, order=random.Random(1),
        before=lambda: events.append(("before", None)),
    )  # fmt: skip
    assert events[::2][:8] == [("before", None)] * 8
    last = [each for each in events if each[0] != "before"][8:]
    assert sorted(last[::2]) == [("a", 0), ("b", 0)]
    assert last[1::2] == [(name, "checked") for name, _ in last[::2]]
    assert [each for each in events if each[1] == "checked"] == last[1::2], "no other launch is"


def test_all_entries_of_a_round_take_the_same_input_set_and_rounds_rotate(gpu: FakeGpu) -> None:
    _, order = run_rounds(gpu, {"a": 10.0, "b": 20.0}, 7)
    assert [turn for _, turn in order[::2]] == [turn for _, turn in order[1::2]] == [0, 2, 1, 0, 2, 1, 0]


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


def test_a_launch_longer_than_a_burst_still_runs_round_by_round(gpu: FakeGpu) -> None:
    (samples,), _ = run_rounds(gpu, {"a": 50_000.0}, 3)
    assert samples == [50_000.0] * 3
    assert len(gpu.slept_s) == 2
