"""Writes a report as lines, Markdown and JSON. Values in, text out."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from tilewatch.configs import config_option
from tilewatch.kernels.comparing.outcome import write_verdict
from tilewatch.kernels.comparing.toolchains.pairs import add_compile_times
from tilewatch.kernels.comparing.toolchains.report_file import ToolchainReport
from tilewatch.kernels.comparing.toolchains.report_verdict import (
    judge_everything,
    judge_report,
    judge_statically,
    list_archs,
    list_untimed_archs,
)
from tilewatch.kernels.comparing.toolchains.safety_verdict import (
    NOT_REACHED,
    ORDER,
    TOO_FEW,
    OperatorSafety,
    Safety,
    judge_all,
    safety_exit_code,
)
from tilewatch.kernels.comparing.verdict import FAMILY_ERROR
from tilewatch.text import plain

HEADLINES: dict[Safety, str] = {
    "safe": "is safe to take in place of",
    "safe if re-tuned": "is safe to take in place of {base} if some operators are re-tuned, and slower as it is than",
    "not safe": "is not safe to take in place of",
    "unknown": "cannot be called safe or not in place of",
}


def write_answer(report: ToolchainReport) -> str:
    """Writes the answer in one sentence."""
    judged = judge_everything(report)
    base, head = report.base.name, report.head.name
    headline = HEADLINES[judge_all(judged)].format(base=base)
    where = ", ".join(report.gpus) or f"{', '.join(list_archs(report))} by the compiler's half alone"
    counts = Counter(each.safety for each in judged)
    identical = sum(each.pair.kind == "identical" for each in judged)
    parts = [f"{counts[safety]} {safety}" for safety in ORDER if counts[safety]]
    worst = find_worst(judged)
    serial = sum(each.pair.waits_for_each_mma for each in judged if each.frozen is None)
    waits = f"; {serial} not timed wait for each of their MMAs now, which costs time" if serial else ""
    ending = f"; the worst is {worst.pair.kernel} {worst.pair.problem}, {worst.reason}" if worst is not None else ""
    total = f"of {len(judged)} operators and problems" if judged else "there is nothing to compare"
    counted = f"{total} {', '.join(parts)} ({identical} identical machine code)"
    return f"{head} {headline} {base} on {where}: {counted}{waits}{ending}."


def find_worst(judged: Sequence[OperatorSafety]) -> OperatorSafety | None:
    """Returns the operator that the head slows down most, among the most urgent. None if it makes none worse."""
    worse = [each for each in judged if each.safety in ("not safe", "safe if re-tuned")]
    return min(worse, key=lambda each: (ORDER.index(each.safety), -_find_change(each)), default=None)


def write_lines(report: ToolchainReport) -> list[str]:
    """Writes the answer, its evidence, then every operator that needs attention, the most urgent first."""
    lines = [write_answer(report), ""]
    for gpu in report.gpus.values():
        judged = judge_report(report, gpu.model)
        lines += [f"On {gpu.name} (driver {gpu.driver}), {gpu.wall_s / 60:.1f} minutes:", *_list_urgent(judged), ""]
    lines += ["What the compilers make of it:"]
    for arch in list_archs(report):
        lines += [f"  {arch}: {_summarize(report, arch)}", *(f"    {line}" for line in _list_moved(report, arch))]
    for arch in list_untimed_archs(report):
        lines += (f"  {line}" for line in _list_broken(report, arch))
    lines += ["", *_describe(report)]
    return lines


def write_markdown(report: ToolchainReport) -> str:
    """Writes a report as Markdown, to keep or to attach to a pull request."""
    lines = [f"# {report.base.name} → {report.head.name}", "", f"**{write_answer(report)}**", ""]
    for gpu in report.gpus.values():
        lines += [
            f"## {gpu.name}",
            "",
            "| kernel | problem | verdict | frozen | re-tuned | moved |",
            "|---|---|---|---|---|---|",
        ]
        for each in _sort(judge_report(report, gpu.model)):
            if each.pair.kind == "identical":
                continue
            moved = ", ".join([*each.pair.moved, *_write_optimum(each)]) or "-"
            frozen = each.reason if each.frozen is None or math.isinf(each.frozen.high) else write_verdict(each.frozen)
            retuned = "-" if each.retuned is None else write_verdict(each.retuned)
            names = (plain(each.pair.kernel), plain(each.pair.problem))
            cells = (*names, each.safety, plain(frozen), retuned, moved.replace("|", "/"))
            lines.append(f"| {' | '.join(cells)} |")
        same = [each for each in judge_report(report, gpu.model) if each.pair.kind == "identical"]
        lines += ["", f"Identical machine code: {len(same)}.", ""]
    lines += ["## What the compilers make of it", "", "| architecture | what moved |", "|---|---|"]
    lines += [f"| {arch} | {_summarize(report, arch)} |" for arch in list_archs(report)]
    for arch in list_archs(report):
        lines += ["", *(f"- {arch} {line}" for line in _list_moved(report, arch))]
    for arch in list_untimed_archs(report):
        lines += ["", *_list_broken(report, arch)]
    lines += ["", *_describe(report), ""]
    return "\n".join(lines)


def write_json(report: ToolchainReport) -> str:
    return json.dumps(make_answer(report))


def make_answer(report: ToolchainReport) -> dict[str, Any]:
    """Returns the object that `--json` prints and the dashboard stores: plain values, None for an infinite number."""
    judged = judge_everything(report)
    operators = []
    for each in judged:
        row = {
            "kernel": each.pair.kernel,
            "problem": each.pair.problem,
            "arch": each.pair.arch,
            "gpu_model": each.gpu_model or None,
            "safety": each.safety,
            "reason": each.reason,
            "static": each.pair.kind,
            "moved": list(each.pair.moved),
            "config": each.pair.base[0].config,
            "config_source": each.pair.config_source,
            "moved_to": each.moved_to,
            "frozen": None if each.frozen is None else each.frozen.plain_values,
            "retuned": None if each.retuned is None else each.retuned.plain_values,
        }
        operators.append(row)
    compiled = {arch: asdict(_add_times(report, arch)) for arch in list_archs(report)}
    about = {"answer": write_answer(report), "safety": judge_all(judged), "exit_code": safety_exit_code(judged)}
    sides = {
        "base": asdict(report.base),
        "head": asdict(report.head),
        "gpus": [asdict(each) for each in report.gpus.values()],
    }
    return {**about, **sides, "compile_times": compiled, "operators": operators}


def _list_urgent(judged: Sequence[OperatorSafety]) -> Iterator[str]:
    """Yields a line for each operator whose machine code differs. Operators that were not timed share a line."""
    unreached = []
    for each in _sort(judged):
        if each.pair.kind in ("identical", "compiles with neither"):
            continue
        if each.reason.startswith((NOT_REACHED, TOO_FEW)):
            unreached.append(f"{each.pair.kernel} {each.pair.problem}")
            continue
        moved = f" ({', '.join(each.pair.moved)})" if each.pair.moved and each.safety != "safe" else ""
        yield f"  {each.safety}: {each.pair.kernel} {each.pair.problem}: {each.reason}{moved}"
    if unreached:
        yield f"  unknown, not timed enough in the time given: {', '.join(unreached)}"
    same = sum(each.pair.kind == "identical" for each in judged)
    yield f"  identical machine code: {same} of {len(judged)}"


def _summarize(report: ToolchainReport, arch: str) -> str:
    """Returns how many pairs of an architecture moved, and in which facts."""
    pairs = [pair for pair in report.pairs.values() if pair.arch == arch]
    kinds = Counter(pair.kind for pair in pairs)
    parts = [f"{count} of {len(pairs)} {kind}" for kind, count in kinds.most_common()]
    changed = [pair for pair in pairs if pair.kind == "changed"]
    for name, read, unit in FACTS:
        moves = [
            (read(pair.base[0].facts), read(pair.head[0].facts))
            for pair in changed
            if pair.base[0].facts and pair.head[0].facts
        ]
        more, fewer = sum(head > base for base, head in moves), sum(head < base for base, head in moves)
        if more or fewer:
            worst = max(moves, key=lambda move: abs(move[1] - move[0]))
            parts.append(f"{name}: more in {more}, fewer in {fewer}, at most {worst[0]} -> {worst[1]}{unit}")
    if serial := sum(pair.waits_for_each_mma for pair in changed):
        parts.append(f"waits for each MMA now: {serial}")
    times = _add_times(report, arch)
    if times.configs:
        slower = "slower to compile" if times.is_slower else "compiling"
        parts.append(
            f"{slower}: {times.base_cpu_s:.0f} -> {times.head_cpu_s:.0f} CPU seconds for {times.configs} configs "
            f"({times.base_wall_s:.0f} -> {times.head_wall_s:.0f} s of wall time)"
        )
    return "; ".join(parts)


def _list_moved(report: ToolchainReport, arch: str) -> Iterator[str]:
    """Yields the operators in which more than the number of instructions moved. Equal moves share a line."""
    alike: dict[tuple[str, str], list[str]] = {}
    for pair in report.pairs.values():
        moved = [each for each in pair.moved if not each.startswith("instructions ")]
        if pair.arch == arch and pair.kind == "changed" and moved:
            alike.setdefault((pair.kernel, ", ".join(pair.moved)), []).append(pair.problem)
    for (kernel, moves), problems in alike.items():
        yield f"{kernel} {', '.join(problems)}: {moves}"


FACTS: tuple[tuple[str, Callable[[Any], int], str], ...] = (
    ("registers", lambda facts: facts.registers, ""),
    ("spills", lambda facts: facts.stack_bytes, " bytes"),
    ("shared memory", lambda facts: facts.shared_bytes, " bytes"),
    ("code", lambda facts: facts.code_bytes, " bytes"),
    ("loads by TMA", lambda facts: facts.tma_loads, ""),
    ("MMAs on Tensor Cores", lambda facts: facts.tensor_core_mmas, ""),
)


def _list_broken(report: ToolchainReport, arch: str) -> Iterator[str]:
    for each in judge_statically(report, arch):
        if each.safety == "not safe":
            yield f"not safe: {each.pair.kernel} {each.pair.problem} ({arch}): {each.reason}"


def _describe(report: ToolchainReport) -> list[str]:
    """Describes what was compared, how, and how sure the answers are."""
    lines = [
        f"{report.base.name}: {report.base.compiler}",
        f"{report.head.name}: {report.head.compiler}",
        f"Compiled in {report.static_wall_s / 60:.1f} minutes by {report.static_jobs} processes, {report.made_at}.",
    ]
    if report.gpus:
        limit = f" by more than {report.fail_over:.1%}" if report.fail_over else ""
        lines.append(
            f"Worse means surely slower{limit}: the probability of any wrong one among the frozen answers of a GPU "
            f"model is {FAMILY_ERROR:.1%} at most, and among the re-tuned ones too; each interval holds at 95 %."
        )
    return lines


def _add_times(report: ToolchainReport, arch: str) -> Any:
    return add_compile_times(pair for pair in report.pairs.values() if pair.arch == arch)


def _sort(judged: Sequence[OperatorSafety]) -> list[OperatorSafety]:
    return sorted(judged, key=lambda each: (ORDER.index(each.safety), -_find_change(each)))


def _find_change(each: OperatorSafety) -> float:
    return each.frozen.change if each.frozen is not None else math.inf if each.safety == "not safe" else 0.0


def _write_optimum(each: OperatorSafety) -> list[str]:
    if each.moved_to is None:
        return []
    return [f"optimum {config_option(each.pair.base[0].config)} -> {config_option(each.moved_to)}"]
