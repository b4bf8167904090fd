"""Judges a whole report: every operator on a GPU model, or by static facts alone. Has no side effects."""

from tilewatch.kernels.comparing.toolchains.pairs import ToolchainPair
from tilewatch.kernels.comparing.toolchains.report_file import ToolchainReport
from tilewatch.kernels.comparing.toolchains.safety_verdict import OperatorSafety, judge_operator
from tilewatch.kernels.comparing.verdict import Design
from tilewatch.kernels.device import gpu_model as find_model


def list_differing(report: ToolchainReport, arch: str) -> list[ToolchainPair]:
    """Lists the pairs of an architecture that the base compiles, and the head differently or not at all."""
    pairs = (pair for pair in report.pairs.values() if pair.arch == arch)
    return [pair for pair in pairs if pair.kind in ("changed", "stopped compiling")]


def make_design(report: ToolchainReport, arch: str) -> Design:
    """Returns the design in which the operators of an architecture whose machine code differs are one family."""
    return Design(max(1, len(list_differing(report, arch))), fail_over=report.fail_over)


def judge_report(report: ToolchainReport, gpu_model: str) -> tuple[OperatorSafety, ...]:
    """Returns the verdicts on one GPU model, in the library's order."""
    return _judge_pairs(report, find_model(gpu_model).arch, gpu_model)


def judge_statically(report: ToolchainReport, arch: str) -> tuple[OperatorSafety, ...]:
    """Returns the verdicts on one architecture by static facts alone."""
    return _judge_pairs(report, arch, "")


def _judge_pairs(report: ToolchainReport, arch: str, gpu_model: str) -> tuple[OperatorSafety, ...]:
    design = make_design(report, arch)
    judged = []
    for pair in (each for each in report.pairs.values() if each.arch == arch):
        key = (pair.kernel, pair.problem, gpu_model)
        frozen, retuned, retuning = report.frozen.get(key), report.retuned.get(key), report.retunings.get(key)
        judged.append(judge_operator(pair, gpu_model, design, frozen=frozen, retuned=retuned, retuning=retuning))
    return tuple(judged)


def list_archs(report: ToolchainReport) -> tuple[str, ...]:
    return tuple(dict.fromkeys(pair.arch for pair in report.pairs.values()))


def list_untimed_archs(report: ToolchainReport) -> tuple[str, ...]:
    """Lists the architectures that were timed on no GPU."""
    timed = {find_model(slug).arch for slug in report.gpus}
    return tuple(arch for arch in list_archs(report) if arch not in timed)


def judge_everything(report: ToolchainReport) -> tuple[OperatorSafety, ...]:
    """Returns all verdicts: those on each timed GPU model, and on other architectures those of operators that stopped
    compiling. If no GPU was used, all are by static facts alone."""
    on_gpus = [each for gpu_model in report.gpus for each in judge_report(report, gpu_model)]
    static = [each for arch in list_untimed_archs(report) for each in judge_statically(report, arch)]
    return (*on_gpus, *(each for each in static if not report.gpus or each.safety == "not safe"))
