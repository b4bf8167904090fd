"""The JSON-lines door: what goes in, what comes out, and that it says the same twice."""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from benchmarks.judge import play
from benchmarks.judge_worlds import Kind, World
from tilewatch.worker.detection.detector import Response
from tilewatch.worker.detection.replay_evidence import ReplayQuestion
from tilewatch.worker.detection.scope_state import NodeKernel
from tilewatch.worker.detection.stream import _start, _write, answer_lines
from tilewatch.worker.detection.verdict import ConfirmedChange

QUIET = Kind("a few steps", "quiet", nuisances=False, changed=0.1, sizes=(0.05, 0.05))

NOTHING = {"alerts": [], "reruns": []}


def iter_of(lines: list[str]) -> Iterator[str]:
    """Lines as they are added: what one reads may have been written after the last answer."""
    while lines:
        yield lines.pop(0)


def world_lines(nights: int) -> list[str]:
    world = World(QUIET, 80, np.random.default_rng(5))
    return [json.dumps(each) for each in (world.header(), *(world.night(night) for night in range(nights)))]


def test_a_world_is_not_answered_and_every_night_is_with_one_line() -> None:
    replies = [json.loads(line) for line in answer_lines(world_lines(12), pytest.fail)]
    assert len(replies) == 12
    assert all(set(each) == {"alerts", "reruns"} for each in replies)


def test_the_same_lines_give_the_same_answers() -> None:
    assert list(answer_lines(world_lines(15), pytest.fail)) == list(answer_lines(world_lines(15), pytest.fail))


def test_steps_of_a_made_world_are_found_and_nothing_else() -> None:
    played = play(QUIET, seed=5)
    changes = {(change.series, change.build) for change in played.changes}
    assert changes
    assert {(alert.series, alert.first_bad) for alert in played.alerts} == changes


def answer_and_complain(lines: list[str]) -> tuple[list[str], list[str]]:
    complaints: list[str] = []
    return list(answer_lines(lines, complaints.append)), complaints


@pytest.mark.parametrize("line", ["[1]", "nothing", '{"type":"night","night":"x"}', '{"type":"dawn"}', "\x00", "1e999"])
def test_a_line_that_is_not_of_the_protocol_is_named_and_answered_with_nothing(line: str) -> None:
    replies, complaints = answer_and_complain([world_lines(0)[0], line])
    assert len(complaints) == 1
    assert [json.loads(each) for each in replies] == [NOTHING | {"left_out": [complaints[0].removeprefix("line 2: ")]}]


@pytest.mark.parametrize(
    ("points", "named"),
    [
        ({}, "points is not a list"),
        ({"id": 0}, "points is not a list"),
        (None, "points is not a list"),
        ([7], "7 in points is not an object"),
    ],
)
def test_points_that_cannot_be_read_are_named(points: object, named: str) -> None:
    night = json.dumps({"type": "night", "build": 0, "points": points})
    replies, complaints = answer_and_complain([world_lines(0)[0], night])
    assert complaints == [f"line 2: {named}"]
    assert [json.loads(each) for each in replies] == [NOTHING | {"left_out": [named]}]


def test_a_night_older_than_the_newest_is_refused_and_changes_nothing() -> None:
    lines = world_lines(4)
    replies, complaints = answer_and_complain([*lines[:4], lines[2], lines[4]])
    sentence = "build 1 comes after build 2; nights come oldest first"
    assert complaints == [f"line 5: {sentence}"]
    assert json.loads(replies.pop(3)) == NOTHING | {"left_out": [sentence]}
    assert replies == list(answer_lines(lines, pytest.fail))
    assert not answer_and_complain([*lines, lines[-1]])[1], "the newest build may have another night"


