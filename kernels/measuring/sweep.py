"""Sweeps a search space on one GPU: checks and times every config, drops slow configs, and times the fastest again."""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from tilewatch.configs import config_key
from tilewatch.errors import ExpectedError
from tilewatch.kernels.children.child_process import ChildDied, ChildHung
from tilewatch.kernels.compiling.local_cubins import LocalCubins
from tilewatch.kernels.gpu.host_code.described_run import Described, read_described
from tilewatch.kernels.measuring.description_schema import BadDescription
from tilewatch.kernels.measuring.gpu_processes import WITHOUT_GPU, GpuProcesses
from tilewatch.kernels.measuring.preparation import Preparation, draw_seed
from tilewatch.kernels.measuring.racing import RacePolicy, count_affordable, ranking, still_in
from tilewatch.kernels.results import Cubin, Params, TrialResult
from tilewatch.kernels.statistics import median_interval

TRIAL_DEADLINE_S = 20.0
"""Deadline of one trial in seconds. A correct config takes milliseconds; a hang must not take the night."""

NEXT_DEADLINE_S = 5.0
"""Least deadline in seconds of a trial after another config has answered. Eight configs of one kernel never end. With
20 s each, they kept all other series of a night off a GPU for 160 s (H200, 2026-11-29)."""

PREPARE_DEADLINE_S = 300.0

NO_ROOM = "out of memory"
ROOM_TRIES, ROOM_WAIT_S = 6, 10.0
"""If the GPU has no room for a problem, it is prepared again after ROOM_WAIT_S, in ROOM_TRIES tries at most. By then,
other series of the worker that were prepared beside it have measured and freed their memory."""

MOST_RACES = 3
"""Most races of one sweep. A finalist that turns out to be wrong may have beaten right configs with false times, so all
other configs then race again."""

OnTrial = Callable[[TrialResult], None]


class SweepFailed(ExpectedError):
    """Raised if the GPU process fails, but not because of a config."""


class WrongOutput(SweepFailed):
    """Raised if a timed launch gives a wrong result. `identity` is None if several configs may be the reason."""

    def __init__(self, sentence: str, identity: int | None) -> None:
        super().__init__(sentence)
        self.identity = identity


@dataclass(frozen=True)
class GpuSetup(Preparation):
    """A problem to prepare in a GPU process. Packages in the folder `packages` replace installed packages."""

    environment: dict[str, str] = field(default_factory=dict)
    packages: Path | None = None


@dataclass(frozen=True)
class SweepResult:
    winner: Params | None
    tie: tuple[Params, ...]
    trials: tuple[TrialResult, ...]


