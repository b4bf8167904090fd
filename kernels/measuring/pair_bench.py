"""Times pairs of cubins on this machine's GPU. A pair is launched several times, each time in a new process.

A launch checks both cubins, times them in alternation, and returns both medians. Addresses and clocks vary between
processes, so the spread of launches shows how certain the difference is. One process launches pairs of up to
PROBLEMS_AT_ONCE problems, because its start takes half of a launch's time, and pairs of one base are launched together,
because preparing a problem takes 0.2 s (H200, 2026-11)."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from tilewatch import processes
from tilewatch.errors import ExpectedError
from tilewatch.kernels import device
from tilewatch.kernels.children.child_process import ChildDied, ChildHung
from tilewatch.kernels.compiling.local_cubins import LocalCubins
from tilewatch.kernels.gpu.host_code.described_run import Described
from tilewatch.kernels.measuring.description_schema import BadDescription
from tilewatch.kernels.measuring.gpu_processes import WATCHED, WITHOUT_GPU, GpuProcesses, describe_side
from tilewatch.kernels.measuring.measure import MeasureFailed, usable_gpu
from tilewatch.kernels.measuring.preparation import Preparation, draw_seed
from tilewatch.kernels.measuring.sweep import (
    NO_ROOM,
    PREPARE_DEADLINE_S,
    ROOM_TRIES,
    ROOM_WAIT_S,
    TRIAL_DEADLINE_S,
    GpuChild,
    GpuSetup,
    SweepFailed,
    describe,
    sweep,
    trial_request,
)
from tilewatch.kernels.results import Cubin, Params
from tilewatch.kernels.statistics import median_interval
from tilewatch.metrics import Metric

PROBLEMS_AT_ONCE = 16
"""Most problems of one process. If the process dies, its current pair gets no time, and a new process starts."""

MOST_AHEAD = max(1, min(4, processes.count_cores() // 4))
"""Most processes that import libraries ahead at the same time. A launch holds the GPU for about a second, and importing
takes 2 to 4 s, so four processes are enough."""

CHECK_SAMPLES = 2
ROUNDS_DEADLINE_S = 120.0
BASE, HEAD = 0, 1

FATES = {"wrong": "gives wrong results", "launch_error": "cannot be launched", "crashed": "faults on the GPU"}
"""Maps the status of a failed trial to the words that follow "with the head it " or "with the base it "."""

WITH_HEAD = "with the head it "
"""First words of the sentence about a launch that failed because of the head."""

WHO = {BASE: "with the base it ", HEAD: WITH_HEAD, None: "one side "}
"""Maps a side, or None if a fault does not show which side it is of, to the first words of the sentence about it."""

NO_CUPTI = (
    "CUPTI does not record kernel times here, and CUDA events add 2 to 3 us to each: install the packages of the extra "
    "'gpu' and see that the driver lets everybody profile, or compare by events"
)


class NoCupti(ExpectedError):
    """Raised if kernel times are not reliable on this machine. The message says what to do."""


@dataclass(frozen=True)
class RoundCounts:
    """The number of rounds per launch: as many as fit into `fill_us`, from `least` to `most`."""

    warm_up: int
    least: int
    most: int
    fill_us: float = 40_000.0


COMPARED = RoundCounts(warm_up=4, least=12, most=40)
"""Rounds of a comparison, fewer than those of a replay. Medians vary more between launches than within one, so more
launches help more than longer launches. One launch of each of 82 problems takes 21 s of kernels and rests with these
rounds, 69 s with a replay's (times of recordings/h200.jsonl.gz)."""


@dataclass(frozen=True)
class ReplaySide:
    """One of two compared cubins, and the library folder of the cubin's commit."""

    library: Path
    cubin: Cubin


