"""The JSON-lines door: what goes in, what comes out, and that it says the same twice."""

import json
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.judge import play
from benchmarks.judge_worlds import Kind, World
from worker.stream import NotTheProtocol, answers

QUIET = Kind("a few steps", "quiet", nuisances=False, changed=0.1, sizes=(0.05, 0.05))


def world_lines(nights: int) -> list[str]:
    world = World(QUIET, 80, np.random.default_rng(5))
    return [json.dumps(each) for each in (world.header(), *(world.night(night) for night in range(nights)))]


def test_a_world_is_not_answered_and_every_night_is_with_one_line() -> None:
    told = [json.loads(line) for line in answers(world_lines(12))]
    assert len(told) == 12
    assert all(set(each) == {"alerts", "reruns"} for each in told)


def test_the_same_lines_give_the_same_answers() -> None:
    assert list(answers(world_lines(15))) == list(answers(world_lines(15)))


def test_steps_of_a_made_world_are_found_and_nothing_else() -> None:
    played = play(QUIET, seed=5)
    changes = {(change.series, change.build) for change in played.changes}
    assert changes
    assert {(said.series, said.first_bad) for said in played.alerts} == changes


@pytest.mark.parametrize("line", ["[1]", "nothing", '{"type":"night","night":0}', '{"type":"dawn"}'])
def test_a_line_that_is_not_of_the_protocol_is_named(line: str) -> None:
    header = world_lines(0)[0]
    with pytest.raises(NotTheProtocol, match="line 2"):
        list(answers([header, line]))


def test_a_night_before_any_world_is_refused() -> None:
    with pytest.raises(NotTheProtocol, match="before any world"):
        list(answers(['{"type":"night"}']))


def test_the_command_answers_without_a_database() -> None:
    told = subprocess.run(
        (sys.executable, "-m", "worker.cli", "judge", "--stream"),
        input="\n".join(world_lines(2)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert [json.loads(line) for line in told.stdout.splitlines()] == [{"alerts": [], "reruns": []}] * 2