class GpuChild:
    """A prepared GPU process, which is replaced when it dies."""

    def __init__(self, setup: GpuSetup, spawn: Callable[[], GpuProcesses] | None = None) -> None:
        """Starts new processes, with `spawn` if given, and prepares the problem."""
        self._setup = setup
        self._spawn = spawn or partial(
            GpuProcesses, setup.library, environment=setup.environment, packages=setup.packages
        )
        self._child: GpuProcesses | None = None
        self._checked: dict[int, Cubin] = {}
        self._loaded: set[int] = set()
        self._cubins = LocalCubins(setup.store_url)
        self.gpu_s = 0.0
        self.spent_s: defaultdict[str, float] = defaultdict(float)
        """Maps each kind of request to the seconds spent on its requests."""
        self._longest_s: float | None = None
        self.introduction: dict[str, Any] = {}
        self._start()

    def ask(self, request: dict[str, Any], deadline_s: float = TRIAL_DEADLINE_S) -> dict[str, Any]:
        """Sends a request, and returns the answer. The next request after ChildDied or ChildHung starts a new child."""
        if self._child is None or not self._child.alive:
            self._restart()
        assert self._child is not None
        if "content_key" in request:
            self._cubins.fetch(request["content_key"])
        started = time.monotonic()
        try:
            answer = self._child.ask(request, deadline_s=deadline_s)
        finally:
            self.gpu_s += time.monotonic() - started
            self.spent_s[request["ask"]] += time.monotonic() - started
        if "wrong" in answer:
            raise WrongOutput(answer["wrong"], answer.get("id"))
        if "introduction" in answer:  # another process measures from now on, also after a restart
            self.introduction = answer.pop("introduction")
            self._setup = replace(self._setup, by_library=self.introduction["not_apart"])
        return answer

    def trial(self, identity: int, cubin: Cubin, samples: int, best_us: float | None = None) -> TrialResult:
        """Checks and times one config. A config much slower than `best_us` gets a single sample."""
        deadline_s = find_deadline_s(self._longest_s)
        spent_s = self.spent_s["trial"]
        try:
            answer = self.ask(trial_request(identity, cubin, samples, best_us), deadline_s)
        except ChildHung:
            return TrialResult(cubin.config, "hung", failure=f"no answer within {deadline_s:g} s")
        except ChildDied as died:
            return TrialResult(cubin.config, "crashed", failure=f"the GPU process died: {died}")
        self._longest_s = max(self._longest_s or 0.0, self.spent_s["trial"] - spent_s)
        if answer["status"] == "crashed":
            self.close()  # the fault destroyed its CUDA context
        if answer["status"] != "timed":
            return TrialResult(cubin.config, answer["status"], error=answer.get("error"), failure=answer["failure"])
        self.adopt(identity, cubin)
        self._loaded.add(identity)
        timed = tuple(answer["samples_us"])
        return TrialResult(cubin.config, "timed", timed, median_interval(timed).median, answer["error"])

    def forget(self, identity: int) -> None:
        """Removes a config that killed the process, so that the sweep times it no more."""
        self._checked.pop(identity, None)
        self.close()

    def adopt(self, identity: int, cubin: Cubin) -> None:
        """Marks a config as checked and correct, for example by an interrupted sweep."""
        self._checked[identity] = cubin

    def time(self, ids: Sequence[int], samples: int, deadline_s: float) -> dict[int, tuple[float, ...]]:
        """Returns samples of checked configs in microseconds. Raises ChildDied, ChildHung or WrongOutput."""
        if self._child is None or not self._child.alive:
            self._restart()
        for each in ids:
            if each not in self._loaded:
                self.ask({**_make_request(each, self._checked[each]), "ask": "load"})
                self._loaded.add(each)
        answer = self.ask({"ask": "time", "ids": list(ids), "samples": samples}, deadline_s)
        return {each: tuple(times) for each, times in zip(ids, answer["samples_us"], strict=True)}

    def load(self, identity: int) -> None:
        """Loads a checked config, so that it can be timed in rounds."""
        self.time([identity], 1, TRIAL_DEADLINE_S)

    def describe(self, identities: Sequence[int]) -> Described | str:
        """Returns the launches of checked configs for a profiler, or why one cannot be described."""
        return describe(self.ask, [_make_request(each, self._checked[each]) for each in identities])

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None
        self._cubins.close()

    @property
    def seed(self) -> int:
        """Returns the seed of the current inputs."""
        return self._setup.seed

    def _restart(self) -> None:
        """Starts new processes with a new seed."""
        self._setup = replace(self._setup, seed=draw_seed())  # the old library process knows the old seed
        self._start()

    def _start(self) -> None:
        self._loaded = set()
        for tries_left in reversed(range(ROOM_TRIES)):
            self._child = self._spawn()
            try:
                self._prepare(self._child)
                return
            except (ChildDied, ChildHung, BadDescription) as error:
                self._child.close()
                if not tries_left or NO_ROOM not in str(error).lower():
                    self.close()
                    raise SweepFailed(f"the GPU process could not prepare {self._setup.problem}: {error}") from None
            time.sleep(ROOM_WAIT_S)
            self._setup = replace(self._setup, seed=draw_seed())

    def _prepare(self, child: GpuProcesses) -> None:
        preparation = replace(self._setup, store_url=self._cubins.url)
        started = time.monotonic()
        try:
            self.introduction = child.prepare(preparation, deadline_s=PREPARE_DEADLINE_S)
        finally:
            ahead_s, waited_s = (self.introduction.pop(name, 0.0) for name in WITHOUT_GPU)
            with_gpu_s = time.monotonic() - started - ahead_s - waited_s
            self.gpu_s += with_gpu_s
            self.spent_s["import"] += ahead_s
            self.spent_s["waiting"] += waited_s
            self.spent_s["prepare"] += with_gpu_s


def find_deadline_s(longest_s: float | None) -> float:
    """Returns the deadline of a trial in seconds. `longest_s` is the longest time of an earlier trial."""
    return TRIAL_DEADLINE_S if longest_s is None else min(TRIAL_DEADLINE_S, max(NEXT_DEADLINE_S, 20 * longest_s))


def describe(ask: Callable[[dict[str, Any]], dict[str, Any]], requests: Iterable[Mapping[str, Any]]) -> Described | str:
    """Returns the launches of each config for a profiler, or why one cannot be described."""
    found = []
    for each in requests:
        answer = ask({**each, "ask": "describe"})
        if "missing" in answer:
            return str(answer["missing"])
        found.append(read_described(answer["described"]))
    return found


def trial_request(identity: int, cubin: Cubin, samples: int, best_us: float | None = None) -> dict[str, Any]:
    """Returns a request to check and time one config. A config much slower than `best_us` is timed once."""
    return {**_make_request(identity, cubin), "ask": "trial", "samples": samples, "best_us": best_us}


def _make_request(identity: int, cubin: Cubin) -> dict[str, Any]:
    return {"id": identity, "config": dict(cubin.config), "content_key": cubin.content_key, "symbol": cubin.symbol}


