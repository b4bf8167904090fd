"""Judges a whole report, by times on a GPU model or by static facts alone."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewatch.grouping import group_by
from tilewatch.kernels.comparing.toolchains.pairs import ToolchainPair
from tilewatch.kernels.comparing.toolchains.report_file import ToolchainName, ToolchainReport
from tilewatch.kernels.comparing.toolchains.safety_verdict import OperatorSafety, Safety, judge_all, judge_operator
from tilewatch.kernels.comparing.verdict import Design
from tilewatch.kernels.device import gpu_model as find_model


@dataclass(frozen=True)
class GroupSafety:
    """A kernel's verdict under each head, over all problems. `newest_safe` is the base if no head is safe."""

    kernel: str
    by_head: Mapping[str, Safety]
    newest_safe: str


def list_differing(report: ToolchainReport, arch: str) -> list[ToolchainPair]:
    """Lists the pairs of an architecture whose machine code differs."""
    return [pair for pair in _list_pairs(report, arch) if pair.kind in ("changed", "stopped compiling")]


def make_design(report: ToolchainReport, arch: str) -> Design:
    """Returns the statistical settings for an architecture.

    They depend on the number of pairs that differ under one head, the one with the most. So each head's answer has the
    error of a comparison of that head alone, and more heads on a page need no more launches of each."""
    differing = Counter(pair.head_name for pair in list_differing(report, arch))
    return Design(max(differing.values(), default=1), fail_over=report.fail_over)


def judge_report(report: ToolchainReport, gpu_model: str) -> tuple[OperatorSafety, ...]:
    """Returns the verdicts on all heads for one GPU model."""
    return _judge_pairs(report, find_model(gpu_model).arch, gpu_model)


def judge_statically(report: ToolchainReport, arch: str) -> tuple[OperatorSafety, ...]:
    """Returns the verdicts on all heads for one architecture, by static facts alone."""
    return _judge_pairs(report, arch, "")


def _judge_pairs(report: ToolchainReport, arch: str, gpu_model: str) -> tuple[OperatorSafety, ...]:
    design = make_design(report, arch)
    judged = []
    for pair in _list_pairs(report, arch):
        key = (pair.kernel, pair.problem, gpu_model, pair.head_name)
        frozen, retuned, retuning = report.frozen.get(key), report.retuned.get(key), report.retunings.get(key)
        judged.append(judge_operator(pair, gpu_model, design, frozen=frozen, retuned=retuned, retuning=retuning))
    return tuple(judged)


def _list_pairs(report: ToolchainReport, arch: str) -> list[ToolchainPair]:
    """Lists the pairs of an architecture, without mixes of base and head."""
    heads = {head.name for head in report.heads}
    return [pair for pair in report.pairs.values() if pair.arch == arch and pair.head_name in heads]


def list_archs(report: ToolchainReport) -> tuple[str, ...]:
    return tuple(dict.fromkeys(pair.arch for pair in report.pairs.values()))


def list_untimed_archs(report: ToolchainReport) -> tuple[str, ...]:
    """Lists the report's architectures on which nothing was timed."""
    timed = {find_model(slug).arch for slug in report.gpus}
    return tuple(arch for arch in list_archs(report) if arch not in timed)


def judge_everything(report: ToolchainReport) -> tuple[OperatorSafety, ...]:
    """Returns the verdicts from the times on each GPU model, or from static facts where nothing was timed."""
    on_gpus = [each for gpu_model in report.gpus for each in judge_report(report, gpu_model)]
    static = [each for arch in list_untimed_archs(report) for each in judge_statically(report, arch)]
    return (*on_gpus, *(each for each in static if not report.gpus or each.safety == "not safe"))


def list_of_head(judged: Sequence[OperatorSafety], head: str) -> list[OperatorSafety]:
    return [each for each in judged if each.pair.head_name == head]


def find_newest_safe(report: ToolchainReport, judged: Sequence[OperatorSafety]) -> ToolchainName:
    """Returns the last head under which all operators are safe, or the base."""
    safe = [head for head in report.heads if judge_all(list_of_head(judged, head.name)) == "safe"]
    return safe[-1] if safe and judged else report.base


def judge_groups(report: ToolchainReport) -> tuple[GroupSafety, ...]:
    """Returns the verdicts on each kernel."""
    return tuple(
        GroupSafety(
            kernel,
            {head.name: judge_all(list_of_head(judged, head.name)) for head in report.heads},
            find_newest_safe(report, judged).name,
        )
        for kernel, judged in group_by(judge_everything(report), lambda each: each.pair.kernel).items()
    )
