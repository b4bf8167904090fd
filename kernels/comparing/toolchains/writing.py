"""Writes a report of toolchains as lines, Markdown and JSON."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tilewatch.configs import config_option
from tilewatch.kernels.comparing.outcome import write_verdict
from tilewatch.kernels.comparing.toolchains.ladder import DRIVER, LEAST_POINTS
from tilewatch.kernels.comparing.toolchains.ladders import OperatorLadder, list_ladders
from tilewatch.kernels.comparing.toolchains.pairs import CompileTimes, add_compile_times
from tilewatch.kernels.comparing.toolchains.report_file import ToolchainReport
from tilewatch.kernels.comparing.toolchains.report_verdict import (
    GroupSafety,
    find_newest_safe,
    judge_everything,
    judge_groups,
    judge_report,
    judge_statically,
    list_archs,
    list_of_head,
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

LADDER_NOTE = (
    "A point is 1 % of the base's time. A share is the mean of two orders of swapping one dependency at a time; shares "
    "add up to the loss."
)

HEADLINES: dict[Safety, str] = {
    "safe": "is safe to take in place of",
    "safe if re-tuned": "is safe to take in place of {base} if some operators are re-tuned, and slower as it is than",
    "not safe": "is not safe to take in place of",
    "unknown": "cannot be called safe or not in place of",
}


def write_answer(report: ToolchainReport) -> str:
    """Returns a line about each head, and a line that says which toolchain to take."""
    judged = judge_everything(report)
    sentences = [_write_head(report, head.name, list_of_head(judged, head.name)) for head in report.heads]
    if len(report.heads) > 1:
        taken = find_newest_safe(report, judged)
        reason = "no other toolchain is safe" if taken == report.base else "the last of these that is safe"
        sentences.append(f"Take {taken.name}: {reason}.")
    return "\n".join(sentences)


def _write_head(report: ToolchainReport, head: str, judged: Sequence[OperatorSafety]) -> str:
    base = report.base.name
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
    """Returns the operator that the head slows down most, or None if none is slower."""
    worse = [each for each in judged if each.safety in ("not safe", "safe if re-tuned")]
    return min(worse, key=lambda each: (ORDER.index(each.safety), -_find_change(each)), default=None)


def write_lines(report: ToolchainReport) -> list[str]:
    """Returns the answer, its evidence, and a line for each operator that needs attention."""
    lines = [write_answer(report), ""]
    for gpu in report.gpus.values():
        judged = judge_report(report, gpu.model)
        lines.append(f"On {gpu.name} (driver {gpu.driver}), {gpu.wall_s / 60:.1f} minutes:")
        for head in report.heads:
            lines += [f"With {head.name}:"] if len(report.heads) > 1 else []
            lines += _list_urgent(list_of_head(judged, head.name))
        lines.append("")
    if ladders := list_ladders(report):
        lines.append("What took it, in points of 1 % of the base's time:")
        for each in ladders:
            lines.append(f"  {each.head}: {each.kernel} {each.problem}: {': '.join(_write_ladder(each))}")
        lines.append("")
    lines += ["What the compilers make of it:"]
    for half in _list_halves(report):
        lines.append(f"  {_name_half(report, *half)}: {_summarize(report, *half)}")
        lines += (f"    {line}" for line in _list_moved(report, *half))
    lines += (f"  {line}" for arch in list_untimed_archs(report) for line in _list_broken(report, arch))
    lines += ["", *_describe(report)]
    return lines


def write_markdown(report: ToolchainReport) -> str:
    """Returns a report as Markdown."""
    lines = [f"# {report.title}", ""]
    for line in write_answer(report).splitlines():
        lines += [f"**{line}**", ""]
    for gpu in report.gpus.values():
        judged = judge_report(report, gpu.model)
        names = [plain(head.name) for head in report.heads]
        lines += [f"## {gpu.name}", "", *_write_table("kernel", "problem", *names, "moved")]
        operators: dict[tuple[str, str], dict[str, OperatorSafety]] = {}
        for each in _sort(judged):
            operators.setdefault((each.pair.kernel, each.pair.problem), {})[each.pair.head_name] = each
        for operator, verdicts in operators.items():
            if any(each.pair.kind != "identical" for each in verdicts.values()):
                lines.append(_write_row(report, operator, verdicts))
        same = sum(each.pair.kind == "identical" for each in judged)
        lines += ["", f"Identical machine code: {same} of {len(judged)}.", ""]
    if ladders := list_ladders(report):
        lines += ["## What took it", "", *_write_table("kernel", "problem", "version", "loss", "shares")]
        rows = ((each.kernel, each.problem, each.head, *_write_ladder(each)) for each in ladders)
        lines += [*(f"| {' | '.join(map(plain, row))} |" for row in rows), "", LADDER_NOTE, ""]
    if len(report.heads) > 1:
        lines += ["## By kernel", "", *_write_table("kernel", *(plain(head.name) for head in report.heads), "take")]
        lines += [f"| {' | '.join(map(plain, _write_group(report, each)))} |" for each in judge_groups(report)]
        lines.append("")
    lines += ["## What the compilers make of it", "", *_write_table("architecture", "what moved")]
    halves = list(_list_halves(report))
    lines += [f"| {_name_half(report, *half)} | {_summarize(report, *half)} |" for half in halves]
    for half in halves:
        lines += ["", *(f"- {_name_half(report, *half)} {line}" for line in _list_moved(report, *half))]
    for arch in list_untimed_archs(report):
        lines += ["", *_list_broken(report, arch)]
    lines += ["", *_describe(report), ""]
    return "\n".join(lines)


def _write_table(*columns: str) -> list[str]:
    return [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]


def _write_row(report: ToolchainReport, operator: tuple[str, str], verdicts: Mapping[str, OperatorSafety]) -> str:
    """Returns the table row of an operator: the verdict under each head, and the changes in its code."""
    cells, moved = [], []
    for head in report.heads:
        each = verdicts.get(head.name)
        if each is None:  # the report is not finished
            cells.append("-")
            continue
        frozen = each.reason if each.frozen is None or math.isinf(each.frozen.high) else write_verdict(each.frozen)
        retuned = "" if each.retuned is None else f"; re-tuned: {write_verdict(each.retuned)}"
        cells.append("identical" if each.pair.kind == "identical" else f"{each.safety}: {frozen}{retuned}")
        name = f"{head.name}: " if len(report.heads) > 1 else ""
        if moves := [*each.pair.moved, *_write_optimum(each)]:
            moved.append(f"{name}{', '.join(moves)}")
    listed = ("; ".join(moved) or "-").replace("|", "/")
    return f"| {' | '.join([*map(plain, (*operator, *cells)), listed])} |"


def _write_group(report: ToolchainReport, group: GroupSafety) -> list[str]:
    return [group.kernel, *(group.by_head[head.name] for head in report.heads), group.newest_safe]


def _write_ladder(found: OperatorLadder) -> tuple[str, str]:
    """Returns the loss of an operator and each dependency's share of it, as texts."""
    shares = []
    for share in sorted(found.ladder.shares, key=lambda each: -each.points):
        text = f"{share.dependency} {share.points:+.1f} ({share.low:.1f} to {share.high:.1f})"
        if share.interaction is not None and abs(share.interaction) >= LEAST_POINTS:
            text += f", {share.interaction:+.1f} more in the reverse order"
        shares.append(text)
    return f"{found.ladder.loss:+.1f}", "; ".join(shares)