@dataclass(frozen=True)
class PairWork:
    """Two cubins to compare. `label` distinguishes pairs of one kernel and problem."""

    kernel: str
    problem: str
    base: ReplaySide
    head: ReplaySide
    launches: int = 0  # how many there were before
    describes: bool = False  # for a profiler
    label: str = ""
    metric: Metric = "time"

    @property
    def key(self) -> tuple[str, str, str]:
        return self.kernel, self.problem, self.label

    @property
    def others(self) -> tuple[Path, ...]:
        """Returns the base commit's library folder, or () if both commits share one library folder."""
        return () if self.base.library == self.head.library else (self.base.library,)


@dataclass(frozen=True)
class Launched:
    """The result of one launch: the median microseconds of both cubins."""

    base_us: float
    head_us: float
    timer: Literal["cupti", "events"] = "cupti"
    telemetry: tuple[Mapping[str, Any], ...] = ()
    described: Described | str = ()  # both launches, or why they are missing
    not_apart: str = ""  # why host code ran in the process that measured


@dataclass(frozen=True)
class LaunchFailed:
    """A launch that gave no times. `failure` is a sentence."""

    failure: str
    is_of_head: bool  # whether only the head failed
    is_final: bool  # False after a fault: the next launch may succeed


LaunchResult = Launched | LaunchFailed


