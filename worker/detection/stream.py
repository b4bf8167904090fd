"""Runs the detector on JSON lines, without a database: `tilewatch judge --stream`.

A line of type `world` names the series. Every other line gets an answer: the confirmed changes, the replays to run,
and `left_out`, a list of unusable entries."""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeGuard

from tilewatch.worker.detection.detector import Detector, Response
from tilewatch.worker.detection.reading import Reading
from tilewatch.worker.detection.replay_evidence import ReplayAnswer
from tilewatch.worker.detection.scope_state import NodeKernel

NOTHING = Response((), ())

NO_LINE = "this is not a world, night or rerun in JSON"

KERNEL = "cand"

MOST = 2**62
"""The largest whole number in a line. NumPy's integers have 64 bits, and some of these numbers are added."""


class NotTheProtocol(Exception):
    """Raised if a line does not follow the protocol of `tilewatch judge --stream`."""


def answer_lines(
    lines: Iterable[str], complain: Callable[[str], None], refuse: Callable[[str], None] = lambda _: None
) -> Iterator[str]:
    """Yields an answer to each line except `world` lines. Calls `refuse` if a whole line cannot be used."""
    detector: Detector | None = None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue

        left_out: list[str] = []

        def complain_here(sentence: str, number: int = number, left_out: list[str] = left_out) -> None:
            left_out.append(sentence)
            complain(f"line {number}: {sentence}")

        try:
            fields = json.loads(line)
            kind = fields.get("type") if isinstance(fields, dict) else None
        except (ValueError, RecursionError):
            fields, kind = {}, None
        if kind == "world":
            detector = _start(fields, complain_here)
            continue
        response = NOTHING
        try:
            response = _respond(detector, fields, kind, complain_here)
        except NotTheProtocol as error:
            complain_here(str(error))
            refuse(str(error))
        yield _write(response, left_out)


def _respond(detector: Detector | None, fields: dict[str, Any], kind: Any, complain: Callable[[str], None]) -> Response:
    if kind not in ("night", "rerun"):
        raise NotTheProtocol(NO_LINE)
    if detector is None:
        raise NotTheProtocol(f"this {kind} comes before any world that can be used")
    return _add_night(detector, fields, complain) if kind == "night" else _add_answers(detector, fields, complain)


def _start(fields: dict[str, Any], complain: Callable[[str], None]) -> Detector | None:
    """Returns a detector for the series of a `world` line; None if no series is usable."""
    series: dict[int, NodeKernel] = {}
    for each in _objects(fields, "series", complain):
        try:
            number, node = int(each["id"]), int(each.get("node", 0))
            kernel = int(each.get("kernel", number))
        except (KeyError, TypeError, ValueError, OverflowError):
            number = node = kernel = MOST  # said below
        if all(map(_is_small, (number, node, kernel))) and kernel >= 0:
            series[number] = NodeKernel(node, kernel)
        else:
            complain(f"a series needs whole numbers as id, node and kernel, the kernel's from 0, and this is {each}")
    launches = fields.get("launches")
    if not _is_small(launches) or launches < 1:
        complain(f"launches is {launches!r}, where a whole number above 0 is expected; 1 is taken")
        launches = 1
    return Detector(series, launches) if series else None


def _add_night(detector: Detector, fields: dict[str, Any], complain: Callable[[str], None]) -> Response:
    build = fields.get("build", fields.get("night"))
    if not _is_small(build):
        raise NotTheProtocol(f"build is {build!r}, where a whole number is expected")
    if detector.nights.builds and build < detector.nights.builds[-1]:
        raise NotTheProtocol(f"build {build} comes after build {detector.nights.builds[-1]}; nights come oldest first")
    readings: dict[int, Reading] = {}
    for point in _objects(fields, "points", complain):
        series = point.get("id")
        if not _is_small(series) or series not in detector.series:
            complain(f"the world has no series {series!r}")
            continue
        if series in readings:
            complain(f"series {series} is there twice; the last one counts")
        kernel_us, baseline_us = (_launches(point, name, series, complain) for name in (KERNEL, "base"))
        code = point.get("code")
        if code is not None and not isinstance(code, str):
            complain(f"code is {code!r}, where a text is expected; it is taken for not known")
            code = None
        machine, env = str(point.get("machine")), str(point.get("env"))
        readings[series] = Reading(build, machine, env, kernel_us, baseline_us, code)
    return detector.add_night(build, readings)


def _add_answers(detector: Detector, fields: dict[str, Any], complain: Callable[[str], None]) -> Response:
    waiting = {(question.series, question.base, question.head) for question in detector.awaited.values()}
    answers: list[ReplayAnswer] = []
    for each in _objects(fields, "results", complain):
        numbers = [each.get(name) for name in ("id", "a", "b")]
        if not all(_is_small(number) for number in numbers):
            complain(f"a result needs whole numbers as id, a and b, and these are {numbers}")
            continue
        series, base, head = (int(number) for number in numbers if number is not None)
        if (series, base, head) not in waiting:
            complain(f"nobody asked for a result of series {series} from {base} to {head}, or it is there twice")
            continue
        waiting.remove((series, base, head))
        times_us = [_launch(each.get(name)) for name in ("a_us", "b_us")]
        for name, launch in zip(("a_us", "b_us"), times_us, strict=True):
            _complain_about(launch, f"series {series}: {name}", complain)
        answers.append(ReplayAnswer(series, base, head, *times_us))
    for series, base, head in sorted(waiting):
        complain(f"there is no result of series {series} from {base} to {head}, which was asked for")
    return detector.add_answers(answers)


def _objects(fields: dict[str, Any], name: str, complain: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    values = fields.get(name)
    if not isinstance(values, list):
        complain(f"{name} is not a list")
        return
    for each in values:
        if isinstance(each, dict):
            yield each
        else:
            complain(f"{each!r} in {name} is not an object")


def _launches(
    point: dict[str, Any], name: str, series: int, complain: Callable[[str], None]
) -> tuple[tuple[float, ...], ...]:
    value = point.get(name)
    launches = tuple(_launch(each) for each in value) if isinstance(value, list) else ()
    if not launches and (name == KERNEL or not isinstance(value, list)):  # an operator may have no baseline
        complain(f"series {series} has no {name}")
    for each in launches:
        _complain_about(each, f"series {series}: {name}", complain)
    return launches


def _complain_about(launch: tuple[float, ...], where: str, complain: Callable[[str], None]) -> None:
    if wrong := sum(not (math.isfinite(each) and each > 0) for each in launch):
        complain(f"{where}: {wrong} of {len(launch)} values are not times in us above 0")
    elif not launch:
        complain(f"{where}: a launch has no values")


def _launch(value: Any) -> tuple[float, ...]:
    """Returns the times of a launch in us. Values that are not numbers become NaN."""
    if not isinstance(value, list):
        return ()
    return tuple(float(each) if isinstance(each, float) or _is_small(each) else math.nan for each in value)


def _is_small(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < MOST


def _write(response: Response, left_out: list[str]) -> str:
    alerts = [
        {"id": change.series, "night": change.first_bad, "pct": round(100 * change.size, 4), "kind": "code"}
        for change in response.changes
    ]
    reruns = [
        {"id": each.series, "a": each.base, "b": each.head, "launches": each.launches} for each in response.questions
    ]
    named = {"left_out": left_out} if left_out else {}
    return json.dumps({"alerts": alerts, "reruns": reruns, **named})