def sweep(
    gpu: GpuChild,
    cubins: Iterable[Cubin],
    *,
    on_trial: OnTrial,
    earlier: Mapping[str, TrialResult] | None = None,
    policy: RacePolicy | None = None,
    floor_us: float = 0.0,
    drawn: Collection[str] = (),
) -> SweepResult:
    """Checks and times every config as its cubin arrives, drops slow configs, and times the fastest again.

    `earlier` has finished trials of a killed sweep. `on_trial` is called again for a trial that gets more samples.
    A median below `floor_us` counts as wrong. If a config in `drawn` hangs or crashes, no further config is tried."""
    policy, earlier = policy or RacePolicy(), earlier or {}
    trials: dict[int, TrialResult] = {}
    best_us: float | None = None
    for identity, cubin in enumerate(cubins):
        is_drawn = config_key(cubin.config) in drawn
        trial = earlier.get(config_key(cubin.config))
        if trial is None:
            trial = _refuse_impossible(gpu.trial(identity, cubin, policy.first, best_us), floor_us)
            on_trial(trial)
        elif trial.status == "timed":
            gpu.adopt(identity, cubin)
        trials[identity] = trial
        if is_drawn and trial.status in ("hung", "crashed"):
            break
        if trial.median_us is not None:
            best_us = min(trial.median_us, best_us or trial.median_us)
    return choose_winner(gpu, list(trials.values()), on_trial=on_trial, policy=policy)


def choose_winner(
    gpu: GpuChild, trials: Sequence[TrialResult], *, on_trial: OnTrial, policy: RacePolicy | None = None
) -> SweepResult:
    """Times the correct configs again, and returns the winner. Calls `on_trial` for each changed trial."""
    policy = policy or RacePolicy()
    raced: dict[int, TrialResult] = dict(enumerate(trials))
    fresh: dict[int, tuple[float, ...]] = {}
    for _ in range(MOST_RACES):
        raced = _race(gpu, raced, policy)
        ids = still_in(_list_samples(raced), policy)[: policy.finalists]
        fresh = _time_more(gpu, raced, ids, _count_affordable(raced, ids, policy.fresh, policy)) if ids else {}
        if len(fresh) == len(ids):
            break
    for identity, trial in raced.items():
        if trial is not trials[identity]:
            on_trial(trial)
    if not fresh:
        return SweepResult(None, (), tuple(raced.values()))
    winner, tied = ranking(fresh, policy)
    return SweepResult(raced[winner].config, tuple(raced[each].config for each in tied), tuple(raced.values()))


def _refuse_impossible(trial: TrialResult, floor_us: float) -> TrialResult:
    if trial.median_us is None or trial.median_us >= floor_us:
        return trial
    failure = (
        f"{trial.median_us:.2f} us is impossible: this GPU's Tensor Cores and memory need at least {floor_us:.2f} us "
        "for the operations and bytes that the kernel's file states, and for what it writes"
    )
    return TrialResult(trial.config, "wrong", error=trial.error, failure=failure)


def _race(gpu: GpuChild, trials: dict[int, TrialResult], policy: RacePolicy) -> dict[int, TrialResult]:
    raced = dict(trials)
    for wanted in policy.rounds:
        ids = still_in(_list_samples(raced), policy)
        if len(ids) < 2:
            break
        for identity, more in _time_more(gpu, raced, ids, _count_affordable(raced, ids, wanted, policy)).items():
            timed = raced[identity].samples_us + more
            raced[identity] = replace(raced[identity], samples_us=timed, median_us=median_interval(timed).median)
    return raced


def _count_affordable(trials: Mapping[int, TrialResult], ids: Sequence[int], wanted: int, policy: RacePolicy) -> int:
    return count_affordable(wanted, [trials[each].median_us or 0.0 for each in ids], policy)


def _list_samples(trials: dict[int, TrialResult]) -> dict[int, tuple[float, ...]]:
    return {each: trial.samples_us for each, trial in trials.items() if trial.status == "timed"}


def _time_more(
    gpu: GpuChild, trials: dict[int, TrialResult], ids: Sequence[int], samples: int
) -> dict[int, tuple[float, ...]]:
    """Returns samples in microseconds by config id. If a config fails, changes the config's trial in `trials`."""
    deadline = TRIAL_DEADLINE_S + samples * sum(trials[each].median_us or 0 for each in ids) * 1e-6 * 5
    try:
        return gpu.time(ids, samples, deadline)
    except WrongOutput:
        pass
    except (ChildDied, ChildHung):
        gpu.close()
    samples_us: dict[int, tuple[float, ...]] = {}
    for each in ids:
        try:
            samples_us.update(gpu.time([each], samples, deadline))
        except WrongOutput as error:
            trials[each] = TrialResult(trials[each].config, "wrong", failure=str(error))
        except (ChildDied, ChildHung) as error:
            gpu.forget(each)
            status: Literal["crashed", "hung"] = "hung" if isinstance(error, ChildHung) else "crashed"
            trials[each] = TrialResult(trials[each].config, status, failure=f"after its first samples: {error}")
    return samples_us
