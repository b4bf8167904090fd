"""Times pairs on this machine's GPU to answer both questions (safety_verdict.py), frozen first, then re-tuned."""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.catalog.share import WIDE
from tilewatch.kernels.comparing.gpu_bench import GpuBench
from tilewatch.kernels.comparing.timing_order import Key, Timing, TimingRun
from tilewatch.kernels.comparing.toolchains.compile_both import Workplace
from tilewatch.kernels.comparing.toolchains.pairs import CompiledSide, ToolchainPair
from tilewatch.kernels.comparing.toolchains.report_file import GpuKey, GpuUsed, ReportKeeper, ToolchainReport
from tilewatch.kernels.comparing.toolchains.report_verdict import judge_report, list_differing, make_design
from tilewatch.kernels.comparing.toolchains.retuning import RecordedTimes, choose_space, retune_each
from tilewatch.kernels.comparing.toolchains.safety_verdict import is_answered
from tilewatch.kernels.device import Gpu, GpuSpec
from tilewatch.kernels.measuring.pair_bench import PairWork, ReplaySide

FROZEN_SHARE = 0.7
"""Share of the minutes after which re-tuning begins, even if frozen answers are still open."""


SAY_EVERY = 100
"""Launches between two lines of progress."""


@dataclass(frozen=True)
class ToolchainTimer:
    """Times the pairs of a report in steps. Results go into the report, which is saved within seconds."""

    place: Workplace
    report: ToolchainReport
    file: ReportKeeper
    gpu: Gpu
    bench: GpuBench
    on_progress: Callable[[str], None]

    @property
    def model(self) -> GpuSpec:
        assert self.gpu.model is not None
        return self.gpu.model

    def run(self, minutes: float | None, times: Callable[[], RecordedTimes] | None) -> bool:
        """Adds launches to the report until every answer is sure or the minutes are spent, None for no limit. Returns
        whether they are spent. `times` reads which configs are worth a sweep; None to re-tune nothing."""
        started = time.monotonic()
        used = self.report.gpus.get(self.model.slug, GpuUsed(self.model.slug, self.gpu.name, self.gpu.driver))

        def is_spent(share: float = 1.0) -> bool:
            spent_s = time.monotonic() - started
            self.report.gpus[used.model] = replace(used, wall_s=used.wall_s + spent_s)
            return minutes is not None and spent_s > share * minutes * 60

        is_spent()
        self.time_frozen(lambda: is_spent(1.0 if times is None else FROZEN_SHARE))
        if times is not None:
            self.retune(times, is_spent)
            self.time_frozen(is_spent)
        was_spent = is_spent()
        self.file.save()
        return was_spent

    def time_frozen(self, is_spent: Callable[[], bool]) -> None:
        """Times each pair whose machine code differs: the base's config, compiled by both."""
        works = [(pair, pair.head[0]) for pair in list_differing(self.report, self.model.arch) if pair.head[0].is_ok]
        self._time("frozen", self.report.frozen, works, is_spent)

    def retune(self, times: Callable[[], RecordedTimes], is_spent: Callable[[], bool]) -> None:
        """Sweeps operators that are worse under the head, and times the head's winners beside the base's."""
        worse = [each.pair for each in judge_report(self.report, self.model.slug) if each.safety == "not safe"]
        todo = [pair for pair in worse if self._key(pair) not in self.report.retunings]
        if todo and not is_spent():
            self._sweep(todo, times(), is_spent)
        swept = [(pair, self.report.retunings.get(self._key(pair))) for pair in worse]
        works = [
            (pair, retuning.side)
            for pair, retuning in swept
            if retuning is not None and retuning.side is not None and retuning.winner != pair.base[0].config
        ]
        self._time("re-tuned", self.report.retuned, works, is_spent)

    def _sweep(self, pairs: Sequence[ToolchainPair], times: RecordedTimes, is_spent: Callable[[], bool]) -> None:
        plans = {
            (plan.kernel, plan.problem): plan
            for kernel in dict.fromkeys(pair.kernel for pair in pairs)
            for plan in catalog.read(self.place.library, arch=self.model.arch, kernel=kernel, shares=WIDE)
        }
        works = [
            (pair, choose_space(plans[pair.kernel, pair.problem], times))
            for pair in pairs
            if (pair.kernel, pair.problem) in plans
        ]
        for (pair, _), retuning in zip(works, retune_each(self.place, works, self.bench, is_spent), strict=False):
            self.report.retunings[self._key(pair)] = retuning
            self.on_progress(f"{pair.kernel} {pair.problem}: swept {retuning.compiled} configs with the head")
            self.file.save_soon()

    def _time(
        self,
        question: str,
        known: dict[GpuKey, Timing],
        works: Sequence[tuple[ToolchainPair, CompiledSide]],
        is_spent: Callable[[], bool],
    ) -> None:
        launches = itertools.count(1)

        def show() -> None:
            self.on_progress(f"{question}: {len(run.list_open())} of {len(works)} operators and problems are open")

        def keep(key: Key, timing: Timing) -> None:
            known[*key, self.model.slug] = timing
            self.file.save_soon()
            if next(launches) % SAY_EVERY == 0:
                show()

        run = TimingRun(
            [self._make_work(*work) for work in works],
            make_design(self.report, self.model.arch),
            keep,
            known={key[:2]: timing for key, timing in known.items() if key[2] == self.model.slug},
            is_sure=is_answered,
        )
        show()
        run.run(self.bench, is_spent)
        self.file.save()
        show()

    def _make_work(self, pair: ToolchainPair, head: CompiledSide) -> PairWork:
        of_base, of_head = (ReplaySide(self.place.library, each.stored_cubin) for each in (pair.base[0], head))
        return PairWork(pair.kernel, pair.problem, of_base, of_head)

    def _key(self, pair: ToolchainPair) -> GpuKey:
        return (pair.kernel, pair.problem, self.model.slug)
