"""Reports on what was measured on two sides anyway: two nodes, two periods of one node, or nights under a toolchain.

A driver cannot be put back, so the same cubins cannot be timed under both: series with identical machine code are
compared instead. A night under a candidate toolchain is held against the main line's at the same commits. Either way
the canaries are the control (worker/detection/two_nodes.py), and the words claim no more than that.
"""

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from tilewatch.db.lifecycle.toolchain_reports import JudgedReport
from tilewatch.db.repository_names import main_line_of
from tilewatch.db.step_queries.node_runs import NodeRunRow, list_node_runs, list_repository_runs
from tilewatch.db.worker_reads.judging import Scope
from tilewatch.errors import ExpectedError
from tilewatch.kernels.comparing.toolchains.safety_verdict import find_exit_code, find_most_urgent
from tilewatch.kernels.device import GpuSpec, gpu_model
from tilewatch.text import plain
from tilewatch.worker.detection.two_nodes import NodeChange, NodesCompared, NodeSide, NodeTime, compare_nodes


class NothingInCommon(ExpectedError):
    """Two sides measured nothing in common; the message is a sentence."""


@dataclass(frozen=True)
class NodesAsked:
    """Two nodes, or one named twice. Of A only runs before `before` count, of B only those since `since`."""

    a: str
    b: str
    model: GpuSpec
    before: dt.datetime | None = None
    since: dt.datetime | None = None

    @property
    def names(self) -> tuple[str, str]:
        """What the sides are called: the nodes, with the day that parts the two periods."""
        a = self.a if self.before is None else f"{self.a} before {self.before:%Y-%m-%d}"
        return a, self.b if self.since is None else f"{self.b} since {self.since:%Y-%m-%d}"


@dataclass(frozen=True)
class _Sides:
    """What is compared, in words. `made` are the versions that the sides are about; `same` says what both measured;
    `of` is what the control is for; `scope` says what the comparison does not show."""

    names: tuple[str, str]
    made: tuple[str, str]
    same: str
    of: str
    scope: str
    model: GpuSpec


def make_report(session: Session, asked: NodesAsked) -> JudgedReport:
    """Compares two nodes by what is in the database now. Raises NothingInCommon."""
    of_a = list_node_runs(session, asked.a, asked.model.slug, before=asked.before)
    of_b = list_node_runs(session, asked.b, asked.model.slug, since=asked.since)
    compared = compare_nodes(_read_side(of_a), _read_side(of_b))
    a, b = asked.names
    if not compared.changes:
        raise NothingInCommon(
            f"no series on {asked.model.slug} was measured with identical machine code on {a} ({len(of_a)} runs) and "
            f"on {b} ({len(of_b)} runs)"
        )
    drivers = (_name_versions(of_a, "driver"), _name_versions(of_b, "driver"))
    sides = _Sides((a, b), drivers, "with identical machine code", "the driver", _limit(asked, drivers), asked.model)
    return _write(f"nodes {asked.model.slug} {a} {b}", sides, compared)


def make_candidate_report(session: Session, scope: Scope) -> JudgedReport | None:
    """Compares the nights under a toolchain with those of the same commits without it; None for another scope, and
    where no commit was measured on both sides."""
    line = main_line_of(scope.repository)
    if line is None:
        return None
    main, under = line
    of_a, of_b = (
        list_repository_runs(session, repository, scope.gpu_model, scope.origin)
        for repository in (main, scope.repository)
    )
    compared = compare_nodes(_read_side(of_a, by_commit=True), _read_side(of_b, by_commit=True))
    if not compared.changes:
        return None
    versions = (_name_versions(of_a, *COMPILER), _name_versions(of_b, *COMPILER))
    words = "Nights differ in more than the toolchain; `tilewatch submit toolchain` times both cubins side by side."
    model = gpu_model(scope.gpu_model)
    sides = _Sides((main, under), versions, "at the same commit", "the toolchain", words, model)
    return _write(f"candidate {scope.gpu_model} {scope.origin} {scope.repository}", sides, compared)


COMPILER = ("cuda-tile", "nvidia-cuda-tileiras")


def _limit(asked: NodesAsked, drivers: tuple[str, str]) -> str:
    if drivers[0] == drivers[1]:
        return "Both have the same driver, so this is no comparison of drivers."
    if asked.a == asked.b:
        return "A node changes in more than its driver between two periods: cooling, firmware, other software and load."
    return "Two nodes differ in more than their driver: GPU, cooling, firmware, other software and load."


