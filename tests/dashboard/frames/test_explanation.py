"""A change is explained by counters of the replay that profiled both cubins, else by those of each run."""

from dataclasses import replace
from typing import Any

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


def test_why_a_pair_has_no_counters_is_said_once(filled: Session, filled_url: str) -> None:
    found = evidence_with(filled, filled_url, {"missing": "ncu is away"})
    found = replace(found, sampled=tuple(replace(each, detail={}) for each in found.sampled), replays=found.replays * 2)
    assert explanation.write_counters_source(found) == "No counters: ncu is away."


def test_what_another_config_brings_is_not_what_the_commit_changed(filled: Session, filled_url: str) -> None:
    """A commit that took a swizzle away was explained by the tiles of the config that won instead (2026-11-27)."""
    found = evidence_with(filled, filled_url, COUNTED)
    assert found.winner is not None
    other = replace(found.winner, params={"tile_m": 7}, code_sha256="other", registers=255)
    same = replace(found.winner, code_sha256="older", stack_bytes=0)
    spills = replace(found.winner, stack_bytes=512)
    moved = replace(found, winner=spills, winner_before=other, same_config_before=same)
    assert {each.kind for each in explanation.find_change(moved) or ()} >= {"spills"}
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