class PairBench:
    """Times pairs of cubins, and finds the fastest config of a library. `gpu_s` counts the seconds on the GPU."""

    def __init__(
        self, gpu_index: int, arch: str, store_url: str, *, rounds: RoundCounts = COMPARED, may_use_events: bool = False
    ) -> None:
        """Selects a GPU, which must be free at the first timing."""
        self._index, self._arch = gpu_index, arch
        self._rounds, self._may_use_events = rounds, may_use_events
        self._gpu: device.Gpu | None = None
        self._libraries: tuple[Path, ...] = ()
        self._ahead: list[GpuProcesses] = []
        self._runs_host_code = False
        self._sides: dict[tuple[str, str, str], dict[str, Mapping[str, Any] | None]] = {}
        self._cubins = LocalCubins(store_url)
        self.gpu_s = 0.0

    def launch_each(self, works: Sequence[PairWork]) -> Iterator[tuple[PairWork, LaunchResult]]:
        """Launches each pair once, and yields the pair and the result. All pairs must have the same two libraries."""
        self._start_ahead((works[0].head.library, *works[0].others))
        groups = _group_by_base(works)
        described = [self._describe(group) for group in groups]
        child: GpuProcesses | None = None
        try:
            for place, (group, preparation) in enumerate(zip(groups, described, strict=True)):
                if isinstance(preparation, LaunchFailed):
                    yield from ((work, preparation) for work in group)
                    continue
                for tries_left in reversed(range(ROOM_TRIES)):
                    if child is None or not child.alive:
                        child = self._take_process()
                        if place + 1 < len(groups):  # one alone gets its inputs while its reference is computed
                            child.plan([each for each in described[place:] if isinstance(each, Preparation)])
                    result = self._launch(child, group, preparation)
                    if isinstance(result, LaunchFailed) or result[0].not_apart:
                        child.close()  # a fault may have destroyed its CUDA context, or host code changed its process
                    if not isinstance(result, LaunchFailed) or NO_ROOM not in result.failure.lower() or not tries_left:
                        break
                    time.sleep(ROOM_WAIT_S)
                    described[place] = preparation = replace(preparation, seed=draw_seed())
                if not isinstance(result, LaunchFailed):
                    yield from zip(group, result, strict=True)
                elif len(group) == 1:
                    yield group[0], result
                else:
                    for work in group:  # the other heads may give times
                        yield from self.launch_each([work])
        finally:
            if child is not None:
                child.close()

    def race(
        self, library: Path, kernel: str, problem: str, store_url: str, cubins: Sequence[Cubin]
    ) -> tuple[Params, ...]:
        """Times a kernel's configs. Returns the fastest config and all that tie with it, or () if none is correct."""
        configs = tuple(each.config for each in cubins)  # otherwise only the short list is prepared
        setup = GpuSetup(library, kernel, problem, store_url, configs=configs, environment=self._environment)
        try:
            child = GpuChild(setup)
        except SweepFailed as error:
            raise MeasureFailed(str(error)) from None
        try:
            return sweep(child, cubins, on_trial=lambda _: None).tie
        except (SweepFailed, ChildDied, ChildHung) as error:
            raise MeasureFailed(f"racing {kernel} on {problem} stopped: {error}") from None
        finally:
            child.close()
            self.gpu_s += child.gpu_s

    def close(self) -> None:
        """Ends the processes that were started ahead."""
        while self._ahead:
            self._ahead.pop().close()
        self._cubins.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _environment(self) -> dict[str, str]:
        return {"CUDA_VISIBLE_DEVICES": self.find_gpu().uuid}

    def find_gpu(self) -> device.Gpu:
        """Returns the GPU. Raises GpuMissing or GpuBusy."""
        if self._gpu is None:  # checked once, because later our own processes use the GPU
            self._gpu = usable_gpu(self._index, self._arch)
        return self._gpu

    def _start_ahead(self, libraries: tuple[Path, ...]) -> None:
        """Starts the processes of the next launches early, because importing libraries takes seconds."""
        if libraries != self._libraries:
            while self._ahead:
                self._ahead.pop().close()
            self._libraries, self._runs_host_code, self._sides = libraries, False, {}
        while len(self._ahead) <= MOST_AHEAD:
            library, *others = libraries
            started = GpuProcesses(library, environment=self._environment, others=others)
            if self._runs_host_code:
                started.start_sides()
            self._ahead.append(started)

    def _take_process(self) -> GpuProcesses:
        self._start_ahead(self._libraries)
        return self._ahead.pop(0)

    def _describe(self, group: Sequence[PairWork]) -> Preparation | LaunchFailed:
        """Returns a new preparation for one launch of pairs that share a base, or a LaunchFailed."""
        # Each launch has new inputs, so that no difference depends on one set.
        work, configs = group[0], tuple(side.cubin.config for side in _list_sides(group))
        preparation = Preparation(work.head.library, work.kernel, work.problem, self._cubins.url, configs=configs)
        key = (work.kernel, work.problem, repr(configs))
        try:
            if key not in self._sides:
                self._sides[key] = {
                    str(each): describe_side(
                        replace(preparation, library=each), self._environment, deadline_s=PREPARE_DEADLINE_S
                    )
                    for each in work.others
                }
        except (ChildDied, ChildHung) as error:
            return LaunchFailed(f"the base could not be described: {error}", is_of_head=False, is_final=False)
        except BadDescription as error:
            return LaunchFailed(str(error), is_of_head=False, is_final=True)
        sides = self._sides[key]
        if WATCHED in sides.values():
            self._runs_host_code = True
            for each in self._ahead:
                each.start_sides()
        return replace(preparation, sides={name: None if each is WATCHED else each for name, each in sides.items()})

    def _launch(
        self, child: GpuProcesses, group: Sequence[PairWork], preparation: Preparation
    ) -> tuple[Launched, ...] | LaunchFailed:
        """Times the base and all heads of a group in alternation. Returns the result of each pair."""
        work, sides, is_of_head = group[0], _list_sides(group), False
        started, without_gpu_s = time.monotonic(), 0.0
        try:
            introduction = child.prepare(preparation, deadline_s=PREPARE_DEADLINE_S)
            without_gpu_s = sum(introduction.get(each, 0.0) for each in WITHOUT_GPU)
            if introduction["timer"] != "cupti" and not self._may_use_events:
                raise NoCupti(NO_CUPTI)
            round_us = 0.0
            for identity, side in enumerate(sides):
                is_of_head = identity != BASE
                self._cubins.fetch(side.cubin.content_key)
                answer = child.ask(_request_trial(identity, side), deadline_s=TRIAL_DEADLINE_S)
                introduction = answer.get("introduction", introduction)  # another process may measure from now on
                if answer["status"] != "timed":
                    failure = f"{WHO[min(identity, HEAD)]}{FATES[answer['status']]}: {answer['failure']}"
                    return LaunchFailed(failure, is_of_head, is_final=answer["status"] != "crashed")
                round_us += min(answer["samples_us"])
            is_of_head = False  # all sides run from here on
            fill_us = self._rounds.fill_us * len(sides) / 2
            rounds = max(self._rounds.least, min(self._rounds.most, int(fill_us / round_us)))
            for count in (self._rounds.warm_up, rounds):
                asked = {"ask": "rounds", "ids": [*range(len(sides))], "names": [], "seed": work.launches}
                asked |= {"rounds": count, "as_graph": work.metric == "graph"}
                answer = child.ask(asked, deadline_s=ROUNDS_DEADLINE_S)
                if "wrong" in answer:
                    wrong = answer.get("id")
                    who = WHO[None if wrong is None else min(wrong, HEAD)]
                    is_of_head = wrong is not None and wrong != BASE
                    return LaunchFailed(f"{who}{FATES['wrong']}: {answer['wrong']}", is_of_head, is_final=True)
                if "no_graph" in answer:
                    return LaunchFailed(f"no CUDA graph: {answer['no_graph']}", is_of_head=False, is_final=True)
            described = _describe_launches(child, work) if work.describes else ""
        except (ChildDied, ChildHung) as error:
            who = f"{WITH_HEAD}ends its" if is_of_head else "something ended the"
            return LaunchFailed(f"{who} GPU process: {error}", is_of_head, is_final=False)
        except BadDescription as error:
            return LaunchFailed(str(error), is_of_head=False, is_final=True)
        finally:
            self.gpu_s += time.monotonic() - started - without_gpu_s
        measured = answer["samples_us" if work.metric == "time" else "spans_us"]
        base_us, *heads_us = (median_interval(measured[side]).median for side in range(len(sides)))
        telemetry, not_apart = tuple(answer["telemetry"]), describe_not_apart(introduction)
        return tuple(
            Launched(base_us, head_us, introduction["timer"], telemetry, described, not_apart) for head_us in heads_us
        )


