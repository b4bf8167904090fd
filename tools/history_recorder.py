"""Measures the series of tools/record_history.py on this machine's GPU, and writes them into a recording."""

import datetime as dt
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tilewatch.configs import config_key
from tilewatch.kernels import device
from tilewatch.kernels.checklist.of_winner import add_checklist
from tilewatch.kernels.measuring.known_counters import Counted, read_counted
from tilewatch.kernels.measuring.measure import MeasureRequest, UncountedRun, count_run, measure_uncounted
from tilewatch.kernels.measuring.pair_bench import ReplaySide
from tilewatch.kernels.measuring.profiler import Profiler
from tilewatch.kernels.measuring.profiling import count_several, start_profiler
from tilewatch.kernels.measuring.replay import ReplayFailed, ReplayRequest, ReplayResult, replay
from tilewatch.kernels.recording import recording_file
from tilewatch.kernels.recording.git_commit import GitCommit
from tilewatch.kernels.recording.recorded_run import list_rows
from tilewatch.kernels.results import Compiled, Cubin, Measured, Params, Plan, RunResult
from tools.recorded_replay import NOT_HELD, ReplayedSide, replay_row


@dataclass
class Version:
    """One series at one commit. `outcomes` are the results of its trials, in order; they are there once `is_compiled`
    is set."""

    commit: GitCommit
    library: Path
    plan: Plan
    outcomes: list[Compiled | None] = field(default_factory=list)
    is_compiled: threading.Event = field(default_factory=threading.Event)

    @property
    def name(self) -> str:
        return f"{self.plan.kernel} {self.plan.problem}"

    @property
    def code(self) -> tuple[object, ...]:
        """Returns a value by which two versions can be compared: it is equal if code and configs are equal."""
        trials = zip(self.plan.trials, self.outcomes, strict=True)
        return tuple((json.dumps(dict(trial.config)), each and each.content_key) for trial, each in trials)

    def list_cubins(self) -> list[Cubin]:
        trials = zip(self.plan.trials, self.outcomes, strict=True)
        found = (None if each is None else each.find_cubin(trial.config) for trial, each in trials)
        return [cubin for cubin in found if cubin is not None]

    def find_side(self, config: Params) -> tuple[ReplayedSide, ReplaySide] | None:
        """Returns the config as one side of a replay; None if it did not compile at this commit."""
        cubin = next((each for each in self.list_cubins() if config_key(each.config) == config_key(config)), None)
        if cubin is None:
            return None
        compiled = next(each for each in self.outcomes if each is not None and each.content_key == cubin.content_key)
        return ReplayedSide(self.commit, config, compiled), ReplaySide(self.library, cubin)


WRITE_EVERY_S = 15.0
"""Seconds between writes of the file, which is written whole each time: 0.75 s of CPU time for the 13,815 rows of a
night (2 cores, 2026-11-23)."""

COUNTED_TOGETHER = 8
"""Number of series whose counters one start of Nsight Compute reads, because a start takes 2 s. If the machine is taken
away, the counters of up to this many series are lost (H100, 2026-11-26)."""


@dataclass(frozen=True)
class _Uncounted:
    version: Version
    request: MeasureRequest
    run: UncountedRun