def _write(key: str, sides: _Sides, compared: NodesCompared) -> JudgedReport:
    lines = _write_answer(compared, sides)
    answer = _make_answer(compared, sides, " ".join(lines))
    markdown = _write_markdown(sides, lines, answer["operators"])
    now = dt.datetime.now(dt.UTC)
    return JudgedReport(key, *sides.names, made_at=now, contents={"frozen": []}, answer=answer, markdown=markdown)


def _write_answer(compared: NodesCompared, sides: _Sides) -> list[str]:
    """What was found, what the control says of it, and what it does not show: a sentence each."""
    (a, b), counts = sides.names, Counter(each.kind for each in compared.changes)
    found = (
        f"Of {len(compared.changes)} series {sides.same} on {a} ({sides.made[0]}) and {b} ({sides.made[1]}), "
        f"{counts['slower']} are surely slower on {b} by more than 1 %, {counts['faster']} faster, "
        f"{counts['as fast']} as fast, {counts['undecided']} not sure."
    )
    return [found, _write_control(compared, sides.of), sides.scope]


def _write_control(compared: NodesCompared, of: str) -> str:
    if compared.canaries is None:
        return "There are no canaries of both sides, so it is not known whether the GPUs are equally fast."
    canaries = "canaries ({:+.1%} computing, {:+.1%} memory)".format(*compared.canaries)
    if compared.is_control_equal:
        return f"The {canaries} are as fast, so the GPUs themselves differ by less than 1 %."
    return f"The {canaries} differ too: GPU, clock or cooling differ, so nothing can be said of {of}."


def _read_side(rows: Sequence[NodeRunRow], *, by_commit: bool = False) -> NodeSide:
    canaries = [
        (reading["canary_compute_us"], reading["canary_memory_us"])
        for row in rows
        for reading in row.telemetry
        if "canary_compute_us" in reading and "canary_memory_us" in reading
    ]
    times = (
        NodeTime(row.kernel, row.problem, f"{row.position:09} {row.sha}" if by_commit else row.code_sha256, row.time_us)
        for row in rows
    )
    return NodeSide(tuple(times), tuple(canaries))


def _name_versions(rows: Sequence[NodeRunRow], *names: str) -> str:
    """The versions of these packages on one side, all of them where there are several."""
    parts = []
    for name in names:
        versions = sorted({row.toolchain[name] for row in rows if row.toolchain.get(name)})
        parts.append(f"{name} {' and '.join(versions) or 'of an unknown version'}")
    return ", ".join(parts)


def _make_answer(compared: NodesCompared, sides: _Sides, sentence: str) -> dict[str, Any]:
    """As `make_answer` of kernels/comparing/toolchains/writing.py has it, so that one page shows both."""
    operators = [_make_operator(each, sides, compared) for each in compared.changes]
    safety = find_most_urgent(each["safety"] for each in operators)
    return {
        "answer": sentence,
        "safety": safety,
        "exit_code": find_exit_code(safety),
        "a": {"name": sides.names[0], "compiler": sides.made[0]},
        "b": {"name": sides.names[1], "compiler": sides.made[1]},
        "gpus": [{"model": sides.model.slug, "name": sides.model.name, "driver": None}],
        "operators": operators,
    }


def _make_operator(each: NodeChange, sides: _Sides, compared: NodesCompared) -> dict[str, Any]:
    safety = "safe" if each.kind in ("as fast", "faster") else "unknown"
    if each.kind == "slower" and compared.is_control_equal:
        safety = "not safe"
    interval = f"{each.kind} {each.change:+.1%} ({each.low:+.1%} to {each.high:+.1%})"
    names = {name: getattr(each, name) for name in ("kind", "change", "low", "high")}
    return {
        "kernel": each.kernel,
        "problem": each.problem,
        "arch": sides.model.arch,
        "gpu_model": sides.model.slug,
        "safety": safety,
        "reason": f"{interval} in {each.runs[0]} and {each.runs[1]} runs {sides.same}",
        "static": "",
        "moved": [],
        "config": {},
        "moved_to": None,
        "frozen": {**names, "launches": min(each.runs), "is_final": each.kind != "undecided"},
        "retuned": None,
    }


def _write_markdown(sides: _Sides, lines: Sequence[str], operators: Sequence[dict[str, Any]]) -> str:
    cells = ([plain(row[name]) for name in ("kernel", "problem", "safety", "reason")] for row in operators)
    rows = [f"| {' | '.join(each)} |" for each in cells]
    head = ["| kernel | problem | verdict | what differs |", "|---|---|---|---|"]
    return "\n".join([f"# {sides.names[0]} → {sides.names[1]}", "", *lines, "", *head, *rows, ""])