def test_results_that_nobody_asked_for_or_that_are_missing_are_named() -> None:
    """Code that is new in the newest night is asked about at once."""
    lines = [json.dumps({"type": "world", "launches": 1, "series": [{"id": 1}]})]
    for night in range(12):
        point = {"id": 1, "machine": "m", "env": "e", "cand": [[100.0] * 3], "base": [], "code": "b" * (night >= 11)}
        lines.append(json.dumps({"type": "night", "build": night, "points": [point]}))
    result = {"id": 1, "a": 10, "b": 11, "a_us": [100.0], "b_us": [100.0]}

    def left_out(*results: dict[str, Any]) -> list[str] | None:
        replies, _ = answer_and_complain([*lines, json.dumps({"type": "rerun", "results": results})])
        found: list[str] | None = json.loads(replies[-1]).get("left_out")
        return found

    missing = "there is no result of series 1 from 10 to 11, which was asked for"
    assert left_out(result) is None
    assert left_out() == [missing]
    assert left_out(result | {"a": 9}) == [
        "nobody asked for a result of series 1 from 9 to 11, or it is there twice",
        missing,
    ]
    assert left_out(result, result) == ["nobody asked for a result of series 1 from 10 to 11, or it is there twice"]
    for name in ("a_us", "b_us"):
        assert left_out(result | {name: [True]}) == [f"series 1: {name}: 1 of 1 values are not times in us above 0"]
    for name, sentence in (("id", "[None, 10, 11]"), ("a", "[1, None, 11]"), ("b", "[1, 10, None]")):
        whole = f"a result needs whole numbers as id, a and b, and these are {sentence}"
        assert left_out(result | {name: None}) == [whole, missing]
    assert left_out(result | {"a": None}, result) == [
        "a result needs whole numbers as id, a and b, and these are [1, None, 11]"
    ]


def test_missing_results_are_named_in_the_order_of_their_series() -> None:
    lines = [json.dumps({"type": "world", "launches": 9, "series": [{"id": number} for number in range(90, 0, -10)]})]
    for night in range(12):
        point = {"machine": "m", "env": "e", "cand": [[100.0] * 3], "base": [], "code": "b" * (night >= 11)}
        points = [point | {"id": number} for number in range(10, 100, 10)]
        lines.append(json.dumps({"type": "night", "build": night, "points": points}))
    replies, _ = answer_and_complain([*lines, json.dumps({"type": "rerun", "results": []})])
    sentences = [
        f"there is no result of series {number} from 10 to 11, which was asked for" for number in range(10, 100, 10)
    ]
    assert json.loads(replies[-1])["left_out"] == sentences


@pytest.mark.parametrize(
    ("entry", "node_kernel"),
    [
        ({"id": 7}, NodeKernel(0, 7)),
        ({"id": "7", "node": 2, "kernel": 0}, NodeKernel(2, 0)),
        ({"id": 7, "kernel": 3}, NodeKernel(0, 3)),
        ({"id": 7, "node": -1}, NodeKernel(-1, 7)),
        ({"id": 7, "node": 2**62 - 1, "kernel": 2**62 - 1}, NodeKernel(2**62 - 1, 2**62 - 1)),
        ({"id": 7, "node": -(2**62) + 1}, NodeKernel(-(2**62) + 1, 7)),
        ({"id": 7, "node": 2**62}, None),
        ({"id": 7, "node": -(2**62)}, None),
        ({"id": 7, "kernel": 2**62}, None),
        ({"id": 7, "kernel": -1}, None),
        ({"id": 7, "kernel": "mine"}, None),
        ({"id": None}, None),
        ({"node": 7}, None),
        ({"id": 7, "node": float("inf")}, None),
    ],
)
def test_a_series_has_node_0_and_a_kernel_of_its_own_unless_the_world_names_others(
    entry: dict[str, Any], node_kernel: NodeKernel | None
) -> None:
    complaints: list[str] = []
    detector = _start({"series": [entry], "launches": 1}, complaints.append)
    assert (detector.series[7].node_kernel if detector else None) == node_kernel
    sentence = "a series needs whole numbers as id, node and kernel, the kernel's from 0, and this is"
    assert complaints == ([] if node_kernel else [f"{sentence} {entry}"])