@dataclass
class Recorder:
    """Measures on one GPU and writes the runs to one file. `launches` is the number of launches of a replay. At the end
    of its `with` statement it reads the remaining counters and writes the file."""

    gpu: device.Gpu
    model: device.GpuSpec
    store_url: str
    out: Path
    launches: int
    _rows: list[Mapping[str, Any]] = field(default_factory=list)
    _header: recording_file.Header | None = None
    _written_at: float = float("-inf")
    _counted: dict[str, Counted] = field(default_factory=dict)
    _uncounted: list[_Uncounted] = field(default_factory=list)
    _profiler: Profiler | None = None
    """A started profiler that waits for launches while earlier series are measured. It does not use the GPU
    meanwhile."""
    _writer: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    """A thread that reads machine code and writes rows while the next series is measured, which takes 0.5 s per series
    (H100, 2026-11-25)."""
    _written: list[Future[None]] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._count()
        self._writer.shutdown()
        self._write()
        for each in self._written:
            each.result()

    @property
    def host(self) -> str:
        """Returns a name for the physical GPU. Borrowed machines have equal host names, and series of two GPUs must not
        be taken for one host's."""
        return f"{self.model.slug}-{self.gpu.uuid.removeprefix('GPU-')[:8]}"

    def measure(self, version: Version) -> Params | None:
        """Measures a series at a commit and returns the winning config; None if no config was right."""
        plan = version.plan
        request = MeasureRequest(
            version.library, plan.kernel, plan.problem, plan.arch, self.store_url, version.list_cubins(),
            self.gpu.index, plan.baselines, ships=plan.ships, host=self.host,
        )  # fmt: skip
        began = time.monotonic()
        self._profiler = self._profiler or start_profiler(self.gpu.uuid)
        run = measure_uncounted(request)
        self._uncounted.append(_Uncounted(version, request, run))
        ours = _find_own(run.result)
        median_us = sorted(ours.samples_us)[len(ours.samples_us) // 2] if ours else None
        failures = {trial.failure for trial in run.result.trials if trial.status != "timed"}
        if not run.result.trials:
            failures = {each.failure for each in version.outcomes if each is not None and each.failure}
        took = time.monotonic() - began
        print(f"{version.commit.sha[:8]} {version.name}: {median_us} us, {took:.1f} s {failures or ''}", flush=True)
        if len(self._uncounted) == COUNTED_TOGETHER:
            self._count()
        return run.result.winner

    def _count(self) -> None:
        """Reads the counters of the runs that have none yet, and writes the runs."""
        if self._profiler is None:
            return
        uncounted, began = self._uncounted, time.monotonic()
        with ExitStack() as opened:
            profiler = opened.enter_context(self._profiler)
            self._uncounted, self._profiler = [], None
            runs = [each.run.described for each in uncounted]
            known = {
                **self._counted,
                **count_several(runs, store_url=self.store_url, gpu=self.gpu, known=self._counted, profiler=profiler),
            }
            for each in uncounted:
                self._write_run(each, known, lambda: opened.enter_context(start_profiler(self.gpu.uuid)))
        print(f"counters of {len(uncounted)} series, {time.monotonic() - began:.1f} s", flush=True)

    def _write_run(self, uncounted: _Uncounted, known: Mapping[str, Counted], start: Callable[[], Profiler]) -> None:
        version, request = uncounted.version, uncounted.request
        result = count_run(uncounted.run, self.store_url, self.gpu, known, start)
        ours = _find_own(result)
        if ours is not None:
            self._counted |= read_counted(ours.detail, result.finished_at)
        outcomes = [(trial, each) for trial, each in zip(version.plan.trials, version.outcomes, strict=True) if each]

        def write() -> None:
            checked = add_checklist(result, request, request.cubins)
            self._add(version, list_rows(version.plan, version.commit, self.model, outcomes, checked))

        self._written.append(self._writer.submit(write))

    def replay(self, good: Version, bad: Version, good_config: Params, bad_config: Params) -> None:
        """Replays the winners of two commits. If their machine code is equal, or if they cannot be replayed, that fact
        is written. An error ended the series until 2026-12-01."""
        before, after = good.find_side(good_config), bad.find_side(bad_config)
        if before is None or after is None:
            return
        (good_side, replayed_good), (bad_side, replayed_bad) = before, after
        plan = bad.plan
        outcome: ReplayResult | str = NOT_HELD
        if good_side.compiled.code_sha256 != bad_side.compiled.code_sha256:
            request = ReplayRequest(
                plan.kernel, plan.problem, plan.arch, self.store_url, replayed_good, replayed_bad, self.launches,
                self.gpu.index, self.host,
            )  # fmt: skip
            try:
                outcome = replay(request, on_launch=lambda _: None)
            except ReplayFailed as error:
                outcome = str(error)
        print(f"{good.commit.sha[:8]} and {bad.commit.sha[:8]} {bad.name}: {_describe(outcome)}", flush=True)
        row = replay_row(plan, self.model, good_side, bad_side, dt.datetime.now(dt.UTC), outcome)
        self._written.append(self._writer.submit(self._add, bad, [row]))

    def _add(self, version: Version, rows: Iterable[Mapping[str, Any]]) -> None:
        """Adds rows, and writes the file every WRITE_EVERY_S seconds, so that the measurements remain if the machine is
        taken away."""
        self._rows += recording_file.renumber(self._rows, rows)
        machine, repository = f"{self.host}, {self.gpu.name}", version.commit.repository
        self._header = recording_file.Header(machine, recording_file.now(), repository, "tilewatch history")
        if time.monotonic() - self._written_at > WRITE_EVERY_S:
            self._write()

    def _write(self) -> None:
        if self._header is not None:
            recording_file.write(self.out, self._header, self._rows)
        self._written_at = time.monotonic()


def measure_series(recorder: Recorder, versions: Sequence[Version], stop_at: float) -> None:
    """Measures a series at its first commit, at each commit that changes its code, and at its last. Each change is
    replayed. Commits that left the machine code unchanged are only recorded as such.

    Starts nothing after `stop_at`, in seconds of time.monotonic()."""
    won: Params | None = None
    for number, version in enumerate(versions):
        before = versions[number - 1] if number else None
        if before is not None and before.code == version.code and version is not versions[-1]:
            if won is not None:
                recorder.replay(before, version, won, won)
            continue
        if time.monotonic() > stop_at:
            print(f"{version.commit.sha[:8]} {version.name}: no time is left", flush=True)
            return
        now = recorder.measure(version)
        if before is not None and won is not None and now is not None:
            recorder.replay(before, version, won, now)
        won = now


def _find_own(result: RunResult) -> Measured | None:
    return next((each for each in result.measurements if each.role == "kernel"), None)


def _describe(outcome: ReplayResult | str) -> str:
    if isinstance(outcome, str):
        return outcome
    pairs = zip(outcome.base_us, outcome.head_us, strict=True)
    return " ".join(f"{bad / good - 1:+.2%}" for good, bad in pairs)
