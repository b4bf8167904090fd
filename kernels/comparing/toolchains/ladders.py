"""Finds which operators lost speed under a head, and how much of the loss each dependency caused."""

from collections.abc import Container, Sequence
from dataclasses import dataclass

from tilewatch.kernels.comparing.toolchains.ladder import (
    BASELINES,
    CODE,
    DRIVER,
    Ladder,
    MeasuredChange,
    Swapped,
    list_swapped,
    merge_unmeasured,
    read_driver_step,
    read_step,
    split_loss,
)
from tilewatch.kernels.comparing.toolchains.report_file import ToolchainName, ToolchainReport
from tilewatch.kernels.device import gpu_model as find_model

Operator = tuple[str, str, str]
"""Kernel, problem and GPU model."""


@dataclass(frozen=True)
class OperatorLadder:
    """The split of an operator's loss among dependencies, under one head on one GPU model."""

    kernel: str
    problem: str
    gpu_model: str
    head: str
    ladder: Ladder


def name_driver(driver: str) -> str:
    """Returns the key of the launches with this driver in a report."""
    return f"@{driver}"


def list_ladders(report: ToolchainReport) -> tuple[OperatorLadder, ...]:
    """Lists slower operators with each dependency's part of the slowdown, the largest slowdown first."""
    found = [
        OperatorLadder(kernel, problem, gpu_model, head.name, ladder)
        for gpu_model in report.gpus
        for head in report.heads
        for kernel, problem in dict.fromkeys(key[:2] for key in report.pairs)
        if (ladder := _find_ladder(report, (kernel, problem, gpu_model), head)) is not None and ladder.blamed
    ]
    return tuple(sorted(found, key=lambda each: -each.ladder.loss))


def _find_ladder(report: ToolchainReport, of: Operator, head: ToolchainName) -> Ladder | None:
    """Returns the split of an operator's loss under a head, or None if no part of the loss was measured."""
    driver = report.base.versions.get(DRIVER) or report.gpus[of[2]].driver
    swapped = list_swapped({**report.base.versions, DRIVER: driver}, {DRIVER: driver, **head.versions})
    drivers = (report.frozen.get((*of, name_driver(each))) for each in (driver, head.versions.get(DRIVER, driver)))
    of_driver = read_driver_step(*drivers)
    groups: list[Sequence[str]] = []
    steps: dict[Swapped, MeasuredChange] = {}
    for group, found in (
        (CODE, _read_code_steps(report, of, head, swapped)),
        ({DRIVER: ()}, {} if of_driver is None else {frozenset({DRIVER}): of_driver}),
        (BASELINES, _read_baseline_steps(report, of, head, swapped)),
    ):
        own = tuple(name for name in swapped if name in group)
        if own and frozenset(own) in found:
            merged, own_steps = merge_unmeasured(own, found)
            groups.append(merged)
            steps |= own_steps
    return split_loss(groups, steps) if groups else None


def _list_rungs(
    report: ToolchainReport, head: ToolchainName, group: Container[str], swapped: Sequence[str]
) -> dict[str, Swapped]:
    """Maps the name of each mix of base and head to the dependencies that it takes from the head."""
    whole = frozenset(name for name in swapped if name in group)
    rungs = {side.name: frozenset(side.swapped) for side in report.sides if side.rung_of == head.name}
    return {head.name: whole} | {name: rung for name, rung in rungs.items() if rung.issubset(whole)}


def _read_code_steps(
    report: ToolchainReport, of: Operator, head: ToolchainName, swapped: Sequence[str]
) -> dict[Swapped, MeasuredChange]:
    kernel, problem, gpu_model = of
    steps: dict[Swapped, MeasuredChange] = {}
    for name, rung in _list_rungs(report, head, CODE, swapped).items():
        pair = report.pairs.get((kernel, problem, find_model(gpu_model).arch, name))
        step = (
            MeasuredChange(0.0)
            if pair is not None and pair.kind == "identical"
            else read_step(report.frozen.get((*of, name)))
        )
        if step is not None:
            steps[rung] = step
    return steps


def _read_baseline_steps(
    report: ToolchainReport, of: Operator, head: ToolchainName, swapped: Sequence[str]
) -> dict[Swapped, MeasuredChange]:
    """Maps each set of swapped dependencies to its effect on the baseline. A faster baseline counts as a loss."""
    sides = _list_rungs(report, head, BASELINES, swapped)
    found = {rung: read_step(report.baselines.get((*of, name))) for name, rung in sides.items()}
    return {rung: MeasuredChange(-step.log, step.half) for rung, step in found.items() if step is not None}
