"""The door for judging the judge: JSON lines in, JSON lines out, the detector of regression.py in between. No database.

`world` tells the series and is not answered; every other line is answered with one line of alerts and replays wanted.
What in a line cannot be used is left out and told to `complain`: whoever waits for an answer must not wait for ever.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeGuard

from tilewatch.worker.detection.detector import Detector, Told
from tilewatch.worker.detection.reading import Reading
from tilewatch.worker.detection.replay_evidence import Replayed
from tilewatch.worker.detection.series_state import Place

NOTHING = Told((), ())


class NotTheProtocol(Exception):
    """A line, or a part of one, that is not the protocol's."""


def answers(lines: Iterable[str], complain: Callable[[str], None]) -> Iterator[str]:
    """One line for each line that is not a world. A new `world` starts from nothing."""
    judge: Detector | None = None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue

        def wrong(what: str, number: int = number) -> None:
            complain(f"line {number}: {what}")

        try:
            told = json.loads(line)
            kind = told.get("type") if isinstance(told, dict) else None
        except (ValueError, RecursionError):
            told, kind = {}, None
        if kind == "world":
            judge = _world(told, wrong)
            continue
        yield _answer(_heard(judge, told, kind, wrong))


def _heard(judge: Detector | None, told: dict[str, Any], kind: Any, wrong: Callable[[str], None]) -> Told:
    try:
        if kind not in ("night", "rerun"):
            raise NotTheProtocol("this is not a world, night or rerun in JSON")
        if judge is None:
            raise NotTheProtocol(f"this {kind} comes before any world that can be used")
        return _night(judge, told, wrong) if kind == "night" else _rerun(judge, told, wrong)
    except NotTheProtocol as error:
        wrong(str(error))
        return NOTHING


def _world(told: dict[str, Any], wrong: Callable[[str], None]) -> Detector | None:
    places: dict[int, Place] = {}
    for each in _objects(told, "series", wrong):
        try:
            places[int(each["id"])] = Place(int(each.get("node", 0)), int(each.get("kernel", each["id"])))
        except (KeyError, TypeError, ValueError):
            wrong(f"a series needs whole numbers as id, node and kernel, and this is {each}")
    launches = told.get("launches")
    if not _is_small(launches) or launches < 1:
        wrong(f"launches is {launches!r}, where a whole number above 0 is expected; 1 is taken")
        launches = 1
    return Detector(places, launches) if places else None


def _night(judge: Detector, told: dict[str, Any], wrong: Callable[[str], None]) -> Told:
    build = told.get("build", told.get("night"))
    if not _is_small(build):
        raise NotTheProtocol(f"build is {build!r}, where a whole number is expected")
    readings: dict[int, Reading] = {}
    for point in _objects(told, "points", wrong):
        series = point.get("id")
        if not isinstance(series, int) or series not in judge.series:
            wrong(f"the world has no series {series!r}")
            continue
        kernel_us, baseline_us = _launches(point.get("cand")), _launches(point.get("base"))
        readings[series] = Reading(build, str(point.get("machine")), str(point.get("env")), kernel_us, baseline_us)
    return judge.night(build, readings)


def _rerun(judge: Detector, told: dict[str, Any], wrong: Callable[[str], None]) -> Told:
    results: list[Replayed] = []
    for each in _objects(told, "results", wrong):
        numbers = [each.get(name) for name in ("id", "a", "b")]
        if not all(_is_small(number) for number in numbers):
            wrong(f"a result needs whole numbers as id, a and b, and these are {numbers}")
            continue
        series, good, bad = (int(number) for number in numbers if number is not None)
        results.append(Replayed(series, good, bad, _launch(each.get("a_us")), _launch(each.get("b_us"))))
    return judge.replayed(results)


def _objects(told: dict[str, Any], name: str, wrong: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    found = told.get(name)
    if not isinstance(found, list):
        wrong(f"{name} is no list")
        return
    for each in found:
        if isinstance(each, dict):
            yield each
        else:
            wrong(f"{each!r} in {name} is no object")


def _launches(told: Any) -> tuple[tuple[float, ...], ...]:
    return tuple(_launch(each) for each in told) if isinstance(told, list) else ()


def _launch(told: Any) -> tuple[float, ...]:
    """Launches of a pair belong together by position, so that what is no number stays, as not a number."""
    if not isinstance(told, list):
        return ()
    return tuple(float(each) if isinstance(each, float) or _is_small(each) else float("nan") for each in told)


def _is_small(told: Any) -> TypeGuard[int]:
    return isinstance(told, int) and abs(told) < 2**62


def _answer(told: Told) -> str:
    alerts = [
        {"id": each.series, "night": each.first_bad, "pct": round(100 * each.size, 4), "kind": each.kind}
        for each in told.alerts
    ]
    reruns = [{"id": each.series, "a": each.good, "b": each.bad, "launches": each.launches} for each in told.asks]
    return json.dumps({"alerts": alerts, "reruns": reruns})
