"""Times the pairs of a report on this machine's GPU."""

import itertools
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tilewatch.kernels.baselines.names import COPY, find_main
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.catalog.share import WIDE
from tilewatch.kernels.comparing.baseline_bench import BaselineWork
from tilewatch.kernels.comparing.configs import Candidates, ConfigSource
from tilewatch.kernels.comparing.gpu_bench import GpuBench, LaunchBench, Work
from tilewatch.kernels.comparing.targets import Target
from tilewatch.kernels.comparing.timing_order import Key, Timing, TimingRun
from tilewatch.kernels.comparing.toolchains.compile_sides import Chosen, ComparedSide, Workplace, compile_missing
from tilewatch.kernels.comparing.toolchains.ladder import DRIVER, is_precise
from tilewatch.kernels.comparing.toolchains.ladders import name_driver
from tilewatch.kernels.comparing.toolchains.pairs import CompiledSide, ToolchainPair
from tilewatch.kernels.comparing.toolchains.report_file import (
    GpuKey,
    GpuUsed,
    ReportKeeper,
    ToolchainName,
    ToolchainReport,
)
from tilewatch.kernels.comparing.toolchains.report_verdict import judge_report, list_differing, make_design
from tilewatch.kernels.comparing.toolchains.retuning import RecordedTimes, choose_space, retune_each
from tilewatch.kernels.comparing.toolchains.rungs import make_rungs
from tilewatch.kernels.comparing.toolchains.safety_verdict import is_answered
from tilewatch.kernels.comparing.verdict import Verdict
from tilewatch.kernels.compiling.compile_children import BuildError
from tilewatch.kernels.device import Gpu, GpuSpec
from tilewatch.kernels.measuring.pair_bench import PairWork, ReplaySide

FROZEN_SHARE = 0.8
"""Share of the minutes after which re-tuning begins, even if some operators still have no frozen answer."""

SAY_EVERY = 100
"""Number of launches between two lines of progress."""