def test_a_world_without_any_series_ends_the_one_before() -> None:
    lines = [world_lines(0)[0], json.dumps({"type": "world", "launches": 1, "series": [{}]}), world_lines(1)[1]]
    assert answer_and_complain(lines)[1][1:] == ["line 3: this night comes before any world that can be used"]


def test_empty_lines_are_counted_and_only_whole_lines_are_refused() -> None:
    complaints, refused = list[str](), list[str]()
    night = json.dumps({"type": "night", "build": 3, "night": 9, "points": [{"id": "none"}]})
    older = json.dumps({"type": "night", "build": 2, "night": 10, "points": []})
    lines = ["", world_lines(0)[0], "  ", night, older]
    replies = list(answer_lines(lines, complaints.append, refused.append))
    assert refused == ["build 2 comes after build 3; nights come oldest first"]
    assert complaints == ["line 4: the world has no series 'none'", f"line 5: {refused[0]}"]
    assert len(replies) == 2


@pytest.mark.parametrize(
    ("base", "named"),
    [
        ([], None),
        ([[2.0]], None),
        ([[]], "series 0: base: a launch has no values"),
        ([[2.0, 0]], "series 0: base: 1 of 2 values are not times in us above 0"),
        (None, "series 0 has no base"),
    ],
)
def test_a_series_may_have_no_baseline_but_says_so(base: Any, named: str | None) -> None:
    world = {"type": "world", "launches": 1, "series": [{"id": 0}]}
    night = {"type": "night", "night": 0, "points": [{"id": 0, "cand": [[1, 1.5]], "base": base}]}
    replies, _ = answer_and_complain([json.dumps(world), json.dumps(night)])
    assert json.loads(replies[0]).get("left_out") == ([named] if named else None)


def test_a_night_before_any_world_is_answered_with_nothing() -> None:
    replies, complaints = answer_and_complain(['{"type":"night","night":0,"points":[]}'])
    sentence = "this night comes before any world that can be used"
    assert complaints == [f"line 1: {sentence}"]
    assert [json.loads(each) for each in replies] == [NOTHING | {"left_out": [sentence]}]


@pytest.mark.parametrize(
    ("cand", "named"),
    [
        ([[1.0, 0.0]], "series 0: cand: 1 of 2 values are not times in us above 0"),
        ([[-1.0], [2.0]], "series 0: cand: 1 of 1 values are not times in us above 0"),
        ([[float("nan"), float("inf"), "7", None, True]], "series 0: cand: 5 of 5 values are not times in us above 0"),
        ([[]], "series 0: cand: a launch has no values"),
        ([], "series 0 has no cand"),
        (None, "series 0 has no cand"),
    ],
)
def test_a_value_that_is_no_time_is_named_in_the_answer(cand: Any, named: str) -> None:
    world = {"type": "world", "launches": 1, "series": [{"id": 0}]}
    point = {"id": 0, "cand": cand, "base": [[1.0]], "machine": "m", "env": "e"}
    replies, _ = answer_and_complain([json.dumps(world), json.dumps({"type": "night", "night": 0, "points": [point]})])
    assert json.loads(replies[0])["left_out"] == [named]


def test_a_series_that_is_there_twice_or_a_boolean_is_named() -> None:
    world = {"type": "world", "launches": 1, "series": [{"id": 0}, {"id": 1}]}
    point = {"id": 0, "cand": [[1.0]], "base": [[1.0]]}
    night = {"type": "night", "night": 0, "points": [point, point, point | {"id": True}, point | {"id": 2}]}
    replies, _ = answer_and_complain([json.dumps(world), json.dumps(night)])
    assert json.loads(replies[0])["left_out"] == [
        "series 0 is there twice; the last one counts",
        "the world has no series True",
        "the world has no series 2",
    ]


