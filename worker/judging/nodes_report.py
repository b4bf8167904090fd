"""Reports on two nodes, or two periods of one node: what a driver may have done, and what cannot be said of it.

A driver cannot be put back, so the same cubins cannot be timed under both. What the database has is compared instead,
series by series with identical machine code, with the canaries as control (worker/detection/two_nodes.py).
"""

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from tilewatch.db.lifecycle.toolchain_reports import JudgedReport
from tilewatch.db.step_queries.node_runs import NodeRunRow, list_node_runs
from tilewatch.errors import ExpectedError
from tilewatch.kernels.device import GpuSpec
from tilewatch.worker.detection.two_nodes import NodeChange, NodesCompared, NodeSide, NodeTime, compare_nodes


class NothingInCommon(ExpectedError):
    """Two nodes have no series with identical machine code; the message is a sentence."""


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


def make_report(session: Session, asked: NodesAsked) -> JudgedReport:
    """Compares what is in the database now. Raises NothingInCommon."""
    of_a = list_node_runs(session, asked.a, asked.model.slug, before=asked.before)
    of_b = list_node_runs(session, asked.b, asked.model.slug, since=asked.since)
    compared = compare_nodes(_read_side(of_a), _read_side(of_b))
    a, b = asked.names
    if not compared.changes:
        raise NothingInCommon(
            f"no series on {asked.model.slug} was measured with identical machine code on {a} ({len(of_a)} runs) and "
            f"on {b} ({len(of_b)} runs)"
        )
    drivers = (_write_drivers(of_a), _write_drivers(of_b))
    lines = write_answer(compared, asked, drivers)
    answer = _make_answer(compared, asked, drivers, " ".join(lines))
    return JudgedReport(
        key=f"nodes {asked.model.slug} {a} {b}",
        a=a,
        b=b,
        made_at=dt.datetime.now(dt.UTC),
        contents={"frozen": []},
        answer=answer,
        markdown=_write_markdown(asked, lines, answer["operators"]),
    )


def write_answer(compared: NodesCompared, asked: NodesAsked, drivers: tuple[str, str]) -> list[str]:
    """What was found, what the control says of it, and what it does not show: a sentence each."""
    (a, b), counts = asked.names, Counter(each.kind for each in compared.changes)
    found = (
        f"Of {len(compared.changes)} series with identical machine code on {a} ({drivers[0]}) and {b} ({drivers[1]}), "
        f"{counts['slower']} are surely slower on {b} by more than 1 %, {counts['faster']} faster, "
        f"{counts['as fast']} as fast, {counts['undecided']} not sure."
    )
    if drivers[0] == drivers[1]:
        scope = "Both have the same driver, so this is no comparison of drivers."
    elif asked.a == asked.b:
        scope = (
            "A node changes in more than its driver between two periods: cooling, firmware, other software and load."
        )
    else:
        scope = "Two nodes differ in more than their driver: GPU, cooling, firmware, other software and load."
    return [found, _write_control(compared), scope]


def _write_control(compared: NodesCompared) -> str:
    if compared.canaries is None:
        return "There are no canaries of both sides, so it is not known whether the GPUs are equally fast."
    canaries = "canaries ({:+.1%} computing, {:+.1%} memory)".format(*compared.canaries)
    if compared.is_control_equal:
        return f"The {canaries} are as fast, so the GPUs themselves differ by less than 1 %."
    return f"The {canaries} differ too: GPU, clock or cooling differ, so nothing can be said of the driver."


def _read_side(rows: Sequence[NodeRunRow]) -> NodeSide:
    canaries = [
        (reading["canary_compute_us"], reading["canary_memory_us"])
        for row in rows
        for reading in row.telemetry
        if "canary_compute_us" in reading and "canary_memory_us" in reading
    ]
    times = (NodeTime(row.kernel, row.problem, row.code_sha256, row.time_us) for row in rows)
    return NodeSide(tuple(times), tuple(canaries))


def _write_drivers(rows: Sequence[NodeRunRow]) -> str:
    named = sorted({row.driver for row in rows if row.driver})
    return f"driver {' and '.join(named)}" if named else "unknown driver"


def _make_answer(compared: NodesCompared, asked: NodesAsked, drivers: tuple[str, str], sentence: str) -> dict[str, Any]:
    """As `make_answer` of kernels/upgrading/writing.py has it, so that one page shows both."""
    operators = [_make_operator(each, asked.model, compared) for each in compared.changes]
    verdicts = {each["safety"] for each in operators}
    versions = " and ".join(dict.fromkeys(each.removeprefix("driver ") for each in drivers))
    safety = next((word for word in ("not safe", "unknown") if word in verdicts), "safe")
    return {
        "answer": sentence,
        "safety": safety,
        "exit_code": {"safe": 0, "not safe": 1, "unknown": 2}[safety],
        "a": {"name": asked.names[0], "compiler": drivers[0]},
        "b": {"name": asked.names[1], "compiler": drivers[1]},
        "gpus": [{"model": asked.model.slug, "name": asked.model.name, "driver": versions}],
        "operators": operators,
    }


def _make_operator(each: NodeChange, model: GpuSpec, compared: NodesCompared) -> dict[str, Any]:
    safety = "safe" if each.kind in ("as fast", "faster") else "unknown"
    if each.kind == "slower" and compared.is_control_equal:
        safety = "not safe"
    interval = f"{each.kind} {each.change:+.1%} ({each.low:+.1%} to {each.high:+.1%})"
    names = {name: getattr(each, name) for name in ("kind", "change", "low", "high")}
    return {
        "kernel": each.kernel,
        "problem": each.problem,
        "arch": model.arch,
        "gpu_model": model.slug,
        "safety": safety,
        "reason": f"{interval} in {each.runs[0]} and {each.runs[1]} runs of identical machine code",
        "static": "identical",
        "moved": [],
        "config": {},
        "moved_to": None,
        "frozen": {**names, "launches": min(each.runs), "is_final": each.kind != "undecided"},
        "retuned": None,
    }


def _write_markdown(asked: NodesAsked, lines: Sequence[str], operators: Sequence[dict[str, Any]]) -> str:
    rows = [f"| {row['kernel']} | {row['problem']} | {row['safety']} | {row['reason']} |" for row in operators]
    head = ["| kernel | problem | verdict | what differs |", "|---|---|---|---|"]
    return "\n".join([f"# {asked.names[0]} → {asked.names[1]}", "", *lines, "", *head, *rows, ""])
