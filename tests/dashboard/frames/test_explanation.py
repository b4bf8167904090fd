"""A change is explained by counters of the replay that profiled both cubins, else by those of each run."""

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.orm import Session

from tests.dashboard.fixtures.small_database import COUNTERS
from tilewatch.dashboard.frames import explanation, reads
from tilewatch.db.page_reads import regressions
from tilewatch.db.page_reads.evidence import CodeDiffRow

COUNTED = {"good": {"instructions": 1e6, "l2_hit_pct": 90.0}, "bad": {"instructions": 2e6, "l2_hit_pct": 90.0}}


def evidence_with(filled: Session, url: str, counters: dict[str, Any] | None, **other: Any) -> reads.Evidence:
    """The newest run, which a replay compared with the run before. Winners differ in their machine code."""
    shown = reads.evidence(url, regressions.list_series(filled, 1)[0].run_id)
    assert shown is not None
    assert shown.winner is not None
    assert shown.winner_before is not None
    codes = {"good_code_sha256": "old", "bad_code_sha256": "new", **other}
    return replace(
        shown,
        winner=replace(shown.winner, code_sha256="new"),
        winner_before=replace(shown.winner_before, code_sha256="old"),
        replays=(replace(shown.replays[0], counters=counters, **codes),),
    )


def test_counters_of_both_cubins_side_by_side_come_before_those_of_the_runs(filled: Session, filled_url: str) -> None:
    found = evidence_with(filled, filled_url, COUNTED)
    table = explanation.tabulate_counters(found).set_index("counter")
    assert table.loc["instructions", ["before", "this run", "change"]].tolist() == [
        "1,000,000",
        "2,000,000",
        "+100.0 %",
    ]
    assert "read both on node-1, side by side" in explanation.write_counters_source(found)
    assert "instructions" in {each.kind for each in explanation.find_change(found) or ()}


def test_counters_of_another_pair_of_cubins_are_not_taken(filled: Session, filled_url: str) -> None:
    found = evidence_with(filled, filled_url, COUNTED, good_code_sha256="older")
    assert explanation.read_counters(found).now["instructions"] == COUNTERS["instructions"]
    assert explanation.read_counters(found).replay is None


def test_counters_are_those_of_the_newest_replay_that_read_them(filled: Session, filled_url: str) -> None:
    found = evidence_with(filled, filled_url, COUNTED)
    older, newer = (replace(found.replays[0], counters=COUNTED | {"bad": {"instructions": now}}) for now in (3e6, 4e6))
    unread = replace(newer, counters=None)
    assert explanation.read_counters(replace(found, replays=(older, newer, unread))).now["instructions"] == 4e6


def test_a_replay_without_a_host_was_profiled_on_an_unknown_machine(filled: Session, filled_url: str) -> None:
    found = evidence_with(filled, filled_url, COUNTED, host=None)
    assert "read both on an unknown machine, side by side" in explanation.write_counters_source(found)


def test_why_a_pair_has_no_counters_is_said_once(filled: Session, filled_url: str) -> None:
    found = evidence_with(filled, filled_url, {"missing": "ncu is away"})
    found = replace(found, sampled=tuple(replace(each, detail={}) for each in found.sampled), replays=found.replays * 2)
    assert explanation.write_counters_source(found) == "No counters: ncu is away."


def test_what_another_config_brings_is_not_what_the_commit_changed(filled: Session, filled_url: str) -> None:
    """A commit that took a swizzle away was explained by the tiles of the config that won instead (2026-11-27)."""
    found = evidence_with(filled, filled_url, COUNTED)
    assert found.winner is not None
    other = replace(found.winner, params={"tile_m": 7}, code_sha256="old", registers=255, stack_bytes=0)
    same = replace(found.winner, code_sha256="older", stack_bytes=0)
    spills = replace(found.winner, stack_bytes=512)
    moved = replace(found, winner=spills, winner_before=other, same_config_before=same)
    kinds = {each.kind for each in explanation.find_change(moved) or ()}
    assert ("spills" in kinds, "instructions" in kinds) == (True, False), "the counters are of the other config too"
    unread = replace(same, code_sha256=None, stack_bytes=None)
    beside_another = explanation.find_change(replace(moved, same_config_before=unread)) or ()
    assert {each.kind for each in beside_another} >= {"spills", "instructions"}
    unchanged = replace(moved, same_config_before=replace(same, code_sha256=spills.code_sha256))
    assert explanation.find_change(unchanged) is None