@pytest.mark.parametrize(("launches", "is_taken"), [(1, True), (0, False), (-1, False), (True, False), (None, False)])
def test_a_world_without_a_launch_is_named_and_has_one(launches: object, is_taken: bool) -> None:
    """With none, the judge had no budget and asked for no replay."""
    complaints: list[str] = []
    world = {"type": "world", "launches": launches, "series": [{"id": 0}]}
    assert not list(answer_lines([json.dumps(world)], complaints.append))
    sentence = f"line 1: launches is {launches!r}, where a whole number above 0 is expected; 1 is taken"
    assert complaints == ([] if is_taken else [sentence])


def replayed(world: World, night: int, ask: dict[str, Any]) -> list[tuple[float, ...]]:
    return world.replay(night, ask["id"], (ask["a"], ask["b"]), ask["launches"])


HOSTILE = (2**70, -(2**70), 2**62 - 1, -(2**61), 10**400, 1e308, float("inf"), float("nan"), "7", None, True, [])


@pytest.mark.parametrize("field", ["id", "node", "kernel", "launches", "night", "cand", "build"])
def test_no_number_ends_the_answers(field: str) -> None:
    """Whatever stands in a world or a night, each night is answered with one line."""
    world, night = json.loads(world_lines(0)[0]), json.loads(world_lines(1)[1])
    for hostile in HOSTILE:
        lines: list[dict[str, Any]] = [world, night]
        if field in ("id", "node", "kernel"):
            lines[0] = world | {"series": [world["series"][0] | {field: hostile}, *world["series"][1:]]}
        elif field == "launches":
            lines[0] = world | {"launches": hostile}
        elif field == "cand":
            lines[1] = night | {"points": [point | {"cand": [[hostile]]} for point in night["points"]]}
        else:
            lines[1] = night | {field: hostile}
        later = night | {"night": 1, "points": night["points"][::-1]}
        replies, _ = answer_and_complain([json.dumps(each) for each in (*lines, later)])
        assert len(replies) == 2, hostile
        assert all(set(json.loads(each)) - {"left_out"} == {"alerts", "reruns"} for each in replies)


def spoiled(point: dict[str, Any], how: int) -> dict[str, Any]:
    broken: list[dict[str, Any]] = [
        {"id": 10**6},
        {"id": None},
        {"cand": None},
        {"cand": [[float("nan"), 0.0, -1.0], [], None]},
        {"cand": [[10**400, "fast"], [float("inf")]], "base": 3},
        {"cand": [[1e308, 5e-324]], "base": [[]]},
        {"cand": point["cand"] * 3},
        {"cand": point["cand"][:1], "base": point["base"][:1]},
        {"machine": None, "env": 7},
    ]
    return point | broken[how % len(broken)]


def test_spoiled_points_missing_nights_and_missing_or_reordered_results_never_stop_the_answers() -> None:
    world = World(Kind("a few steps", "typical", nuisances=True, changed=0.5), 60, np.random.default_rng(6))
    chance = random.Random(6)
    complaints: list[str] = []
    lines: list[str] = []
    replies = answer_lines(iter_of(lines), complaints.append)

    def ask(line: dict[str, Any]) -> dict[str, Any]:
        lines.append(json.dumps(line))
        answer: dict[str, Any] = json.loads(next(replies))
        return answer

    lines.append(json.dumps(world.header()))
    replays = 0
    for night in range(60):
        if night % 17 == 16:
            continue
        line = world.night(night)
        line["points"] = [
            spoiled(point, chance.randrange(99)) if chance.random() < 0.2 else point for point in line["points"]
        ]
        answer = ask(line)
        for _ in range(24):
            if not answer["reruns"]:
                break
            results = [
                each | dict(zip(("a_us", "b_us"), map(list, replayed(world, night, each)), strict=True))
                for each in answer["reruns"]
                if chance.random() < 0.8
            ]
            for each in results[::3]:
                each["a_us"] = [*each["a_us"][:1], None, 0]
            chance.shuffle(results)
            replays += len(results)
            answer = ask({"type": "rerun", "results": results})
        assert not answer["reruns"]
    assert replays
    assert complaints


