"""Times many pairs of cubins on one GPU, each pair once per fresh process.

A process times one pair after the other, so that its start and its CUDA context (about half of a launch, H200, 2026-11)
are paid once for PAIRS_AT_ONCE pairs, and so are those of the library's process, which computes all references before
the first pair is launched. For each pair it is still one fresh process per launch: it prepares the problem with new
inputs, checks both sides against the reference and times them in turns, as kernels/measuring/replay.py does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from tilewatch.kernels import device
from tilewatch.kernels.children.child_process import ChildDied, ChildHung
from tilewatch.kernels.comparing.gpu_bench import NO_CUPTI, NoCupti
from tilewatch.kernels.measuring.description_schema import BadDescription
from tilewatch.kernels.measuring.gpu_processes import GpuProcesses
from tilewatch.kernels.measuring.preparation import Preparation
from tilewatch.kernels.measuring.replay import BASE, CHECK_SAMPLES, HEAD, ProcessesAhead
from tilewatch.kernels.measuring.sweep import (
    PREPARE_DEADLINE_S,
    TRIAL_DEADLINE_S,
    trial_request,
)
from tilewatch.kernels.results import Cubin
from tilewatch.kernels.statistics import median_interval

PAIRS_AT_ONCE = 16
"""Pairs of one process. A process that dies costs the pair that killed it, and the start of another."""

MOST_ROUNDS, LEAST_ROUNDS = 40, 12
ROUNDS_US = 40_000.0
WARM_UP_ROUNDS = 4
"""Rounds of a launch: so many as fill ROUNDS_US. They are fewer than a replay's, since launches differ by more than a
median of them is uncertain, and more launches say more than longer ones. A pass over the 82 problems takes 21 s of
kernels and rests with these, and 69 s with a replay's (times of recordings/h200.jsonl.gz)."""

ROUNDS_DEADLINE_S = 60.0

FATES = {
    "wrong": "gives wrong results",
    "launch_error": "cannot be launched",
    "crashed": "faults on the GPU",
}
"""What became of a side that cannot be timed, by the status of its trial."""


@dataclass(frozen=True)
class PairWork:
    """Two cubins to time beside each other. `launches` is how many there were before."""

    kernel: str
    problem: str
    a: Cubin
    b: Cubin
    launches: int = 0


@dataclass(frozen=True)
class Launched:
    a_us: float
    b_us: float


@dataclass(frozen=True)
class LaunchFailed:
    """A launch that gave no times. `failure` goes on from "with B it" where B's side failed (`is_of_b`), else it stands
    alone. `is_final` is False where the process died, which may not happen again."""

    failure: str
    is_of_b: bool
    is_final: bool


LaunchResult = Launched | LaunchFailed


class PairBench(Protocol):
    """A GPU that times pairs."""

    def launch_each(self, works: Sequence[PairWork]) -> Iterator[tuple[PairWork, LaunchResult]]:
        """Times each pair once, in one fresh process as long as that lives. Timing stops when the caller stops
        iterating."""


class GpuPairBench:
    """This machine's GPU."""

    def __init__(self, library: Path, gpu: device.Gpu, store_url: str, *, may_use_events: bool = False) -> None:
        """`gpu` is free: later, its processes are our own."""
        self._library, self._store_url, self._may_use_events = library, store_url, may_use_events
        self._processes = ProcessesAhead(library, gpu)

    def launch_each(self, works: Sequence[PairWork]) -> Iterator[tuple[PairWork, LaunchResult]]:
        child: GpuProcesses | None = None
        try:
            preparations = [self._describe(each) for each in works]
            for place, work in enumerate(works):
                if child is None or not child.alive:
                    child = self._processes.take()
                    child.plan(preparations[place:])
                result = self._launch(child, work, preparations[place])
                if isinstance(result, LaunchFailed):
                    child.close()  # a fault may have ended its context
                yield work, result
        finally:
            if child is not None:
                child.close()

    def close(self) -> None:
        self._processes.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _describe(self, work: PairWork) -> Preparation:
        configs = (work.a.config, work.b.config)
        return Preparation(self._library, work.kernel, work.problem, self._store_url, configs=configs)

    def _launch(self, child: GpuProcesses, work: PairWork, preparation: Preparation) -> LaunchResult:
        is_of_b = False
        try:
            introduction = child.prepare(preparation, deadline_s=PREPARE_DEADLINE_S)
            if introduction["timer"] != "cupti" and not self._may_use_events:
                raise NoCupti(NO_CUPTI)
            round_us = 0.0
            for identity, cubin in ((BASE, work.a), (HEAD, work.b)):
                is_of_b = identity == HEAD
                answer = child.ask(trial_request(identity, cubin, CHECK_SAMPLES), deadline_s=TRIAL_DEADLINE_S)
                if answer["status"] != "timed":
                    failure = f"{'' if is_of_b else 'with A it '}{FATES[answer['status']]}: {answer['failure']}"
                    return LaunchFailed(failure, is_of_b, is_final=answer["status"] != "crashed")
                round_us += min(answer["samples_us"])
            is_of_b = False  # both run from here on
            asked: dict[str, Any] = {"ask": "rounds", "ids": [BASE, HEAD], "names": [], "seed": work.launches}
            child.ask({**asked, "rounds": WARM_UP_ROUNDS}, deadline_s=ROUNDS_DEADLINE_S)
            rounds = max(LEAST_ROUNDS, min(MOST_ROUNDS, int(ROUNDS_US / round_us)))
            answer = child.ask({**asked, "rounds": rounds}, deadline_s=ROUNDS_DEADLINE_S)
            if "wrong" in answer:
                return LaunchFailed(f"one side is wrong: {answer['wrong']}", is_of_b=False, is_final=True)
            samples = answer["samples_us"]
        except (ChildDied, ChildHung) as error:
            who = "ends its" if is_of_b else "something ended the"
            return LaunchFailed(f"{who} GPU process: {error}", is_of_b, is_final=False)
        except BadDescription as error:
            return LaunchFailed(str(error), is_of_b=False, is_final=True)
        a_us, b_us = (median_interval(samples[identity]).median for identity in (BASE, HEAD))
        return Launched(a_us, b_us)