def test_instructions_that_moved_explain_a_change_of_the_same_config_alone(filled: Session, filled_url: str) -> None:
    found = evidence_with(filled, filled_url, COUNTED)
    assert found.winner_before is not None
    barriers = {"kind": "barriers", "loop_depth": 1, "base": 3, "head": 9}
    moved = replace(found, diff_to_before=CodeDiffRow("", [], [barriers]))
    assert "overlap" in {each.kind for each in explanation.find_change(moved) or ()}
    other = replace(found.winner_before, params={"tile_m": 7})
    beside_another = replace(moved, winner_before=other, same_config_before=found.winner_before)
    assert "overlap" not in {each.kind for each in explanation.find_change(beside_another) or ()}


def timed(found: reads.Evidence, before_us: float, now_us: float) -> reads.Evidence:
    """The same evidence with other times of both winners; a baseline's row comes first."""

    def time(rows: Any, us: float) -> Any:
        return tuple(replace(each, median_us=us) if each.role == "kernel" else each for each in rows[::-1])

    return replace(found, sampled=time(found.sampled, now_us), sampled_before=time(found.sampled_before, before_us))


SMALL_TILE, LARGE_TILE = ({"tile_m": side, "tile_n": 64, "tile_k": 64} for side in (64, 256))
"""Tiles that cover the 320 rows of the problem with 320 and with 512 rows: 1.6 times the work."""


@pytest.mark.parametrize(
    ("before_us", "now_us", "is_explained"),
    [(100, 101, True), (100, 100.9, False), (101, 100, True), (100.9, 100, False), (100, 100, False)],
)
def test_a_change_of_one_percent_is_explained_in_either_direction(
    filled: Session, filled_url: str, before_us: float, now_us: float, is_explained: bool
) -> None:
    found = timed(evidence_with(filled, filled_url, COUNTED), before_us, now_us)
    assert (explanation.find_change(found) is not None) == is_explained


@pytest.mark.parametrize("unknown", ["winner", "winner_before", "sampled", "sampled_before"])
def test_a_change_is_not_explained_without_one_of_its_sides(filled: Session, filled_url: str, unknown: str) -> None:
    found = evidence_with(filled, filled_url, COUNTED)
    missing = () if unknown.startswith("sampled") else None
    assert explanation.find_change(replace(found, **{unknown: missing})) is None


@pytest.mark.parametrize(
    ("fast_us", "slow_us", "is_enough"), [(100, 110, True), (100, 215, True), (100, 225, False), (1, 3, False)]
)
@pytest.mark.parametrize("is_slower", [True, False])
def test_padding_is_held_against_the_ratio_of_both_times(
    filled: Session, filled_url: str, is_slower: bool, fast_us: float, slow_us: float, is_enough: bool
) -> None:
    """Padding that makes 0.6 more work explains at most half of a change, here up to 2.2 times the time."""
    found = evidence_with(filled, filled_url, None)
    found = replace(found, sampled=tuple(replace(each, detail={}) for each in found.sampled))
    assert found.winner is not None
    fast, slow = (replace(found.winner, params=params) for params in (SMALL_TILE, LARGE_TILE))
    before, now = (fast, slow) if is_slower else (slow, fast)
    times = (fast_us, slow_us) if is_slower else (slow_us, fast_us)
    moved = timed(replace(found, winner_before=before, winner=now, same_config_before=None), *times)
    (padding,) = (each for each in explanation.find_change(moved) or () if each.kind == "quantisation")
    assert (padding.name, padding.is_enough) == (
        "tile quantisation" if is_slower else "less tile quantisation",
        is_enough,
    )


