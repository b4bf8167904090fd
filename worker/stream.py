"""The door for judging the judge: JSON lines in, JSON lines out, the detector of regression.py in between. No database.

`world` tells the series and is not answered; `night` and `rerun` are answered with alerts and with the replays wanted.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from worker.confirm import Replayed
from worker.detect import Reading
from worker.regression import Judge, Place, Told


class NotTheProtocol(Exception):
    """A line that is not one of the protocol's."""


def answers(lines: Iterable[str]) -> Iterator[str]:
    """One line for each `night` and each `rerun`. A new `world` starts from nothing."""
    judge: Judge | None = None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            told = json.loads(line)
            kind = told["type"]
            if kind == "world":
                judge = _world(told)
                continue
            if judge is None:
                raise NotTheProtocol(f"line {number} is a {kind} before any world")
            yield _answer(_night(judge, told) if kind == "night" else _rerun(judge, told))
        except (json.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise NotTheProtocol(f"line {number} is not a world, night or rerun: {error!r}") from error


def _world(told: dict[str, Any]) -> Judge:
    places = {each["id"]: Place(each["node"], each["kernel"]) for each in told["series"]}
    return Judge(places, told["launches"])


def _night(judge: Judge, told: dict[str, Any]) -> Told:
    readings = {
        point["id"]: Reading(
            told["build"],
            point["machine"],
            point["env"],
            tuple(map(tuple, point["cand"])),
            tuple(map(tuple, point.get("base") or ())),
        )
        for point in told["points"]
    }
    return judge.night(told["build"], readings)


def _rerun(judge: Judge, told: dict[str, Any]) -> Told:
    if told["type"] != "rerun":
        raise ValueError(f"type {told['type']}")
    return judge.replayed(
        Replayed(each["id"], each["a"], each["b"], tuple(each["a_us"]), tuple(each["b_us"])) for each in told["results"]
    )


def _answer(told: Told) -> str:
    alerts = [
        {"id": each.series, "night": each.first_bad, "pct": round(100 * each.size, 4), "kind": each.kind}
        for each in told.alerts
    ]
    reruns = [{"id": each.series, "a": each.good, "b": each.bad, "launches": each.launches} for each in told.asks]
    return json.dumps({"alerts": alerts, "reruns": reruns})
