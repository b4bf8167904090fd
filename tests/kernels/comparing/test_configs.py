"""Recorded winners are compared first, then configs that ship, then the whole space."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tilewatch import tuned
from tilewatch.kernels.comparing.configs import ConfigSource, RecordedWinner, choose_configs, read_winners
from tilewatch.kernels.comparing.targets import Target
from tilewatch.kernels.recording.recording_file import BadRecording
from tilewatch.kernels.results import Params, Plan, PlannedTrial

ROOT = Path(__file__).resolve().parents[3]
TILES = ({"tile_m": 64, "tile_n": 128, "tile_k": 128}, {"tile_m": 128, "tile_n": 256, "tile_k": 64})
ROWS = ({"rows": 1}, {"rows": 2}, {"rows": 4})


def make_plan(configs: tuple[Params, ...]) -> Plan:
    trials = tuple(PlannedTrial(config, str(number)) for number, config in enumerate(configs))
    return Plan("k", "1x1", "sm_90", "source", 1, (), 1, 1, (), trials)


def make_target(base: tuple[Params, ...], head: tuple[Params, ...]) -> Target:
    return Target("k", "1x1", "sm_90", make_plan(base), make_plan(head))


def recorded(gpu: str, *configs: Params, at: str = "2026-11-01") -> RecordedWinner:
    return RecordedWinner("k", "1x1", gpu, "sm_90", configs, at)


def test_a_recorded_winner_and_its_ties_come_first() -> None:
    found = choose_configs(
        make_target(TILES, TILES), "h200", [recorded("h200", TILES[1], TILES[0])], ConfigSource.auto, may_sweep=True
    )
    assert found is not None
    assert (found.source, found.base, found.head) == (ConfigSource.recording, TILES[::-1], TILES[::-1])


def test_this_gpu_model_goes_before_another_and_newer_before_older() -> None:
    winners = [
        recorded("h100", ROWS[0], at="2026-11-09"),
        recorded("h200", ROWS[1], at="2026-11-01"),
        recorded("h200", ROWS[2], at="2026-11-02"),
    ]
    for gpu, expected in (("h200", ROWS[2]), ("h100", ROWS[0]), ("gh200", ROWS[0])):
        found = choose_configs(make_target(ROWS, ROWS), gpu, winners, ConfigSource.auto, may_sweep=True)
        assert found is not None
        assert found.head == (expected,)


@pytest.mark.parametrize("of", [("l", "1x1", "sm_90"), ("k", "2x2", "sm_90"), ("k", "1x1", "sm_100")])
def test_a_winner_of_another_kernel_problem_or_architecture_is_not_taken(of: tuple[str, str, str]) -> None:
    kernel, problem, arch = of
    newer = replace(recorded("h200", ROWS[1], at="2026-11-02"), kernel=kernel, problem=problem, arch=arch)
    winners = [recorded("h100", ROWS[0]), newer]
    found = choose_configs(make_target(ROWS, ROWS), "h200", winners, ConfigSource.auto, may_sweep=True)
    assert found is not None
    assert found.head == ROWS[:1]


def test_a_config_that_a_side_no_longer_has_is_not_compared_there() -> None:
    target = make_target(ROWS, ROWS[1:])
    found = choose_configs(target, "h200", [recorded("h200", *ROWS[:2])], ConfigSource.auto, may_sweep=True)
    assert found is not None
    assert (found.base, found.head) == (ROWS[:2], ROWS[1:2])


def test_without_a_recording_the_tile_table_s_config_is_compared() -> None:
    found = choose_configs(make_target(TILES, TILES), "h200", [], ConfigSource.auto, may_sweep=True)
    assert found is not None
    assert (found.source, found.base) == (ConfigSource.shipped, TILES[:1])


def test_what_the_host_code_launches_goes_before_the_tile_table() -> None:
    target = make_target(TILES, TILES)
    assert target.base is not None
    shipping = replace(target, base=replace(target.base, ships=TILES[1]))
    found = choose_configs(shipping, "h200", [], ConfigSource.auto, may_sweep=True)
    assert found is not None
    assert (found.source, found.base, found.head) == (ConfigSource.shipped, TILES[1:2], TILES[:1])
    rows = make_target(ROWS, ROWS)
    assert rows.base is not None
    assert rows.head is not None
    both = replace(rows, base=replace(rows.base, ships=ROWS[0]), head=replace(rows.head, ships=ROWS[2]))
    found = choose_configs(both, "h200", [], ConfigSource.auto, may_sweep=True)
    assert found is not None
    assert (found.source, found.base, found.head) == (ConfigSource.shipped, ROWS[:1], ROWS[2:])


def test_outside_the_table_the_space_is_swept_on_a_gpu_and_its_middle_taken_without() -> None:
    swept = choose_configs(make_target(ROWS[:2], ROWS), "h200", [], ConfigSource.auto, may_sweep=True)
    static = choose_configs(make_target(ROWS, ROWS), "sm_90", [], ConfigSource.auto, may_sweep=False)
    assert swept is not None
    assert static is not None
    assert (swept.source, swept.base, swept.head) == (ConfigSource.sweep, ROWS[:2], ROWS)
    assert (static.source, static.head) == (ConfigSource.shipped, ROWS[1:2])


def test_a_source_that_has_nothing_is_none() -> None:
    target = make_target(ROWS, ROWS)
    assert choose_configs(target, "h200", [], ConfigSource.recording, may_sweep=True) is None
    assert choose_configs(target, "h200", [], ConfigSource.sweep, may_sweep=False) is None


def test_winners_are_read_from_a_recording() -> None:
    winners = read_winners([ROOT / "recordings" / "h200-80093d04.jsonl.gz"])
    assert len(winners) == 126
    assert {winner.gpu_model for winner in winners} == {"h200"}
    assert all(1 <= len(winner.configs) <= 4 for winner in winners)
    assert all(list(winner.configs).count(winner.configs[0]) == 1 for winner in winners)


def test_winners_are_read_from_a_tuned_table(tmp_path: Path) -> None:
    file = tmp_path / "tuned.json"
    row = {"problem": "1x1", "config": ROWS[1], "ties": [ROWS[0], *ROWS, *ROWS]}
    table = {"kernel": "k", "gpu_model": "h200", "arch": "sm_90", "rows": [row]}
    file.write_text(json.dumps({"format": tuned.FORMAT, "tables": [table]}))
    (winner,) = read_winners([file])
    assert (winner.kernel, winner.problem, winner.gpu_model, winner.arch) == ("k", "1x1", "h200", "sm_90")
    assert winner.configs == (ROWS[1], ROWS[0], *ROWS[:2])
    for broken in ("{", "[]", json.dumps({"format": tuned.FORMAT, "tables": [{}]})):
        file.write_text(broken)
        with pytest.raises(BadRecording, match="is not a tuned table"):
            read_winners([file])
