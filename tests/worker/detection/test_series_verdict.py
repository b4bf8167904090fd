"""The verdict on a series that no replay has judged, by hand: its change, interval, history and reason."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from tilewatch.worker.detection.candidate import Candidate, NightEvidence
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.reading import Reading
from tilewatch.worker.detection.scope_state import NodeKernel, ScopeState
from tilewatch.worker.detection.series_verdict import MOST_LOG_CHANGE, give_verdict
from tilewatch.worker.detection.verdict import SeriesVerdict


def add_night(state: ScopeState, build: int, time_us: float, env: str = "e") -> None:
    launches = tuple((time_us * wobble,) for wobble in (0.999, 1.0, 1.001))
    state.add_night(build, {0: Reading(build, "m", env, launches, ((90.0,),) * 3)})


def state_of(times_us: Sequence[float | None], envs: str = "") -> ScopeState:
    """A single series after a night for each of these times; None: it was not measured."""
    state = ScopeState({0: NodeKernel(0, 0)}, Policy())
    for build, time_us in enumerate(times_us):
        if time_us is None:
            state.add_night(build, {})
        else:
            add_night(state, build, time_us, envs[build] if envs else "e")
    return state


def judge(state: ScopeState, build: int | None) -> SeriesVerdict:
    """Gives the verdict. Only this build is suspected, or none."""
    suspected = build is not None
    nightly = NightEvidence(*np.zeros((2, 1)))
    return give_verdict(state, 0, Candidate(0, build - 1, build, None, nightly, 1e-6, 0.0) if suspected else None)


@pytest.mark.parametrize(
    ("build", "change", "nights"),
    [(None, 0.21, (11, 1)), (11, 0.21, (11, 1)), (10, 1.1**1.5 - 1.0, (10, 2)), (9, 0.1, (9, 3))],
)
def test_a_change_is_measured_from_the_suspected_build_on(
    build: int | None, change: float, nights: tuple[int, int]
) -> None:
    """From the newest night on without a suspicion. The interval is that of two means of so many nights."""
    state = state_of((100.0,) * 9 + (105.0, 110.0, 121.0))
    found = judge(state, build)
    before, after = nights
    error = state.noise[0] * math.sqrt(1 / before + 1 / after)
    assert found.change == pytest.approx(change, abs=0.005)
    assert found.change is not None
    interval = [math.expm1(math.log1p(found.change) + 1.96 * each * error) for each in (-1, 1)]
    assert [found.low, found.high] == pytest.approx(interval)
    assert (found.verdict, found.first_bad) == ("unchanged" if build is None else "undecided", build)
    assert found.reason.startswith("looks like a change") == (build is not None)
    assert (found.history_points, found.noise) == (11, state.noise[0])


def test_a_build_after_too_few_nights_has_the_widest_interval_of_the_later_ones() -> None:
    """Build 2 comes after two nights. The newest of eight nights is the least sure, as no night follows it."""
    state = state_of((100.0,) * 8)
    found = judge(state, 2)
    error = state.noise[0] * math.sqrt(1 / 7 + 1 / 1)
    assert [found.low, found.high] == pytest.approx([math.expm1(each * 1.96 * error) for each in (-1, 1)], rel=1e-3)


@pytest.mark.parametrize(
    ("times_us", "envs", "history"),
    [
        ((), "", 0),
        ((100.0,), "", 0),
        ((100.0,) * 5, "", 4),
        ((None, 100.0, None, 100.0, 100.0, None), "", 2),
        ((100.0,) * 12, "a" * 9 + "b" * 3, 2),
        ((100.0,) * 6, "", None),
    ],
)
def test_a_verdict_needs_five_earlier_nights_with_a_time_on_the_toolchain(
    times_us: Sequence[float | None], envs: str, history: int | None
) -> None:
    found = judge(state_of(times_us, envs), None)
    assert (found.change is None) == (history is not None)
    assert found.history_points == (5 if history is None else history)
    needed = f"{history} of the 5 earlier nights needed on this machine and toolchain"
    assert (found.reason == needed) == (history is not None)


def test_an_expected_change_is_no_part_of_the_change_nor_of_the_reason() -> None:
    state = state_of((100.0,) * 12)
    state.start_level(0, 12)
    for build in range(12, 19):
        add_night(state, build, 200.0)
    found = judge(state, None)
    assert found.change == pytest.approx(0.0, abs=1e-3)
    assert found.reason.endswith("(the time moved +0.0%, the baseline +0.0%)")


def test_a_change_that_is_too_large_for_a_number_is_the_largest_that_has_one() -> None:
    state = state_of((100.0,) * 12)
    state.nights.residuals[-1] += MOST_LOG_CHANGE + 100.0
    found = judge(state, None)
    assert found.change == found.low == found.high == math.expm1(MOST_LOG_CHANGE)
