"""Times many pairs of cubins on one GPU, one new process per launch of a pair.

A process times PAIRS_AT_ONCE pairs one after the other, which share its start and its CUDA context (about half of a
launch, H200, 2026-11). They also share the library process, which computes all references before the first launch. Each
pair is still launched once per process: it gets new inputs, both sides are checked against the reference, and both are
timed in turns, as in kernels/measuring/replay.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from tilewatch.kernels import device
from tilewatch.kernels.children.child_process import ChildDied, ChildHung
from tilewatch.kernels.comparing.gpu_bench import NO_CUPTI, NoCupti
from tilewatch.kernels.measuring.description_schema import BadDescription
from tilewatch.kernels.measuring.gpu_processes import GpuProcesses
from tilewatch.kernels.measuring.preparation import Preparation
from tilewatch.kernels.measuring.replay import BASE, CHECK_SAMPLES, HEAD, ProcessesAhead
from tilewatch.kernels.measuring.sweep import PREPARE_DEADLINE_S, TRIAL_DEADLINE_S, trial_request
from tilewatch.kernels.results import Cubin
from tilewatch.kernels.statistics import median_interval

PAIRS_AT_ONCE = 16
"""Most pairs of one process. If it dies, the pair that killed it has no time, and another process starts."""

MOST_ROUNDS, LEAST_ROUNDS = 40, 12
ROUNDS_US = 40_000.0
WARM_UP_ROUNDS = 4
"""Rounds of a launch: as many as fill ROUNDS_US within these limits. They are fewer than a replay's: launches vary more
than a median of few rounds is uncertain, so more launches tell more than longer ones. A pass over the 82 problems takes
21 s of kernels and rests with these, 69 s with a replay's (times of recordings/h200.jsonl.gz)."""

ROUNDS_DEADLINE_S = 60.0

FATES = {"wrong": "gives wrong results", "launch_error": "cannot be launched", "crashed": "faults on the GPU"}
"""Describes a side that cannot be timed, by the status of its trial."""


@dataclass(frozen=True)
class PairWork:
    """Two cubins to time beside each other. `launches` is the number of earlier launches."""

    kernel: str
    problem: str
    base: Cubin
    head: Cubin
    launches: int = 0


@dataclass(frozen=True)
class Launched:
    base_us: float
    head_us: float


@dataclass(frozen=True)
class LaunchFailed:
    """A launch without times. `failure` continues "with the head it" if the head failed (`is_of_head`), else it stands
    alone. `is_final` is False if the process died, which may not happen again."""

    failure: str
    is_of_head: bool
    is_final: bool


LaunchResult = Launched | LaunchFailed


class PairBench(Protocol):
    """Times pairs on a GPU."""

    def launch_each(self, works: Sequence[PairWork]) -> Iterator[tuple[PairWork, LaunchResult]]:
        """Times each pair once, all in one new process; it is replaced if it dies. Stops when iteration stops."""


class GpuPairBench:
    """Times pairs on this machine's GPU."""

    def __init__(self, library: Path, gpu: device.Gpu, store_url: str, *, may_use_events: bool = False) -> None:
        """Prepares to time on `gpu`, which must be free. It is not checked later, when our own processes use it."""
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
                    child.close()  # a fault may have destroyed its CUDA context
                yield work, result
        finally:
            if child is not None:
                child.close()

    def close(self) -> None:
        self._processes.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _describe(self, work: PairWork) -> Preparation:
        configs = (work.base.config, work.head.config)
        return Preparation(self._library, work.kernel, work.problem, self._store_url, configs=configs)

    def _launch(self, child: GpuProcesses, work: PairWork, preparation: Preparation) -> LaunchResult:
        is_of_head = False
        try:
            introduction = child.prepare(preparation, deadline_s=PREPARE_DEADLINE_S)
            if introduction["timer"] != "cupti" and not self._may_use_events:
                raise NoCupti(NO_CUPTI)
            round_us = 0.0
            for identity, cubin in ((BASE, work.base), (HEAD, work.head)):
                is_of_head = identity == HEAD
                answer = child.ask(trial_request(identity, cubin, CHECK_SAMPLES), deadline_s=TRIAL_DEADLINE_S)
                if answer["status"] != "timed":
                    failure = (
                        f"{'' if is_of_head else 'with the base it '}{FATES[answer['status']]}: {answer['failure']}"
                    )
                    return LaunchFailed(failure, is_of_head, is_final=answer["status"] != "crashed")
                round_us += min(answer["samples_us"])
            is_of_head = False  # both sides run from here on
            asked: dict[str, Any] = {"ask": "rounds", "ids": [BASE, HEAD], "names": [], "seed": work.launches}
            child.ask({**asked, "rounds": WARM_UP_ROUNDS}, deadline_s=ROUNDS_DEADLINE_S)
            rounds = max(LEAST_ROUNDS, min(MOST_ROUNDS, int(ROUNDS_US / round_us)))
            answer = child.ask({**asked, "rounds": rounds}, deadline_s=ROUNDS_DEADLINE_S)
            if "wrong" in answer:
                return LaunchFailed(f"one side is wrong: {answer['wrong']}", is_of_head=False, is_final=True)
            samples = answer["samples_us"]
        except (ChildDied, ChildHung) as error:
            who = "ends its" if is_of_head else "something ended the"
            return LaunchFailed(f"{who} GPU process: {error}", is_of_head, is_final=False)
        except BadDescription as error:
            return LaunchFailed(str(error), is_of_head=False, is_final=True)
        base_us, head_us = (median_interval(samples[identity]).median for identity in (BASE, HEAD))
        return Launched(base_us, head_us)
