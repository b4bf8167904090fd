"""Properties that hold for any finite, positive times: every night and answer gets a response of finite numbers."""

import math
import random
from dataclasses import astuple, dataclass

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tilewatch.worker.detection.detector import Detector, Response
from tilewatch.worker.detection.reading import Reading, read_level
from tilewatch.worker.detection.replay_evidence import ReplayAnswer, ReplayEvidence, ReplayQuestion
from tilewatch.worker.detection.scope_state import NodeKernel

ROUNDS = 40
"""More than a night's rounds of replays may take."""

EXTREMES_US = (5e-324, 1e-300, 1e-9, 1.0, 1e9, 1e300, 1.7e308)


@dataclass(frozen=True)
class Fleet:
    """A made fleet; shares are of nights, launches or answers. `tick` rounds times, as a clock does; 0 does not."""

    seed: int
    series: int
    nodes: int
    kernels: int
    nights: int
    launches: int
    samples: int
    noise: float
    tick: float
    gap: float
    slow_share: float
    missing_share: float
    missing_baseline_share: float
    new_machine_share: float
    extreme_share: float
    unanswered_share: float
    step: float
    skipped_builds: int
    new_code_share: float | None = None
    """None: the code is not known."""


SHARES = st.sampled_from((0.0, 0.0, 0.01, 0.3, 1.0))
FLEETS = st.builds(
    Fleet,
    seed=st.integers(0, 2**32),
    series=st.integers(1, 6),
    nodes=st.integers(1, 3),
    kernels=st.integers(1, 3),
    nights=st.integers(1, 45),
    launches=st.integers(1, 4),
    samples=st.integers(1, 3),
    noise=st.sampled_from((0.0, 1e-12, 1e-4, 0.01, 1.0)),
    tick=st.sampled_from((0.0, 0.01, 10.0)),
    gap=st.sampled_from((0.0, 1e-6, 0.03, 3.0)),
    slow_share=st.sampled_from((0.0, 0.1, 0.5, 1.0)),
    missing_share=SHARES,
    missing_baseline_share=SHARES,
    new_machine_share=SHARES,
    extreme_share=SHARES,
    unanswered_share=SHARES,
    step=st.sampled_from((0.0, 0.01, -0.5, 30.0)),
    skipped_builds=st.sampled_from((0, 1, 7, 100)),
    new_code_share=st.sampled_from((None, 0.0, 0.1, 1.0)),
)
REPEATS = Fleet(1, 2, 1, 1, 45, 3, 1, 0.0, 0.01, 0.03, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0)
"""Launches that repeat to the last digit in two modes: their variance is exactly 0."""
FOUND = (
    Fleet(5, 5, 1, 3, 13, 1, 3, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 7),
    Fleet(1, 4, 1, 1, 12, 2, 1, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.3, 0.0, -0.5, 7),
    Fleet(0, 1, 1, 1, 32, 1, 1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.3, 0.0, -0.5, 7),
    Fleet(8015, 3, 3, 1, 20, 1, 1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.3, 0.3, 0.0, 100, 1.0),
)
"""Fleets that Hypothesis found: a size of 0 to locate, a likeliest build without a replay, a verdict of no number, an
interval of no number."""