@pytest.mark.parametrize(
    ("winner_us", "other_us", "is_enough"),
    [(100, 100.9, None), (100, 101, True), (100, 215, True), (100, 225, False), (None, 101, None), (100, None, None)],
)
def test_padding_of_the_second_fastest_config_is_held_against_its_time(
    filled: Session, filled_url: str, winner_us: float | None, other_us: float | None, is_enough: bool | None
) -> None:
    found = evidence_with(filled, filled_url, None)
    assert found.winner is not None
    winner = replace(found.winner, params=SMALL_TILE, median_us=winner_us)
    other = replace(found.winner, params=LARGE_TILE, median_us=other_us)
    advantage = explanation.find_advantage(replace(found, winner=winner, next_best=other))
    padding = [each for each in advantage or () if each.kind == "quantisation"]
    assert [(each.name, each.is_enough) for each in padding] == (
        [] if is_enough is None else [("less tile quantisation", is_enough)]
    )
    assert (advantage is None) == (is_enough is None)


@pytest.mark.parametrize("missing", ["winner", "next_best"])
def test_a_winner_alone_has_no_advantage(filled: Session, filled_url: str, missing: str) -> None:
    found = evidence_with(filled, filled_url, None)
    assert explanation.find_advantage(replace(found, **{missing: None})) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (0.12345, "0.123"),
        (12.345, "12.3"),
        (99.5, "99.5"),
        (100.4, "100"),
        (999.6, "1,000"),
        (1000, "1,000"),
        (2.5e9, "2,500,000,000"),
    ],
)
def test_counters_are_written_whole_from_one_hundred(
    filled: Session, filled_url: str, value: float | None, text: str
) -> None:
    """A counter of 999.6 was "1e+03"."""
    found = evidence_with(filled, filled_url, {"good": {"instructions": value}, "bad": {"instructions": 7.0}})
    (row,) = explanation.tabulate_counters(found).to_dict("records")
    assert (row.get("before", ""), row["this run"]) == (text, "7")


def test_a_counter_that_only_one_side_read_has_no_change(filled: Session, filled_url: str) -> None:
    sides = {
        "good": {"instructions": 200.0, "dram_pct": 0},
        "bad": {"dram_pct": 5, "instructions": 150.0, "l2_bytes": 9},
    }
    found = evidence_with(filled, filled_url, sides)
    assert found.next_best is not None
    tied = [{"config": {}, "instructions": 1.0}, {"config": found.next_best.params, "instructions": 300.0}]
    sampled = tuple(replace(each, detail={"tied_counters": tied}) for each in found.sampled)
    table = explanation.tabulate_counters(replace(found, sampled=sampled))
    assert table.drop(columns="means").to_dict("split")["data"] == [
        ["device memory busy, %", "0", "5", "", ""],
        ["through L2, bytes", "", "9", "", ""],
        ["instructions", "200", "150", "-25.0 %", "300"],
    ]
    assert list(table.columns) == ["counter", "before", "this run", "change", "next best", "means"]
    alone = explanation.tabulate_counters(replace(found, sampled=sampled, next_best=None))
    assert list(alone.columns) == ["counter", "before", "this run", "change", "means"]
    assert list(explanation.tabulate_counters(replace(found, replays=(), sampled_before=())).columns) == [
        "counter",
        "this run",
        "means",
    ]


def test_the_roofline_has_the_work_asked_for_beside_the_work_of_each_run(filled: Session, filled_url: str) -> None:
    good = {"tensor_operations": 5e9, "dram_read_bytes": 3e6, "dram_write_bytes": 1e6}
    found = timed(evidence_with(filled, filled_url, {"good": good, "bad": {"dram_write_bytes": 2e6}}), 130.0, 140.0)
    run = found.run
    point = explanation.RooflinePoint
    asked = point("what the problem asks for", run.flops, run.bytes, 140.0)
    before = point("before, measured", 5e9, 4e6, 130.0)
    assert explanation.list_roofline_points(found) == [
        asked,
        before,
        point("this run, measured", run.flops, 2e6, 140.0),
    ]
    unread = evidence_with(filled, filled_url, {"good": {"l2_hit_pct": 3.0}, "bad": {"l2_hit_pct": 4.0}})
    assert explanation.list_roofline_points(timed(unread, 130.0, 140.0)) == [asked]
    assert explanation.list_roofline_points(replace(found, run=replace(run, flops=0))) == []
    assert explanation.list_roofline_points(evidence_with(filled, filled_url, {"good": good, "bad": {}})) == []


