"""Prints the results of `python -m tilewatch.kernels` as tables for people."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from tilewatch.configs import config_text
from tilewatch.grouping import group_by
from tilewatch.kernels.results import Compiled, Plan, PlannedTrial, RunResult
from tilewatch.kernels.statistics import median_interval, ratio_interval

SUITE_HEAD = ("kernel", "inputs", "problems", "configs", "baselines")


def print_suite(plans: Sequence[Plan]) -> None:
    table = Table(*SUITE_HEAD)
    for row in list_suite_rows(plans):
        table.add_row(*row)
    Console().print(table)


def format_suite(plans: Sequence[Plan]) -> str:
    """Returns the nightly kernels as a Markdown table."""
    lines = [SUITE_HEAD, ("---",) * len(SUITE_HEAD), *list_suite_rows(plans)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def list_suite_rows(plans: Sequence[Plan]) -> list[tuple[str, ...]]:
    """Returns a table row for each nightly kernel."""
    return [
        (
            kernel,
            ", ".join(dict.fromkeys(dtype for plan in of_kernel for dtype in plan.dtypes)),
            ", ".join(dict.fromkeys(plan.problem for plan in of_kernel)),
            ", ".join(dict.fromkeys(f"{plan.arch}: {len(plan.trials)}" for plan in of_kernel)),
            ", ".join(dict.fromkeys(name for plan in of_kernel for name in plan.baselines)),
        )
        for kernel, of_kernel in group_by(plans, lambda plan: plan.kernel).items()
    ]


def print_compiled(summary: dict[str, Any], outcomes: list[tuple[PlannedTrial, Compiled]]) -> None:
    out = Console()
    statuses = ", ".join(f"{count} {status}" for status, count in sorted(summary["by_status"].items()))
    out.print(
        f"{summary['kernel']} {summary['problem']} for {summary['arch']}: {statuses}; "
        f"{summary['compiled']} compiled, {summary['reused']} from the store, "
        f"{summary['wall_s']:.0f} s wall, {summary['cpu_s']:.0f} CPU s, {summary['jobs']} processes"
    )
    facts = [outcome.facts for _, outcome in outcomes if outcome.facts is not None]
    if facts:
        spilling = sum(each.stack_bytes > 0 for each in facts)
        tensor = sum(each.tensor_core_mmas == each.mmas > 0 for each in facts)
        tma = sum(each.tma_loads == each.loads > 0 for each in facts)
        out.print(f"{len(facts)} cubins: {spilling} spill, {tensor} all Tensor Core code, {tma} all loads by TMA")
    _print_failures(out, outcomes)


def _print_failures(out: Console, outcomes: list[tuple[PlannedTrial, Compiled]]) -> None:
    kinds = Counter(f"{outcome.status}: {outcome.failure}" for _, outcome in outcomes if outcome.failure)
    for kind, count in kinds.most_common():
        out.print(f"  {count:4} {kind}", highlight=False)


def print_sweep(plan: Plan, outcomes: list[tuple[PlannedTrial, Compiled]], result: RunResult) -> None:
    out = Console()
    timed = sorted(
        (trial for trial in result.trials if trial.median_us is not None), key=lambda trial: trial.median_us or 0
    )
    out.print(
        f"{plan.kernel} {plan.problem} on {result.gpu_name} ({result.gpu_uuid}), {result.timer} times: "
        f"{len(plan.trials)} configs, {len(timed)} timed, {result.sweep_gpu_s:.1f} s of GPU"
    )
    table = Table("", *(name for name, _ in plan.axes), "median us", "samples", title="Ten best of the sweep")
    tie = list(result.tie)
    for rank, trial in enumerate(timed[:10], start=1):
        mark = "winner" if trial.config == result.winner else "tie" if trial.config in tie else str(rank)
        cells = (str(trial.config[name]) for name, _ in plan.axes)
        table.add_row(mark, *cells, f"{trial.median_us:.2f}", str(len(trial.samples_us)))
    out.print(table)
    _print_failures(out, outcomes)
    for kind, count in Counter(f"{t.status}: {t.failure}" for t in result.trials if t.failure).most_common():
        out.print(f"  {count:4} {kind}", highlight=False)
    _print_measurements(out, plan, result)


def _print_measurements(out: Console, plan: Plan, result: RunResult) -> None:
    if not result.measurements:
        out.print("no config gave right results, so there is no winner to time")
        return
    table = Table("implementation", "median us", "95 % interval", "TFLOP/s", "its time / ours", "95 % interval")
    ours = result.measurements[0]
    for each in result.measurements:
        if not each.samples_us:
            table.add_row(each.implementation, "-", str(each.detail.get("missing")), "-", "-", "-")
            continue
        time_us = median_interval(each.samples_us)
        ratio = ratio_interval(ours.samples_us, each.samples_us)
        assert ratio is not None
        table.add_row(
            each.implementation,
            f"{time_us.median:.2f}",
            f"{time_us.low:.2f} to {time_us.high:.2f}",
            f"{plan.flops / time_us.median / 1e6:.0f}",
            f"{ratio.median:.3f}",
            f"{ratio.low:.3f} to {ratio.high:.3f}",
        )
    table.title = f"Winner {config_text(result.winner or {})}, {len(ours.samples_us)} paired rounds"
    out.print(table)
