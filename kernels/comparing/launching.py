"""Times both versions of changed kernels on a GPU until every verdict is final."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from tilewatch.kernels.comparing.changes import Changed, Comparison, end_if_identical, machine_codes
from tilewatch.kernels.comparing.gpu_bench import GpuBench
from tilewatch.kernels.comparing.outcome import Outcome
from tilewatch.kernels.comparing.timing_order import Key, Timing, TimingRun
from tilewatch.kernels.comparing.verdict import Design
from tilewatch.kernels.measuring.measure import MeasureFailed
from tilewatch.kernels.measuring.pair_bench import PairWork, ReplaySide

NO_TIME = "the budget was spent before its first launch"


def end_by_launches(
    comparison: Comparison,
    changed: Sequence[Changed],
    bench: GpuBench,
    design: Design,
    is_spent: Callable[[], bool],
    on_progress: Callable[[str], None],
) -> None:
    """Times each changed kernel until its verdict is final or `is_spent` returns True, and sets the outcomes."""
    picked = {
        (each.target.kernel, each.target.problem, ""): each
        for each in (_pick(comparison, each, bench) for each in changed)
        if each is not None
    }
    design = replace(design, operators=max(1, len(picked)))

    def make_outcome(each: Changed, timing: Timing) -> Outcome:
        verdict = timing.judge(design)
        assert verdict is not None
        return each.outcome(
            kind=verdict.kind,
            verdict=verdict,
            base_us=timing.base_us,
            head_us=timing.head_us,
            not_apart=timing.not_apart,
            metric=comparison.metric,
        )

    def show(key: Key, timing: Timing) -> None:
        if timing.failure is None and len(timing.base_us) in design.looks:
            kernel, problem, _ = key
            on_progress(f"{kernel} {problem}: {make_outcome(picked[key], timing).sentence}")

    run = TimingRun([_make_work(comparison, each) for each in picked.values()], design, show)
    run.run(bench, is_spent)
    for key, timing in run.timings.items():
        target = picked[key].target
        if timing.failure is None and timing.base_us:
            comparison.outcomes[target] = make_outcome(picked[key], timing)
        else:
            comparison.end(target, "failed", timing.failure or NO_TIME)


def _make_work(comparison: Comparison, each: Changed) -> PairWork:
    base, head = each.base[0].cubin, each.head[0].cubin
    assert base is not None
    assert head is not None
    sides = (ReplaySide(comparison.base.folder, base), ReplaySide(comparison.head.folder, head))
    return PairWork(each.target.kernel, each.target.problem, *sides, metric=comparison.metric)


def _pick(comparison: Comparison, each: Changed, bench: GpuBench) -> Changed | None:
    """Returns the code of the fastest config of each version, or None if there is nothing to time."""
    sides = []
    for library, codes in ((comparison.base, each.base), (comparison.head, each.head)):
        if len(codes) == 1:
            sides.append([codes[0]])
            continue
        cubins = [code.cubin for code in codes if code.cubin is not None]
        of = (library.folder, each.target.kernel, each.target.problem, comparison.pool.store_url)
        try:
            order = bench.race(*of, cubins)
        except MeasureFailed as error:
            comparison.end(each.target, "failed", str(error))
            return None
        if not order:
            comparison.end(each.target, "failed", f"no config of {library.name} gives right results")
            return None
        sides.append([next(code for code in codes if code.config == config) for config in order])
    base = next((code for code in sides[0] if code.config == each.base[0].config), sides[0][0])
    head = next((code for code in sides[1] if code.config == base.config), sides[1][0])
    picked = replace(each, base=(base,), head=(head,))
    return None if end_if_identical(comparison, picked, machine_codes) else picked