@pytest.mark.parametrize(
    ("mhz_before", "is_slower", "is_named"), [(1980, True, True), (1500, True, False), (1980, False, False)]
)
def test_lower_clocks_are_those_of_the_slower_run(
    filled: Session, filled_url: str, mhz_before: float, is_slower: bool, is_named: bool
) -> None:
    found = evidence_with(filled, filled_url, COUNTED)
    assert found.before is not None
    clocks = [{"when": "prepared"}, *({"sm_clock_mhz": mhz} for mhz in (1200, 1500, 1500))]
    before = replace(found.before, telemetry=[{"sm_clock_mhz": mhz_before}])
    moved = replace(found, run=replace(found.run, telemetry=clocks), before=before)
    slow_last = timed(moved, 100, 110) if is_slower else timed(moved, 110, 100)
    assert ("clocks" in {each.kind for each in explanation.find_change(slow_last) or ()}) == is_named


def test_instructions_outside_loops_are_no_barriers_of_the_loop(filled: Session, filled_url: str) -> None:
    found = evidence_with(filled, filled_url, None)
    for loop_depth, is_named in ((0, False), (1, True), (2, True)):
        barriers = {"kind": "barriers", "loop_depth": loop_depth, "base": 3, "head": 9}
        moved = replace(found, diff_to_before=CodeDiffRow("", [], [barriers]))
        assert ("overlap" in {each.kind for each in explanation.find_change(moved) or ()}) == is_named


@pytest.mark.parametrize(
    ("counters", "detail", "source"),
    [
        (COUNTED, {}, "Nsight Compute read both on node-1, side by side, after the last launch of their replay."),
        (None, {"counters": {"instructions": 5}}, "Nsight Compute read them after the last round."),
        (
            None,
            {"counters": {"instructions": 5}, "counted": "in a run apart"},
            "Nsight Compute read them in a run apart.",
        ),
        ({"missing": "ncu is away"}, {"no_counters": "no permission"}, "No counters: no permission."),
        ({"missing": "ncu is away"}, {}, "No counters: ncu is away."),
        (None, {}, "This run has no counters: it was measured without them."),
        (None, {"counters": "unreadable"}, "This run has no counters: it was measured without them."),
        (None, {"counters": {"instructions": "5"}}, "This run has no counters: it was measured without them."),
    ],
)
def test_a_sentence_names_the_source_of_the_counters_or_why_they_are_missing(
    filled: Session, filled_url: str, counters: dict[str, Any] | None, detail: dict[str, Any], source: str
) -> None:
    found = evidence_with(filled, filled_url, counters)
    details = {"kernel": detail, "baseline": {"no_counters": "a baseline has none", "counters": {"instructions": 1}}}
    found = replace(found, sampled=tuple(replace(each, detail=details[each.role]) for each in found.sampled[::-1]))
    assert explanation.write_counters_source(found) == source


def test_counters_of_another_pair_of_cubins_do_not_say_why_there_are_none(filled: Session, filled_url: str) -> None:
    found = evidence_with(filled, filled_url, COUNTED, bad_code_sha256="newer")
    found = replace(found, sampled=tuple(replace(each, detail={}) for each in found.sampled))
    without = "This run has no counters: it was measured without them."
    assert explanation.write_counters_source(found) == without
    failed = replace(found.replays[0], counters={"missing": "ncu is away"})
    asked = replace(found, replays=(replace(failed, counters=None), *found.replays, failed))
    assert explanation.write_counters_source(asked) == "No counters: ncu is away."


@pytest.mark.parametrize("missing", ["winner", "winner_before"])
def test_counters_of_a_run_without_a_winner_are_those_of_the_runs(
    filled: Session, filled_url: str, missing: str
) -> None:
    found = replace(evidence_with(filled, filled_url, COUNTED), **{missing: None})
    counters = explanation.read_counters(found)
    assert (counters.replay, counters.before, counters.now) == (None, COUNTERS, COUNTERS)
