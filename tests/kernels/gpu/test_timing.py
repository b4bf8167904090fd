"""The real timer on a fake GPU: L2 is empty before each launch, and records that do not add up give no time."""

import random
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.kernels.fixtures.fake_gpu.device import L2_BYTES, FakeGpu

X = np.ones(1024, np.float32)


def launch(gpu: FakeGpu, name: str = "k", time_us: float = 100.0, array: np.ndarray = X) -> Any:
    return partial(gpu.run, name, time_us, [array])


def timer(wanted: str | None = None) -> Any:
    from tilewatch.kernels.gpu import timing

    return timing.timer(wanted)


@pytest.mark.parametrize("wanted", [None, "events"])
def test_each_launch_finds_an_empty_l2(gpu: FakeGpu, wanted: str | None) -> None:
    """The fake GPU halves the time of a launch whose input is in L2 already."""
    times = timer(wanted).time([launch(gpu)] * 4, [("k",) if wanted is None else ("launch",)] * 4)
    assert times == pytest.approx([100.0] * 4, abs=3), "events count the host's calls too"


def test_a_flush_writes_twice_the_size_of_l2(gpu: FakeGpu) -> None:
    timer()
    from tilewatch.kernels.gpu.timing import Flush

    assert Flush()._buffer.nbytes == 2 * L2_BYTES
    gpu.touch(X)
    Flush()()
    gpu.run("k", 100.0, [X])
    assert gpu.launches[-1].time_us == 100.0


def test_cupti_is_the_timer_where_it_works(gpu: FakeGpu) -> None:
    assert timer().name == "cupti"
    assert timer("events").name == "events"
    gpu.cupti = "missing"
    assert timer().name == "events"


def test_a_cupti_that_records_nothing_is_not_used(gpu: FakeGpu) -> None:
    gpu.cupti = "records nothing"
    assert timer().name == "events"


def test_times_come_in_the_order_of_launches_whatever_the_order_of_records(gpu: FakeGpu) -> None:
    here = timer()
    names = ["a", "b", "a", "c"]
    times = here.time(
        [launch(gpu, name, 10.0 * number) for number, name in enumerate(names, start=1)], [(name,) for name in names]
    )
    assert times == [10.0, 20.0, 30.0, 40.0]


def test_a_launch_of_two_kernels_takes_the_sum_of_both(gpu: FakeGpu) -> None:
    here = timer()

    def both() -> None:
        gpu.run("first", 10.0, [])
        gpu.run("second", 30.0, [])

    assert here.names(both) == ("first", "second")
    assert here.time([both, launch(gpu, "k", 5.0), both], [("first", "second"), ("k",), ("first", "second")]) == [
        40.0,
        5.0,
        40.0,
    ]


def test_what_two_kernels_share_counts_once(gpu: FakeGpu) -> None:
    """In a programmatic dependent launch the second begins before the first has ended."""
    here = timer()

    def both(shared_us: float, second_us: float) -> None:
        gpu.run("first", 10.0, [])
        gpu.clock_ns -= 500 + round(1000 * shared_us)
        gpu.run("second", second_us, [])

    launches = [partial(both, 4.0, 30.0), partial(both, 8.0, 3.0)]
    assert here.time(launches, [("first", "second")] * 2) == [10.0 + 30.0 - 4.0, 10.0]
    assert here.spans_us == [10.0 + 30.0 - 4.0, 10.0], "shorter than the sum; the second may end before the first"


def test_a_span_has_the_gaps_that_a_time_leaves_out(gpu: FakeGpu) -> None:
    here = timer()

    def both(gap_us: float) -> None:
        gpu.run("first", 10.0, [])
        gpu.clock_ns += round(1000 * gap_us) - 500
        gpu.run("second", 30.0, [])

    assert here.time([partial(both, 3.0), partial(both, 7.0)], [("first", "second")] * 2) == [40.0, 40.0]
    assert here.spans_us == [43.0, 47.0]
    here.time([launch(gpu, "k", 5.0)], [("k",)])
    assert here.spans_us == [5.0], "of the last call alone"


def test_by_events_a_span_is_the_time(gpu: FakeGpu) -> None:
    here = timer("events")
    assert here.time([launch(gpu)] * 2, [("launch",)] * 2) == here.spans_us


def test_kernels_of_others_do_not_count(gpu: FakeGpu) -> None:
    here = timer()

    def with_another() -> None:
        gpu.run("somebody_else", 7.0, [])
        gpu.run("k", 50.0, [])

    assert here.time([with_another], [("k",)]) == [50.0]


def test_names_are_those_of_this_launch_alone(gpu: FakeGpu) -> None:
    here = timer()
    gpu.run("earlier", 7.0, [])
    assert here.names(launch(gpu, "k")) == ("k",)


def test_a_missing_record_is_an_error_and_no_shifted_times(gpu: FakeGpu) -> None:
    from tilewatch.kernels.gpu.timing import TimingError

    here = timer()

    def lost() -> None:
        gpu.run("k", 50.0, [])
        gpu.lose_record()

    with pytest.raises(TimingError, match="1 kernel records for 2 kernels launched"):
        here.time([launch(gpu), lost], [("k",), ("k",)])
    assert here.time([launch(gpu)], [("k",)]) == [100.0], "the next call starts with a clean slate"


def test_kernels_in_another_order_than_launched_are_an_error(gpu: FakeGpu) -> None:
    from tilewatch.kernels.gpu.timing import TimingError

    here = timer()
    with pytest.raises(TimingError, match=r"kernels \['b'\] ran where \['a'\] were launched"):
        here.time([launch(gpu, "b"), launch(gpu, "a")], [("a",), ("b",)])


def test_a_burst_of_many_launches_keeps_each_time_with_its_launch(gpu: FakeGpu) -> None:
    here, draw = timer(), random.Random(1)
    wanted = [round(draw.uniform(5, 50), 3) for _ in range(200)]
    assert here.time([launch(gpu, "k", each) for each in wanted], [("k",)] * 200) == wanted
