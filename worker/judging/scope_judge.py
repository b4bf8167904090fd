"""Judges the nights of a scope in order. A scope is a repository on a GPU model. The same nights and replays always
give the same verdicts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilewatch.db.worker_reads.judging import ExpectedLevel, Point
from tilewatch.worker.detection.detector import Detector, Response
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.reading import Reading
from tilewatch.worker.detection.replay_evidence import ReplayAnswer, ReplayQuestion
from tilewatch.worker.detection.scope_state import NodeKernel
from tilewatch.worker.detection.verdict import ConfirmedChange, SeriesVerdict

LAUNCHES_A_RUN = 3
"""The number of launches that the detector counts for one run. It cancels out, as `replay_launches` sets the budget."""

HISTORY_NIGHTS, HISTORY_STEP = 120, 60
"""A judge starts HISTORY_NIGHTS to HISTORY_NIGHTS + HISTORY_STEP nights back. Its first night depends only on the
number of nights, in steps, so that judging a night again gives the same verdict."""

Series = tuple[str, str, str]
"""Names a series by its kernel, problem and host. The host is included because two GPUs of a model differ by more than
the changes that the judge has to find."""


KernelProblem = tuple[str, str]


@dataclass(frozen=True)
class SeriesQuestion:
    """A request to replay two commits. Earlier requests have used the first `launches_used` stored launches."""

    series: Series
    base: int
    head: int
    launches: int
    launches_used: int


@dataclass(frozen=True)
class Launches:
    """The median times in us of both versions in a replay, one pair per launch."""

    base_us: tuple[float, ...] = ()
    head_us: tuple[float, ...] = ()


AnswerOf = Callable[[SeriesQuestion], Launches | None]
"""Returns the launches that answer a question, perhaps fewer than requested; None while more are to be measured."""


def first_night(nights: int) -> int:
    """Returns the index of the oldest night that is needed to judge the newest of `nights` nights."""
    return max(0, (nights - 1 - HISTORY_NIGHTS) // HISTORY_STEP * HISTORY_STEP)


@dataclass
class FirstQuestion:
    """The first replay wanted for a series tonight. `launches` contains its times as (base_us, head_us)."""

    base: int
    head: int
    launches: list[tuple[float, float]] = field(default_factory=list)


class ScopeJudge:
    """Judges the nights of a scope in order. Each night may spend `replay_launches` launches on replays.

    `awaits_replays` is False if no replay will come later, so that an empty answer is final for a past night too."""

    def __init__(
        self, series: Sequence[Series], policy: Policy, replay_launches: int, *, awaits_replays: bool = True
    ) -> None:
        self.numbers = {each: number for number, each in enumerate(series)}
        self.names = tuple(series)
        self.night_ids: list[int] = []
        self.builds: list[int] = []
        self.points = 0
        self.replays = 0
        self.alerts: dict[Series, ConfirmedChange] = {}
        self.first_questions: dict[Series, FirstQuestion] = {}
        self.code_names: dict[KernelProblem, str] = {}
        """The name of the newest machine code for each kernel and problem."""
        self.policy, self._replay_launches, self._awaits_replays = policy, replay_launches, awaits_replays
        kernels = {name: number for number, name in enumerate(dict.fromkeys(kernel for kernel, _, _ in series))}
        hosts = {name: number for number, name in enumerate(dict.fromkeys(host for _, _, host in series))}
        places = {self.numbers[each]: NodeKernel(hosts[each[2]], kernels[each[0]]) for each in series}
        self._detector = Detector(places, LAUNCHES_A_RUN, policy)
        self._asks: tuple[ReplayQuestion, ...] = ()
        self._spent = 0
        self._launches_used: dict[tuple[int, int, int], int] = {}
        self._baselines: dict[Series, list[str]] = {}

    def add_night(self, night_id: int, build: int, points: Sequence[Point], codes: Mapping[KernelProblem, str]) -> None:
        """Adds a night. `codes` maps (kernel, problem) to the name of the winning machine code, if known."""
        readings = {
            self.numbers[series_of(point)]: self._reading(build, point, codes.get((point.kernel, point.problem)))
            for point in points
        }
        nightly = max(1, LAUNCHES_A_RUN * len(readings))
        self._detector.policy = replace(self.policy, budget=self._replay_launches / nightly)
        self.night_ids.append(night_id)
        self.builds.append(build)
        self.points += len(points)
        self.alerts, self.first_questions, self._spent = {}, {}, 0
        unmeasured = {
            number: Reading(build, host, "", (), (), codes.get((kernel, problem)))
            for (kernel, problem, host), number in self.numbers.items()
            if number not in readings
        }
        self._take(self._detector.add_night(build, unmeasured | readings))

    def start_levels(self, levels: Iterable[ExpectedLevel], build: int) -> None:
        """Restarts the reference times at changes that people marked as expected. Call it before `add_night`."""
        for (kernel, problem, host), number in self.numbers.items():
            since = [
                level.first_bad
                for level in levels
                if (level.kernel, level.problem) == (kernel, problem)
                and level.host in (None, host)
                and level.first_bad <= build
            ]
            if since and max(since) > self._detector.state.series[number].level_since:
                self._detector.state.start_level(number, max(since))

    def settle(self, answer_of: AnswerOf) -> tuple[SeriesQuestion, ...]:
        """Uses replay results from `answer_of` until some are missing. Returns the replays with missing results."""
        while self._asks:
            answers = [(ask, answer_of(self._question(ask))) for ask in self._asks]
            missing = tuple(self._question(ask) for ask, launches in answers if launches is None)
            if missing:
                return missing
            self._use([(ask, launches) for ask, launches in answers if launches is not None])
        return ()

    def settle_past(self, answer_of: AnswerOf) -> None:
        """Uses the available replay results of a past night, without waiting for missing results."""
        while self._asks:
            answers = [(ask, answer_of(self._question(ask))) for ask in self._asks]
            there = [(ask, launches) for ask, launches in answers if launches is not None]
            if self._awaits_replays and not any(launches.base_us for _, launches in there):
                return
            self._use(there)

    def is_spent(self) -> bool:
        """Returns whether tonight's remaining launches are too few to replay another suspicion."""
        return self._spent + self.policy.first_launches > self._replay_launches

    def verdict(self, series: Series) -> SeriesVerdict:
        verdict, alert = self._detector.give_verdict(self.numbers[series]), self.alerts.get(series)
        if alert is None or verdict.first_bad == alert.first_bad:
            return verdict
        return replace(verdict.with_change(alert), first_bad=alert.first_bad)

    def _question(self, ask: ReplayQuestion) -> SeriesQuestion:
        used = self._launches_used.get((ask.series, ask.base, ask.head), 0)
        return SeriesQuestion(self.names[ask.series], ask.base, ask.head, ask.launches, used)

    def _reading(self, build: int, point: Point, code: str | None) -> Reading:
        """Returns a night's times of a series for the detector: the median and the ends of its interval."""
        baselines = self._baselines.setdefault(series_of(point), [])
        if point.baseline is not None and baselines[-1:] != [point.baseline]:
            baselines.append(point.baseline)
        # Another main baseline counts as another toolchain, because its level is different.
        env = point.toolchain_sha256 if len(set(baselines)) < 2 else f"{point.toolchain_sha256} beside {baselines[-1]}"
        # These three spread twice as much as the median: launches differ too, which one process cannot show.
        kernel_us = ((point.low_us, point.time_us, point.high_us),)
        baseline_us = () if point.ratio is None else ((point.time_us * point.ratio,),)
        return Reading(build, point.host, env, kernel_us, baseline_us, code)

    def _use(self, answers: Sequence[tuple[ReplayQuestion, Launches]]) -> None:
        replayed = []
        for ask, launches in answers:
            pair = (ask.series, ask.base, ask.head)
            self._launches_used[pair] = self._launches_used.get(pair, 0) + len(launches.base_us)
            first = self.first_questions[self.names[ask.series]]
            if (first.base, first.head) == (ask.base, ask.head):
                first.launches.extend(zip(launches.base_us, launches.head_us, strict=True))
            replayed.append(ReplayAnswer(*pair, launches.base_us, launches.head_us))
        self._take(self._detector.add_answers(replayed))

    def _take(self, response: Response) -> None:
        for alert in response.changes:
            self.alerts[self.names[alert.series]] = alert
        for ask in response.questions:
            self._spent += ask.launches
            self.first_questions.setdefault(self.names[ask.series], FirstQuestion(ask.base, ask.head))
        self._asks = response.questions


def series_of(point: Point) -> Series:
    return point.kernel, point.problem, point.host
