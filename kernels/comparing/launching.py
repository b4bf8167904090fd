"""Times two sides of changed targets on a GPU, launch by launch, until every verdict is final.

The protocol GpuBench stands for the GPU; kernels/comparing/gpu_bench.py has the real one.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tilewatch.kernels.comparing.changes import Changed, Comparison, end_if_identical, machine_codes
from tilewatch.kernels.comparing.targets import Library, Target
from tilewatch.kernels.comparing.verdict import MOST_LAUNCHES, Design, Verdict, find_next_look, judge
from tilewatch.kernels.measuring.measure import MeasureFailed
from tilewatch.kernels.measuring.replay import ReplayFailed, ReplaySide
from tilewatch.kernels.results import Cubin, Params

NO_TIME = "the budget was spent before its first launch"


@dataclass(frozen=True)
class Budget:
    """What a comparison may spend. `deadline` is a time of time.monotonic(), None without a limit."""

    most_launches: int = MOST_LAUNCHES
    deadline: float | None = None

    @property
    def is_spent(self) -> bool:
        return self.deadline is not None and time.monotonic() > self.deadline


class LaunchBench(Protocol):
    """A GPU that can launch both sides of a target."""

    def launch(self, target: Target, base: ReplaySide, head: ReplaySide) -> tuple[float, float]:
        """Returns the median microseconds of base and head in one new process. Raises ReplayFailed."""


class GpuBench(LaunchBench, Protocol):
    """A GPU that can also race the configs of one side."""

    def race(self, target: Target, library: Library, cubins: Sequence[Cubin]) -> tuple[Params, ...]:
        """Checks and times configs. Returns the fastest, then those that tie with it; empty if no result is right."""

    def find_not_apart(self, target: Target) -> str:
        """Returns why the process that runs an operator's host code also timed it. Empty if another one did."""


@dataclass(frozen=True)
class Timed:
    """The launches of one target and the verdict on them. Element i of both times is launch i, in microseconds."""

    base_us: tuple[float, ...]
    head_us: tuple[float, ...]
    verdict: Verdict


def time_operator(
    gpu: LaunchBench,
    target: Target,
    sides: tuple[ReplaySide, ReplaySide],
    design: Design,
    budget: Budget,
    *,
    on_launch: Callable[[int], None],
) -> Timed:
    """Times one target until its verdict is final or the budget is spent. `sides` are base and head. Raises
    ReplayFailed or MeasureFailed."""
    base_us: list[float] = []
    head_us: list[float] = []
    while True:
        _launch_until_look(target, sides, gpu, budget, design, base_us, head_us, on_launch)
        if not base_us:
            raise ReplayFailed(NO_TIME)
        verdict = judge(base_us, head_us, design)
        if verdict.is_final or budget.is_spent:
            return Timed(tuple(base_us), tuple(head_us), verdict)


def end_by_launches(
    comparison: Comparison,
    changed: Sequence[Changed],
    gpu: GpuBench,
    budget: Budget,
    *,
    fail_over: float,
    on_progress: Callable[[str], None],
) -> None:
    """Launches all targets in turns, one look each, until every verdict is final or the budget is spent."""
    open_targets = [picked for each in changed if (picked := _pick(comparison, each, gpu)) is not None]
    design = Design(max(1, len(open_targets)), budget.most_launches, fail_over)
    times: dict[Target, tuple[list[float], list[float]]] = {each.target: ([], []) for each in open_targets}
    while open_targets:
        still_open = []
        for each in open_targets:
            base_us, head_us = times[each.target]
            try:
                _launch_until_look(each.target, _make_sides(comparison, each), gpu, budget, design, base_us, head_us)
            except (ReplayFailed, MeasureFailed) as error:
                comparison.fail(each.target, str(error))
                continue
            if not base_us:
                comparison.fail(each.target, NO_TIME)
                continue
            verdict = judge(base_us, head_us, design)
            outcome = each.outcome(
                kind=verdict.kind,
                verdict=verdict,
                base_us=tuple(base_us),
                head_us=tuple(head_us),
                not_apart=gpu.find_not_apart(each.target),
            )
            comparison.end(each.target, outcome)
            on_progress(f"{each.target.kernel} {each.target.problem}: {outcome.sentence}")
            if not verdict.is_final and not budget.is_spent:
                still_open.append(each)
        open_targets = still_open


def _make_sides(comparison: Comparison, each: Changed) -> tuple[ReplaySide, ReplaySide]:
    base, head = each.base[0].cubin, each.head[0].cubin
    assert base is not None
    assert head is not None
    return ReplaySide(comparison.base.folder, base), ReplaySide(comparison.head.folder, head)


def _launch_until_look(
    target: Target,
    sides: tuple[ReplaySide, ReplaySide],
    gpu: LaunchBench,
    budget: Budget,
    design: Design,
    base_us: list[float],
    head_us: list[float],
    on_launch: Callable[[int], None] = lambda _: None,
) -> None:
    for _ in range(find_next_look(len(base_us), design) - len(base_us)):
        if budget.is_spent:
            return
        of_base, of_head = gpu.launch(target, *sides)
        base_us.append(of_base)
        head_us.append(of_head)
        on_launch(len(base_us))


def _pick(comparison: Comparison, each: Changed, gpu: GpuBench) -> Changed | None:
    """Returns the target with one code per side: the fastest, or a tied one that keeps the config (the preferred one
    for the base, then the base's for the head). None if the target has ended."""
    sides = []
    for library, codes in ((comparison.base, each.base), (comparison.head, each.head)):
        if len(codes) == 1:
            sides.append([codes[0]])
            continue
        try:
            order = gpu.race(each.target, library, [code.cubin for code in codes if code.cubin is not None])
        except MeasureFailed as error:
            comparison.fail(each.target, str(error))
            return None
        if not order:
            comparison.fail(each.target, f"no config of {library.name} gives right results")
            return None
        sides.append([next(code for code in codes if code.config == config) for config in order])
    base = next((code for code in sides[0] if code.config == each.base[0].config), sides[0][0])
    head = next((code for code in sides[1] if code.config == base.config), sides[1][0])
    picked = replace(each, base=(base,), head=(head,))
    return None if end_if_identical(comparison, picked, machine_codes) else picked
