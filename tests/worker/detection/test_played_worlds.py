"""The detector asks, confirms and says of made nights what it did before, to the last launch.

The numbers of the policy and the formulas are many; each of them moves something of these nights, and a test of each
alone would say no more. Where the judge is changed on purpose, `python -m tests.worker.detection.test_played_worlds`
writes the answers again, `python -m benchmarks.judge` says whether they are better, and the commit says why.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.judge import LAUNCHES, SERIES, make_world, read_point, replay
from benchmarks.judge_life import life_kinds
from benchmarks.judge_worlds import Kind
from tilewatch.worker.detection.detector import Detector
from tilewatch.worker.detection.scope_state import NodeKernel

STORED = Path(__file__).with_name("played_worlds.json")
NIGHTS, SEED = 96, 66
LIFE = next(kind for kind, situations in life_kinds() if len(situations) > 1)
RAMPS = replace(LIFE, name="ramps", sizes=(0.02, 0.08), ramp_nights=20)
WORLDS: dict[str, tuple[Kind, bool]] = {
    "life, code not known": (LIFE, False),
    "life, code known": (LIFE, True),
    "ramps, code not known": (RAMPS, False),
}


def play(kind: Kind, code: bool) -> list[Any]:
    """Returns a row for each answer: the night, what was confirmed and what was asked; last the verdict of each
    series."""
    world = make_world(kind, SEED, code, NIGHTS)
    detector = Detector({i: NodeKernel(int(world.node[i]), int(world.kernel[i])) for i in range(SERIES)}, LAUNCHES)
    rows: list[Any] = []
    for night in range(NIGHTS):
        readings = {each["id"]: read_point(night, each) for each in world.night(night)["points"]}
        response = detector.add_night(night, readings)
        while response.changes or response.questions:
            changes = [rounded(asdict(each)) for each in response.changes]
            asked = [[each.series, each.base, each.head, each.launches] for each in response.questions]
            rows.append([night, changes, asked])
            response = detector.add_answers([replay(world, night, each) for each in response.questions])
    verdicts = (rounded(asdict(detector.give_verdict(series))) for series in range(SERIES))
    return rows + [verdict[:-1] for verdict in verdicts]  # without its sentence


def rounded(fields: dict[str, Any]) -> list[Any]:
    return [round(each, 6) if isinstance(each, float) else each for each in fields.values()]


@pytest.mark.parametrize("name", WORLDS)
def test_nights_are_answered_as_before(name: str) -> None:
    assert play(*WORLDS[name]) == json.loads(STORED.read_text(encoding="utf-8"))[name]


def main() -> None:
    worlds = (f"{json.dumps(name)}: [\n" + ",\n".join(map(json.dumps, play(*WORLDS[name]))) + "\n]" for name in WORLDS)
    STORED.write_text("{\n" + ",\n".join(worlds) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