def _group_by_base(works: Sequence[PairWork]) -> list[list[PairWork]]:
    """Returns the pairs in groups that are launched together: neighbours with the same base but other labels."""
    groups: list[list[PairWork]] = []
    for work in works:
        if groups and _can_share(groups[-1], work):
            groups[-1].append(work)
        else:
            groups.append([work])
    return groups


def _can_share(group: Sequence[PairWork], work: PairWork) -> bool:
    if work.describes or any(each.describes or each.label == work.label for each in group):
        return False
    first = group[0]
    same_head = ReplaySide(first.head.library, work.head.cubin)
    return replace(first, head=same_head, label=work.label, launches=work.launches) == work


def _list_sides(group: Sequence[PairWork]) -> tuple[ReplaySide, ...]:
    """Returns the common base of the pairs, and then their heads."""
    return (group[0].base, *(work.head for work in group))


def describe_not_apart(introduction: Mapping[str, Any]) -> str:
    """Returns why host code ran in the measuring process, or "" if it ran in another process."""
    if introduction.get("library_runs_apart", True):
        return ""
    return str(introduction.get("stated") or introduction.get("not_apart"))


def _describe_launches(child: GpuProcesses, work: PairWork) -> Described | str:
    requests = [_request_trial(identity, side) for identity, side in ((BASE, work.base), (HEAD, work.head))]
    return describe(partial(child.ask, deadline_s=TRIAL_DEADLINE_S), requests)


def _request_trial(identity: int, side: ReplaySide) -> dict[str, Any]:
    return {**trial_request(identity, side.cubin, CHECK_SAMPLES), "library": str(side.library)}
