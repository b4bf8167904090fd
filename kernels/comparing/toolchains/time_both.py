"""Times pairs on this machine's GPU to answer both questions (safety_verdict.py), frozen first, then re-tuned."""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.comparing.gpu_bench import RealBench
from tilewatch.kernels.comparing.targets import Library, Target
from tilewatch.kernels.comparing.toolchains.bench import GpuPairBench, PairBench, PairWork
from tilewatch.kernels.comparing.toolchains.compile_both import Workplace
from tilewatch.kernels.comparing.toolchains.pairs import CompiledSide, ToolchainPair
from tilewatch.kernels.comparing.toolchains.report_file import GpuKey, GpuUsed, ReportKeeper, ToolchainReport
from tilewatch.kernels.comparing.toolchains.report_verdict import judge_report, list_differing, make_family
from tilewatch.kernels.comparing.toolchains.retuning import Race, RecordedTimes, choose_space, retune_each
from tilewatch.kernels.comparing.toolchains.safety_verdict import Question, Timing
from tilewatch.kernels.comparing.toolchains.timing_order import Key, TimingRun
from tilewatch.kernels.device import Gpu, GpuSpec
from tilewatch.kernels.results import Cubin, Params

FROZEN_SHARE = 0.7
"""Share of the minutes after which re-tuning begins, even if frozen answers are still open."""


SAY_EVERY = 100
"""Launches between two lines of progress."""


@dataclass(frozen=True)
class GpuWanted:
    """Says what to time on which GPU. `minutes` is None without a limit."""

    gpu: Gpu
    model: GpuSpec
    minutes: float | None
    retunes: bool
    limit_s: float


@dataclass(frozen=True)
class ToolchainBench:
    """A GPU that times pairs and races the configs of one side."""

    pairs: PairBench
    race: Race


@contextlib.contextmanager
def open_toolchain_bench(
    library: Path, gpu: Gpu, arch: str, pairs_store: str, race_store: str, *, may_use_events: bool = False
) -> Iterator[ToolchainBench]:
    """Opens this machine's GPU. `pairs_store` holds the cubins to time, `race_store` those to race. Raises GpuMissing
    or GpuBusy."""
    racer = RealBench(gpu.index, race_store, may_use_events=may_use_events)
    racer.usable(arch)  # checked now: later, a process of ours that just ended may still be on the GPU

    def race(pair: ToolchainPair, cubins: Sequence[Cubin]) -> tuple[Params, ...]:
        target = Target(pair.kernel, pair.problem, pair.arch, None, None)
        return racer.race(target, Library("the head", library), cubins)

    with GpuPairBench(library, gpu, pairs_store, may_use_events=may_use_events) as pairs:
        yield ToolchainBench(pairs, race)


def time_on_gpu(
    place: Workplace,
    report: ToolchainReport,
    file: ReportKeeper,
    wanted: GpuWanted,
    bench: ToolchainBench,
    times: Callable[[], RecordedTimes],
    on_progress: Callable[[str], None],
) -> bool:
    """Adds launches to the report until every answer is sure or the minutes are spent. Returns whether they are."""
    started = time.monotonic()
    used = report.gpus.get(wanted.model.slug, GpuUsed(wanted.model.slug, wanted.gpu.name, wanted.gpu.driver))

    def is_spent(share: float = 1.0) -> bool:
        spent_s = time.monotonic() - started
        report.gpus[used.model] = replace(used, wall_s=used.wall_s + spent_s)
        return wanted.minutes is not None and spent_s > share * wanted.minutes * 60

    is_spent()
    half = ToolchainTimer(place, report, file, wanted, bench.pairs, bench.race, on_progress)
    half.time_frozen(lambda: is_spent(FROZEN_SHARE if wanted.retunes else 1.0))
    if wanted.retunes:
        half.retune(times, is_spent)
        half.time_frozen(is_spent)
    was_spent = is_spent()
    file.save()
    return was_spent