@dataclass(frozen=True)
class ToolchainTimer:
    """Times the pairs of a report and writes the results into it."""

    place: Workplace
    report: ToolchainReport
    file: ReportKeeper
    gpu: Gpu
    bench: GpuBench
    on_progress: Callable[[str], None]
    baselines: LaunchBench[BaselineWork] | None = None

    @property
    def model(self) -> GpuSpec:
        assert self.gpu.model is not None
        return self.gpu.model

    def run(self, minutes: float | None, times: Callable[[], RecordedTimes] | None) -> bool:
        """Times pairs until every verdict is sure or the minutes are spent. Returns whether the minutes are spent."""
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
            self.climb(is_spent)
        was_spent = is_spent()
        self.file.save()
        return was_spent

    def time_frozen(self, is_spent: Callable[[], bool]) -> None:
        """Times the base's config under the base and each head, if the code differs."""
        differing = list_differing(self.report, self.model.arch)
        self._time_pairs("frozen", [(pair, pair.head[0]) for pair in differing], is_spent)

    def retune(self, times: Callable[[], RecordedTimes], is_spent: Callable[[], bool]) -> None:
        """Sweeps operators that are slower under a head, and times the head's winners."""
        worse = [each.pair for each in judge_report(self.report, self.model.slug) if each.safety == "not safe"]
        for head in self.report.heads:
            of_head = [pair for pair in worse if pair.head_name == head.name]
            todo = [pair for pair in of_head if self._key(pair) not in self.report.retunings]
            if not todo or is_spent():
                continue
            if not self.place.find_side(head.name).toolchain.is_installed:
                self.on_progress(f"nothing is re-tuned with {head.name}, which is not installed here")
                continue
            try:
                self._sweep(todo, times(), is_spent)
            except BuildError as error:
                self.on_progress(f"nothing more is re-tuned with {head.name}: {error}")
        swept = [(pair, self.report.retunings.get(self._key(pair))) for pair in worse]
        works = [
            (pair, retuning.side)
            for pair, retuning in swept
            if retuning is not None and retuning.side is not None and retuning.winner != pair.base[0].config
        ]
        self._time_pairs("re-tuned", works, is_spent)

    def climb(self, is_spent: Callable[[], bool]) -> None:
        """Times mixes of base and head, to find which dependency made operators slower."""
        self.time_baselines(self._list_baseline_works(self.place.sides), is_spent)
        self.place.cubins.mkdir(parents=True, exist_ok=True)
        for head in self.report.heads:
            lost = [pair for pair in self._list_lost() if pair.head_name == head.name]
            if is_spent() or not (lost or self._list_faster_baselines(head)):
                continue
            with tempfile.TemporaryDirectory(prefix="rungs-", dir=self.place.cubins) as root:
                rungs = make_rungs(Path(root).absolute(), self.place, self.report, head)
                self._compile_rungs(rungs, lost)
                self.time_baselines(self._list_baseline_works(rungs), is_spent)
        self.time_rungs(is_spent)

    def _compile_rungs(self, rungs: Sequence[ComparedSide], lost: Sequence[ToolchainPair]) -> None:
        base = self.place.sides[0]
        ours = tuple(side for side in rungs if side.toolchain != base.toolchain)
        if not (ours and lost):
            return
        place = replace(self.place, sides=(base, *ours))
        try:
            compile_missing(place, self.report, self.file, list(map(_choose_frozen, lost)), self.on_progress)
        except BuildError as error:
            self.on_progress(f"dependencies cannot be told apart: {error}")

    def time_rungs(self, is_spent: Callable[[], bool]) -> None:
        """Times slower operators under mixes of base and head (rungs), until the intervals are narrow enough."""
        heads = {pair.key for pair in self._list_lost()}
        rungs = {side.name: side.rung_of for side in self.report.sides if side.rung_of}
        pairs = [
            pair
            for pair in self.report.pairs.values()
            if pair.kind == "changed" and (*pair.key[:3], rungs.get(pair.head_name, pair.head_name)) in heads
        ]
        self._time_pairs("ladder", [(pair, pair.head[0]) for pair in pairs], is_spent, is_precise)
        if any(DRIVER in side.versions for side in self.report.sides):
            of_arch = (each for each in self.report.pairs.values() if each.arch == self.model.arch)
            bases = {each.key[:2]: each for each in of_arch if each.base[0].cubin is not None}
            label = name_driver(self.gpu.driver)
            same = [(replace(pair, head=pair.base, head_name=label), pair.base[0]) for pair in bases.values()]
            self._time_pairs("driver", same, is_spent, is_precise)

    def time_baselines(self, works: Sequence[BaselineWork], is_spent: Callable[[], bool]) -> None:
        if works and self.baselines is not None:
            self._time("baselines", self.report.baselines, works, self.baselines, is_spent, is_precise)

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
            self.on_progress(f"{pair.kernel} {pair.problem}: swept {retuning.compiled} configs with {pair.head_name}")
            self.file.save_soon()

    def _time_pairs(
        self,
        question: str,
        pairs: Sequence[tuple[ToolchainPair, CompiledSide]],
        is_spent: Callable[[], bool],
        is_sure: Callable[[Verdict], bool] = is_answered,
    ) -> None:
        """Times the base's code of each pair beside the given code. Skips heads that need another driver."""
        here = self.gpu.driver
        other = {side.name for side in self.report.sides if side.versions.get(DRIVER, here) != here}
        works = [
            PairWork(pair.kernel, pair.problem, self._find(pair.base[0]), self._find(head), label=pair.head_name)
            for pair, head in pairs
            if head.is_ok and pair.head_name not in other
        ]
        known = self.report.retuned if question == "re-tuned" else self.report.frozen
        self._time(question, known, works, self.bench, is_spent, is_sure)

    def _find(self, side: CompiledSide) -> ReplaySide:
        return ReplaySide(self.place.library, side.stored_cubin)

    def _time(
        self,
        question: str,
        known: dict[GpuKey, Timing],
        works: Sequence[Work],
        bench: LaunchBench[Work],
        is_spent: Callable[[], bool],
        is_sure: Callable[[Verdict], bool],
    ) -> None:
        launches = itertools.count(1)

        def show() -> None:
            self.on_progress(f"{question}: {len(run.list_open())} of {len(works)} operators and problems are open")

        def keep(key: Key, timing: Timing) -> None:
            kernel, problem, head = key
            known[kernel, problem, self.model.slug, head] = timing
            self.file.save_soon()
            if next(launches) % SAY_EVERY == 0:
                show()

        run = TimingRun(
            works,
            make_design(self.report, self.model.arch),
            keep,
            known={(*key[:2], key[3]): timing for key, timing in known.items() if key[2] == self.model.slug},
            is_sure=is_sure,
        )
        show()
        run.run(bench, is_spent)
        self.file.save()
        show()

    def _list_lost(self) -> list[ToolchainPair]:
        """Lists the pairs that are surely slower than allowed with the base's config."""
        judged = judge_report(self.report, self.model.slug)
        return [each.pair for each in judged if each.frozen is not None and each.frozen.is_over]

    def _list_baseline_works(self, sides: Sequence[ComparedSide]) -> list[BaselineWork]:
        """Lists the baselines to time with the base's packages and with the packages of each of `sides`."""
        base, names = self.place.sides[0], {each.name: each for each in self.report.sides}
        others = [side for side in sides if side.environment != base.environment]
        of_arch = (pair.kernel for pair in self.report.pairs.values() if pair.arch == self.model.arch)
        kernels = dict.fromkeys(of_arch) if others else ()
        plans = [
            plan for kernel in kernels for plan in catalog.read(self.place.library, arch=self.model.arch, kernel=kernel)
        ]
        works = []
        for side in others:
            head = names[side.name].rung_of
            faster = self._list_faster_baselines(names[head]) if head else None
            folders = [None if each.environment is None else each.environment.folder for each in (base, side)]
            for plan in plans:
                main = find_main(plan.baselines)
                if main in (None, COPY) or (faster is not None and (plan.kernel, plan.problem) not in faster):
                    continue
                works.append(
                    BaselineWork(plan.kernel, plan.problem, str(main), folders[0], folders[1], label=side.name)
                )
        return works

    def _list_faster_baselines(self, head: ToolchainName) -> set[tuple[str, str]]:
        design = make_design(self.report, self.model.arch)
        timed = {
            key[:2]: each for key, each in self.report.baselines.items() if key[2:] == (self.model.slug, head.name)
        }
        verdicts = {key: timing.judge(design) for key, timing in timed.items()}
        return {key for key, verdict in verdicts.items() if verdict is not None and verdict.kind == "faster"}

    def _key(self, pair: ToolchainPair) -> GpuKey:
        return (pair.kernel, pair.problem, self.model.slug, pair.head_name)


def _choose_frozen(pair: ToolchainPair) -> Chosen:
    config = (pair.base[0].config,)
    return Target(pair.kernel, pair.problem, pair.arch, None, None), Candidates(
        ConfigSource(pair.config_source), config, config
    )
