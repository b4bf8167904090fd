"""Writes a comparison's outcomes as lines, JSON, Markdown and JUnit."""

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any
from xml.etree import ElementTree

from tilewatch.configs import config_option
from tilewatch.kernels.comparing.outcome import OVER, UNSURE, Outcome, exit_code
from tilewatch.text import COMMENT_CHARACTERS, fit_lines, plain, plain_code


@dataclass(frozen=True)
class About:
    """The subject and duration of a comparison. `gpu` is empty for comparisons without a GPU."""

    base: str
    head: str
    can_replay: bool
    gpu: str
    wall_s: float
    gpu_s: float
    repeat: str


def write_lines(outcomes: Sequence[Outcome], about: About) -> list[str]:
    """Returns a line for each timed kernel and problem, the most urgent first, then lines on the untimed ones."""
    timed = []
    for each in (each for each in _sort(outcomes) if each.verdict):
        timed.append(f"{each.kernel} {each.problem}: {_write_statement(each)}")
        if each.kind == "slower" and about.can_replay:
            timed.append(f"  again: {_write_replay(each, about)}")
    return [*timed, *_write_shared([each for each in _sort(outcomes) if not each.verdict]), _sum_up(outcomes, about)]


def _write_shared(outcomes: Sequence[Outcome]) -> list[str]:
    archs: dict[tuple[str, str, str], list[str]] = {}
    for each in outcomes:
        archs.setdefault((each.kernel, each.problem, _write_statement(each)), []).append(each.arch)
    problems: dict[tuple[str, str, str], list[str]] = {}
    for (kernel, problem, statement), listed in archs.items():
        problems.setdefault((kernel, ", ".join(listed), statement), []).append(problem)
    return [
        f"{kernel} {', '.join(listed)} ({named}): {statement}"
        for (kernel, named, statement), listed in problems.items()
    ]


def _write_statement(outcome: Outcome) -> str:
    return f"{outcome.sentence}; {', '.join(outcome.changes)}" if outcome.changes else outcome.sentence


def write_json(outcomes: Sequence[Outcome], about: About) -> str:
    rows = []
    for outcome in outcomes:
        row: dict[str, Any] = {**asdict(outcome), "sentence": outcome.sentence}
        for side in ("base", "head"):
            if row[f"{side}_facts"] is not None:
                del row[f"{side}_facts"]["remarks"]  # kilobytes that no program needs
        if outcome.verdict is not None:
            row["verdict"] = outcome.verdict.plain_values
            row["repeat"] = _write_replay(outcome, about) if about.can_replay else None
        rows.append(row)
    return json.dumps({**asdict(about), "exit_code": exit_code(outcomes), "outcomes": rows})


def write_markdown(outcomes: Sequence[Outcome], about: About) -> str:
    """Returns a comment for a pull request, as Markdown."""
    title = {OVER: "slower", UNSURE: "could not tell"}.get(exit_code(outcomes), "fine")
    lines = [f"### Tilewatch: {title} ({about.base} .. {about.head})", ""]
    others = [outcome for outcome in outcomes if outcome.kind != "identical"]
    if others:
        lines += ["| kernel | problem | verdict | what moved in the code |", "|---|---|---|---|"]
    for outcome in _sort(others):
        where = outcome.problem if outcome.verdict else f"{outcome.problem} {outcome.arch}"
        cells = (outcome.kernel, where, outcome.sentence, ", ".join(outcome.changes) or "-")
        lines.append(f"| {' | '.join(plain(cell) for cell in cells)} |")
    end = ["", _sum_up(outcomes, about), "", f"Repeat it: {plain_code(about.repeat)}", ""]
    return "\n".join([*fit_lines(lines, COMMENT_CHARACTERS - sum(len(line) + 1 for line in end)), *end])


def write_junit(outcomes: Sequence[Outcome], about: About) -> str:
    """Returns JUnit XML with one test per target. Slower than allowed is a failure, undecided is an error."""
    suite = ElementTree.Element("testsuite", name="tilewatch compare", tests=str(len(outcomes)))
    failures = errors = 0
    for outcome in outcomes:
        test = ElementTree.SubElement(
            suite, "testcase", classname=outcome.kernel, name=f"{outcome.problem} {outcome.arch}"
        )
        if outcome.verdict is not None and outcome.verdict.is_over:
            failures += 1
            ElementTree.SubElement(test, "failure", message=outcome.sentence).text = _write_statement(outcome)
        elif outcome.is_unsure:
            errors += 1
            ElementTree.SubElement(test, "error", message=outcome.sentence).text = _write_statement(outcome)
        else:
            ElementTree.SubElement(test, "system-out").text = _write_statement(outcome)
    suite.set("failures", str(failures))
    suite.set("errors", str(errors))
    suite.set("time", f"{about.wall_s:.1f}")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _write_replay(outcome: Outcome, about: About) -> str:
    """Returns the `tilewatch replay` command that times this target again."""
    operator = shlex.join([outcome.kernel, outcome.problem])
    line = f"tilewatch replay {operator} --of {about.head} --beside {about.base}"
    if outcome.head_config is not None:
        line += f" --config {shlex.quote(config_option(outcome.head_config))}"
    if outcome.base_config is not None and outcome.base_config != outcome.head_config:
        line += f" --beside-config {shlex.quote(config_option(outcome.base_config))}"
    if outcome.metric != "time":
        line += f" --metric {outcome.metric}"
    return line


def _sum_up(outcomes: Sequence[Outcome], about: About) -> str:
    if not outcomes:
        return f"{about.base} .. {about.head}: there is no kernel to compare"
    kinds = Counter(outcome.kind for outcome in outcomes)
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    where = f" on {about.gpu}, {about.gpu_s:.0f} s of GPU" if about.gpu else ""
    return f"{about.base} .. {about.head}{where}: {counts}; {about.wall_s:.0f} s"


def _sort(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Returns the outcomes with the most urgent first."""
    order = (
        "failed",
        "slower",
        "undecided",
        "faster",
        "changed",
        "not slower",
        "unchanged",
        "neither",
        "added",
        "removed",
    )

    def rank(outcome: Outcome) -> tuple[int, float]:
        urgency = order.index(outcome.kind) if outcome.kind in order else len(order)
        return urgency, 0.0 if outcome.verdict is None else -outcome.verdict.change

    return sorted(outcomes, key=rank)