class ToolchainTimer:
    """Times the pairs of a report in steps. Results go into the report, which is saved within seconds."""

    def __init__(
        self,
        place: Workplace,
        report: ToolchainReport,
        file: ReportKeeper,
        wanted: GpuWanted,
        bench: PairBench,
        race: Race,
        on_progress: Callable[[str], None],
    ) -> None:
        self._place, self._report, self._file, self._wanted = place, report, file, wanted
        self._bench, self._race, self._on_progress = bench, race, on_progress
        self._model = wanted.model.slug

    def time_frozen(self, is_spent: Callable[[], bool]) -> None:
        """Times each pair whose machine code differs: the base's config, compiled by both."""
        works = [
            (pair, pair.head[0]) for pair in list_differing(self._report, self._wanted.model.arch) if pair.head[0].is_ok
        ]
        self._time("frozen", self._report.frozen, works, is_spent)

    def retune(self, times: Callable[[], RecordedTimes], is_spent: Callable[[], bool]) -> None:
        """Sweeps operators that are worse under the head, and times the head's winners beside the base's."""
        worse = [each.pair for each in judge_report(self._report, self._model) if each.safety == "not safe"]
        todo = [pair for pair in worse if self._key(pair) not in self._report.retunings]
        if todo and not is_spent():
            self._sweep(todo, times(), is_spent)
        works = [
            (pair, winner)
            for pair in worse
            if (winner := self._report.winners.get(self._key(pair))) is not None
            and winner.config != pair.base[0].config
        ]
        self._time("re-tuned", self._report.retuned, works, is_spent)

    def _sweep(self, pairs: Sequence[ToolchainPair], times: RecordedTimes, is_spent: Callable[[], bool]) -> None:
        plans = {
            (plan.kernel, plan.problem): plan
            for kernel in dict.fromkeys(pair.kernel for pair in pairs)
            for plan in catalog.read(self._place.library, arch=self._wanted.model.arch, kernel=kernel)
        }
        works = [
            (pair, choose_space(plans[pair.kernel, pair.problem], times))
            for pair in pairs
            if (pair.kernel, pair.problem) in plans
        ]
        swept = retune_each(self._place, works, self._model, self._race, self._wanted.limit_s, is_spent)
        for (pair, _), retuned in zip(works, swept, strict=False):
            key = self._key(pair)
            self._report.retunings[key] = retuned.retuning
            if retuned.winner is not None:
                self._report.winners[key] = retuned.winner
            self._on_progress(f"{pair.kernel} {pair.problem}: swept {retuned.retuning.compiled} configs with the head")
            self._file.save_soon()

    def _time(
        self,
        question: Question,
        known: dict[GpuKey, Timing],
        works: Sequence[tuple[ToolchainPair, CompiledSide]],
        is_spent: Callable[[], bool],
    ) -> None:
        timings: dict[Key, Timing] = {}
        for pair, head in works:
            empty = Timing(pair.kernel, pair.problem, self._model, question, pair.base[0].config, head.config)
            timings[pair.kernel, pair.problem] = known.get(self._key(pair), empty)

        launches = itertools.count(1)

        def keep(timing: Timing) -> None:
            known[timing.kernel, timing.problem, self._model] = timing
            self._file.save_soon()
            if (count := next(launches)) % SAY_EVERY == 0:
                self._on_progress(f"{question}: {count} launches, {len(run.list_open())} of {len(works)} still open")

        pair_works = [PairWork(pair.kernel, pair.problem, _cubin(pair.base[0]), _cubin(head)) for pair, head in works]
        run = TimingRun(pair_works, timings, make_family(self._report, self._wanted.model.arch), keep)
        self._on_progress(f"{question}: {len(run.list_open())} of {len(works)} operators and problems to time")
        run.run(self._bench, is_spent)
        self._file.save()
        self._on_progress(f"{question}: {len(run.list_open())} of {len(works)} are still open")

    def _key(self, pair: ToolchainPair) -> GpuKey:
        return (pair.kernel, pair.problem, self._model)


def _cubin(build: CompiledSide) -> Cubin:
    assert build.cubin is not None
    assert build.symbol is not None
    return Cubin(build.config, build.cubin, build.symbol)