def test_a_world_of_one_series_and_one_launch_a_night_finds_a_step() -> None:
    """The launches that a world announces need not be those that come."""
    chance = random.Random(7)
    lines = [json.dumps({"type": "world", "nights": 50, "launches": 1, "series": [{"id": 5, "node": 0, "kernel": 0}]})]
    replies = answer_lines(iter_of(lines), pytest.fail)
    alerts: list[tuple[int, int]] = []

    def us(build: int, count: int) -> list[float]:
        return [100.0 * (1.05 if build >= 40 else 1.0) * (1 + chance.gauss(0, 0.005)) for _ in range(count)]

    for night in range(50):
        point = {"id": 5, "machine": "m", "env": "e", "cand": [us(night, 20)], "base": [us(0, 20)]}
        lines.append(json.dumps({"type": "night", "night": night, "build": night, "points": [point]}))
        answer = json.loads(next(replies))
        while answer["reruns"]:
            results = [
                each | {"a_us": us(each["a"], each["launches"]), "b_us": us(each["b"], each["launches"])}
                for each in answer["reruns"]
            ]
            lines.append(json.dumps({"type": "rerun", "results": results}))
            answer = json.loads(next(replies))
            alerts += [(each["id"], each["night"]) for each in answer["alerts"]]
    assert alerts == [(5, 40)]


def test_the_command_answers_without_a_database() -> None:
    finished = subprocess.run(
        (sys.executable, "-m", "tilewatch.worker.cli.main", "judge", "--stream"),
        input="\n".join(world_lines(2)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert [json.loads(line) for line in finished.stdout.splitlines()] == [{"alerts": [], "reruns": []}] * 2


@pytest.mark.parametrize(
    "line", ["nothing", '{"type":"dawn"}', '{"type":"night","build":true}', '{"type":"night","build":-1,"points":[]}']
)
def test_the_command_fails_by_name_when_it_refused_a_line(line: str) -> None:
    lines = world_lines(1)
    finished = subprocess.run(
        (sys.executable, "-m", "tilewatch.worker.cli.main", "judge", "--stream"),
        input="\n".join((*lines, line)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (finished.returncode, len(finished.stdout.splitlines())) == (1, 2)
    assert finished.stderr.startswith("line 3: ")
    assert json.loads(finished.stdout.splitlines()[1])["left_out"]


def test_code_says_which_nights_can_hold_a_change_and_what_is_no_text_is_named() -> None:
    lines = [json.dumps({"type": "world", "launches": 1, "series": [{"id": 1}]})]
    for night in range(12):
        point = {"id": 1, "machine": "m", "env": "e", "cand": [[100.0] * 3], "base": [], "code": "b" * (night >= 11)}
        lines.append(json.dumps({"type": "night", "build": night, "points": [point]}))
    replies, complaints = answer_and_complain(lines)
    assert not complaints
    assert [bool(json.loads(reply)["reruns"]) for reply in replies] == [False] * 11 + [True]
    assert answer_and_complain([*lines[:-1], lines[-1].replace('"b"', "7")])[1] == [
        "line 13: code is 7, where a text is expected; it is taken for not known"
    ]


def test_an_answer_has_the_changes_in_per_cent_and_the_replays_to_run() -> None:
    """Four decimals of a per cent are more than any replay can tell."""
    changes = (ConfirmedChange(7, 20, 0.0123456789, 0.001), ConfirmedChange(8, 21, -0.5, 0.001))
    assert json.loads(_write(Response(changes, (ReplayQuestion(7, 19, 20, 3),)), [])) == {
        "alerts": [
            {"id": 7, "night": 20, "pct": 1.2346, "kind": "code"},
            {"id": 8, "night": 21, "pct": -50.0, "kind": "code"},
        ],
        "reruns": [{"id": 7, "a": 19, "b": 20, "launches": 3}],
    }