def write_pins(report: ToolchainReport) -> str:
    """Returns the packages of the newest safe toolchain as lines NAME==VERSION for pip."""
    taken = find_newest_safe(report, judge_everything(report))
    head = f"# The versions of {taken.name}, by `tilewatch toolchain compare` of {report.title}, {report.made_at}.\n"
    versions = sorted((name, version) for name, version in taken.versions.items() if name != DRIVER)
    return head + "".join(f"{package}=={version}\n" for package, version in versions)


def write_json(report: ToolchainReport) -> str:
    return json.dumps(make_answer(report))


def make_answer(report: ToolchainReport) -> dict[str, Any]:
    """Returns the object that `--json` prints and the dashboard stores."""
    judged = judge_everything(report)
    operators = []
    for each in judged:
        row = {
            "kernel": each.pair.kernel,
            "problem": each.pair.problem,
            "arch": each.pair.arch,
            "gpu_model": each.gpu_model or None,
            "head": each.pair.head_name,
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
    return {
        **{"answer": write_answer(report), "safety": judge_all(judged), "exit_code": safety_exit_code(judged)},
        "sides": [asdict(each) for each in (report.base, *report.heads)],
        "gpus": [asdict(each) for each in report.gpus.values()],
        "compile_times": [
            {"arch": arch, "head": head, **asdict(_add_times(report, arch, head))}
            for arch, head in _list_halves(report)
        ],
        "operators": operators,
        "ladders": [{**asdict(each), "blamed": list(each.ladder.blamed)} for each in list_ladders(report)],
        "groups": [asdict(each) for each in judge_groups(report)],
        "take": find_newest_safe(report, judged).name,
    }


def _list_urgent(judged: Sequence[OperatorSafety]) -> Iterator[str]:
    """Yields a line for each operator whose machine code differs."""
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


def _list_halves(report: ToolchainReport) -> list[tuple[str, str]]:
    """Lists all combinations of an architecture and a head."""
    return [(arch, head.name) for arch in list_archs(report) for head in report.heads]


def _name_half(report: ToolchainReport, arch: str, head: str) -> str:
    return f"{arch} {plain(head)}" if len(report.heads) > 1 else arch


def _summarize(report: ToolchainReport, arch: str, head: str) -> str:
    """Returns how many operators of an architecture changed under a head, and which of their static facts."""
    pairs = [pair for pair in report.pairs.values() if (pair.arch, pair.head_name) == (arch, head)]
    kinds = Counter(pair.kind for pair in pairs)
    parts = [f"{count} of {len(pairs)} {kind}" for kind, count in kinds.most_common()]
    changed = [pair for pair in pairs if pair.kind == "changed"]
    for name, read, unit in FACTS:
        both = [
            (read(pair.base[0].facts), read(pair.head[0].facts))
            for pair in changed
            if pair.base[0].facts and pair.head[0].facts
        ]
        moves = [(of_base, of_head) for of_base, of_head in both if of_base is not None and of_head is not None]
        more, fewer = sum(head > base for base, head in moves), sum(head < base for base, head in moves)
        if more or fewer:
            worst = max(moves, key=lambda move: abs(move[1] - move[0]))
            parts.append(f"{name}: more in {more}, fewer in {fewer}, at most {worst[0]} -> {worst[1]}{unit}")
    if serial := sum(pair.waits_for_each_mma for pair in changed):
        parts.append(f"waits for each MMA now: {serial}")
    times = _add_times(report, arch, head)
    if times.configs:
        slower = "slower to compile" if times.is_slower else "compiling"
        parts.append(
            f"{slower}: {times.base_cpu_s:.0f} -> {times.head_cpu_s:.0f} CPU seconds for {times.configs} configs "
            f"({times.base_wall_s:.0f} -> {times.head_wall_s:.0f} s of wall time)"
        )
    return "; ".join(parts)


def _list_moved(report: ToolchainReport, arch: str, head: str) -> Iterator[str]:
    """Yields lines about operators whose static facts changed, apart from the number of instructions."""
    alike: dict[tuple[str, str], list[str]] = {}
    for pair in report.pairs.values():
        moved = [each for each in pair.moved if not each.startswith("instructions ")]
        if (pair.arch, pair.head_name, pair.kind) == (arch, head, "changed") and moved:
            alike.setdefault((pair.kernel, ", ".join(pair.moved)), []).append(pair.problem)
    for (kernel, moves), problems in alike.items():
        yield f"{kernel} {', '.join(problems)}: {moves}"


FACTS: tuple[tuple[str, Callable[[Any], int | None], str], ...] = (
    ("registers", lambda facts: facts.registers, ""),
    ("spills", lambda facts: facts.stack_bytes, " bytes"),
    ("shared memory", lambda facts: facts.shared_bytes, " bytes"),
    ("code", lambda facts: facts.code_bytes, " bytes"),
    ("loads by TMA", lambda facts: facts.tma_loads if facts.loads else None, ""),
    ("MMAs on Tensor Cores", lambda facts: facts.tensor_core_mmas if facts.mmas else None, ""),
)


def _list_broken(report: ToolchainReport, arch: str) -> Iterator[str]:
    for each in judge_statically(report, arch):
        if each.safety == "not safe":
            half = _name_half(report, arch, each.pair.head_name)
            yield f"not safe: {each.pair.kernel} {each.pair.problem} ({half}): {each.reason}"


def _describe(report: ToolchainReport) -> list[str]:
    """Returns lines about how the toolchains were compared and how sure the verdicts are."""
    lines = [
        *(f"{each.name}: {each.compiler}" for each in (report.base, *report.heads)),
        f"Compiled in {report.static_wall_s / 60:.1f} minutes by {report.static_jobs} processes, {report.made_at}.",
    ]
    if report.gpus:
        limit = f" by more than {report.fail_over:.1%}" if report.fail_over else ""
        lines.append(
            f"Worse means surely slower{limit}: the probability of any wrong one among the frozen answers of a GPU "
            f"model is {FAMILY_ERROR:.1%} at most, and among the re-tuned ones too; each interval holds at 95 %."
        )
    return lines


def _add_times(report: ToolchainReport, arch: str, head: str) -> CompileTimes:
    return add_compile_times(pair for pair in report.pairs.values() if (pair.arch, pair.head_name) == (arch, head))


def _sort(judged: Sequence[OperatorSafety]) -> list[OperatorSafety]:
    return sorted(judged, key=lambda each: (ORDER.index(each.safety), -_find_change(each)))


def _find_change(each: OperatorSafety) -> float:
    return each.frozen.change if each.frozen is not None else math.inf if each.safety == "not safe" else 0.0


def _write_optimum(each: OperatorSafety) -> list[str]:
    if each.moved_to is None:
        return []
    return [f"optimum {config_option(each.pair.base[0].config)} -> {config_option(each.moved_to)}"]