class FleetRun:
    """Plays a fleet through the detector and keeps every response."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.chance = fleet, random.Random(fleet.seed)
        kernels = {i: NodeKernel(i % fleet.nodes, i % fleet.kernels) for i in range(fleet.series)}
        self.detector = Detector(kernels, fleet.launches)
        self.responses: list[Response] = []
        self.machine = self.code = 0

    def play(self) -> None:
        for night in range(self.fleet.nights):
            build = night * (1 + self.fleet.skipped_builds)
            self.machine += self._happens(self.fleet.new_machine_share)
            self.code += self.fleet.new_code_share is not None and self._happens(self.fleet.new_code_share)
            readings = {i: self._reading(build) for i in range(self.fleet.series) if not self._misses()}
            response = self.detector.add_night(build, readings)
            self.responses.append(response)
            rounds = 0
            while response.questions:
                rounds += 1
                assert rounds < ROUNDS
                answers = [self._answer(each) for each in response.questions if not self._is_unanswered()]
                response = self.detector.add_answers(answers)
                self.responses.append(response)

    def _reading(self, build: int) -> Reading:
        kernel_us, baseline_us = (
            tuple(tuple(self._time_us(build) for _ in range(self.fleet.samples)) for _ in range(self.fleet.launches))
            for _ in range(2)
        )
        code = None if self.fleet.new_code_share is None else f"code {self.code}"
        baseline_us = () if self._happens(self.fleet.missing_baseline_share) else baseline_us
        return Reading(build, f"m{self.machine}", "e", kernel_us, baseline_us, code)

    def _answer(self, question: ReplayQuestion) -> ReplayAnswer:
        base_us, head_us = (
            tuple(self._time_us(build) for _ in range(question.launches)) for build in (question.base, question.head)
        )
        return ReplayAnswer(question.series, question.base, question.head, base_us, head_us)

    def _time_us(self, build: int) -> float:
        fleet = self.fleet
        if self._happens(fleet.extreme_share):
            return self.chance.choice(EXTREMES_US)
        slow = math.exp(fleet.gap * self._happens(fleet.slow_share) + fleet.noise * self.chance.gauss(0, 1))
        time_us = 100.0 * slow * (1.0 + fleet.step * (build >= 30))
        return max(round(time_us / fleet.tick) * fleet.tick, fleet.tick) if fleet.tick else time_us

    def _happens(self, share: float) -> bool:
        return self.chance.random() < share

    def _misses(self) -> bool:
        return self._happens(self.fleet.missing_share)

    def _is_unanswered(self) -> bool:
        return self._happens(self.fleet.unanswered_share)


@example(REPEATS)
@example(FOUND[0])
@example(FOUND[1])
@example(FOUND[2])
@example(FOUND[3])
@settings(max_examples=60, deadline=None)
@given(FLEETS)
def test_every_night_gets_finite_changes_questions_that_can_be_asked_and_a_verdict(fleet: Fleet) -> None:
    run = FleetRun(fleet)
    run.play()
    for response in run.responses:
        for change in response.changes:
            assert math.isfinite(change.size)
            assert 0.0 < change.error < math.inf
        assert all(each.base < each.head and each.launches > 0 for each in response.questions)
    for series in range(fleet.series):
        verdict = run.detector.give_verdict(series)
        assert all(math.isfinite(number) for number in astuple(verdict) if isinstance(number, float))
        assert verdict.reason


@settings(max_examples=10, deadline=None)
@given(FLEETS)
def test_the_same_nights_and_answers_give_the_same_responses(fleet: Fleet) -> None:
    first, second = FleetRun(fleet), FleetRun(fleet)
    first.play()
    second.play()
    assert first.responses == second.responses


TIMES_US = st.floats(min_value=0.0, exclude_min=True, allow_nan=False, allow_infinity=False)


@settings(max_examples=300)
@given(st.lists(st.lists(TIMES_US, max_size=5), max_size=5))
def test_any_launches_have_a_finite_level_or_none(launches: list[list[float]]) -> None:
    level = read_level(launches)
    assert level is None or all(map(math.isfinite, (level.time, level.launch_variance)))


@settings(max_examples=300)
@given(st.lists(st.tuples(TIMES_US, TIMES_US), min_size=1, max_size=8))
def test_any_launches_of_a_replay_have_a_finite_estimate(launches: list[tuple[float, float]]) -> None:
    evidence = ReplayEvidence()
    base_us, head_us = zip(*launches, strict=True)
    evidence.add(ReplayAnswer(0, 1, 2, base_us, head_us))
    for estimate in evidence.estimates(0.0).values():
        assert math.isfinite(estimate.size)
        assert 0.0 < estimate.error < math.inf
