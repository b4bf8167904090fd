"""Finds the reasons for a change of a winning config's time, and tabulates hardware counters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import pandas as pd

from tilewatch.dashboard.frames.reads import Evidence
from tilewatch.db.page_reads.evidence import CodeDiffRow, CubinRow, RunRow, SamplesRow
from tilewatch.db.page_reads.replays import ReplayRow
from tilewatch.mechanisms.counters import COUNTERS, LABELS
from tilewatch.mechanisms.find import Mechanism, find_mechanisms
from tilewatch.mechanisms.pairs import Moved, WinnerFacts, read_swizzled, write_number
from tilewatch.text import change_text

LEAST_CHANGE = 0.01
"""The least relative change of the time that gets an explanation."""

FACTS = ("registers", "stack_bytes", "shared_bytes", "code_bytes", "tma_loads", "loads", "tensor_core_mmas", "mmas")


@dataclass(frozen=True)
class RooflinePoint:
    """The work of one launch: its operations, the bytes that it moved, and its time."""

    name: str
    operations: float
    moved_bytes: float
    time_us: float


@dataclass(frozen=True)
class PairCounters:
    """Hardware counters by name, for the earlier run's winner and for this run's winner; empty if unknown."""

    before: Mapping[str, float]
    now: Mapping[str, float]
    replay: ReplayRow | None = None  # profiled both winners; None if each run profiled its own


def read_counters(found: Evidence) -> PairCounters:
    """Returns the hardware counters of this run's and of the earlier run's winner, if possible from a replay."""
    if found.winner is not None and found.winner_before is not None:
        codes = (found.winner_before.code_sha256, found.winner.code_sha256)
        for replay in reversed(found.replays):
            if (replay.good_code_sha256, replay.bad_code_sha256) == codes and "good" in (replay.counters or {}):
                assert replay.counters is not None
                return PairCounters(_known(replay.counters["good"]), _known(replay.counters["bad"]), replay)
    before, now = (_known(read_detail(each).get("counters")) for each in (found.sampled_before, found.sampled))
    return PairCounters(before, now)


def write_counters_source(found: Evidence) -> str:
    """Returns a sentence on how the counters were read, or on why they are missing."""
    detail, counters = read_detail(found.sampled), read_counters(found)
    if counters.replay is not None:
        machine = counters.replay.host or "an unknown machine"
        return f"Nsight Compute read both on {machine}, side by side, after the last launch of their replay."
    if counters.now:
        where = detail.get("counted")
        return f"Nsight Compute read them {where}." if where else "Nsight Compute read them after the last round."
    missing = (each.counters["missing"] for each in found.replays if each.counters and "missing" in each.counters)
    reason = detail.get("no_counters") or next(missing, "")
    return f"No counters: {reason}." if reason else "This run has no counters: it was measured without them."


def tabulate_counters(found: Evidence) -> pd.DataFrame:
    """Returns a table of hardware counters for the winner, the earlier winner and the second fastest config."""
    counters, other = read_counters(found), _of_next_best(found)
    now, before = counters.now, counters.before
    rows = []
    for counter in COUNTERS:
        if counter.name not in now:
            continue
        row = {"counter": counter.label}
        if before:
            row["before"] = _write(before.get(counter.name))
        row["this run"] = _write(now[counter.name])
        if before:
            row["change"] = _change(before.get(counter.name), now[counter.name])
        if other:
            row["next best"] = _write(other.get(counter.name))
        rows.append({**row, "means": counter.meaning})
    return pd.DataFrame(rows)


def find_change(found: Evidence) -> tuple[Mechanism, ...] | None:
    """Returns the reasons why the time changed, the main first; None if unknown or if the change is small."""
    sides = [[row.median_us for row in each if row.role == "kernel"] for each in (found.sampled_before, found.sampled)]
    ratio = sides[1][0] / sides[0][0] if all(sides) else 1.0
    if max(ratio, 1 / ratio) < 1 + LEAST_CHANGE or found.winner is None or found.winner_before is None:
        return None
    assert found.before is not None
    base = _find_base(found)
    if base is None:
        return None
    is_winner = base is found.winner_before
    counters = read_counters(found) if is_winner else PairCounters({}, {})
    return find_mechanisms(
        _build(base, counters.before, found.before, found.sampled_before),
        _build(found.winner, counters.now, found.run, found.sampled),
        _list_moved(found.diff_to_before if is_winner else None),
        is_slower=ratio > 1,
        problem=found.run.problem,
        arch=found.run.arch,
        ratio=max(ratio, 1 / ratio),
    )


def _find_base(found: Evidence) -> CubinRow | None:
    """Returns the earlier cubin to compare with this run's winner; None if only the choice of config changed."""
    assert found.winner is not None
    assert found.winner_before is not None
    if found.winner.params == found.winner_before.params:
        return found.winner_before
    same = found.same_config_before
    if same is None or same.code_sha256 is None:
        return found.winner_before
    # The difference between two configs does not explain a commit.
    return None if same.code_sha256 == found.winner.code_sha256 else same


def find_advantage(found: Evidence) -> tuple[Mechanism, ...] | None:
    """Returns the reasons why the winner is faster than the second fastest config; None if it is hardly faster."""
    winner, other = found.winner, found.next_best
    if winner is None or other is None or winner.median_us is None or other.median_us is None:
        return None
    if other.median_us < (1 + LEAST_CHANGE) * winner.median_us:
        return None
    return find_mechanisms(
        _build(other, _of_next_best(found), None),
        _build(winner, _known(read_detail(found.sampled).get("counters")), None),
        _list_moved(found.diff_to_next_best),
        is_slower=False,
        problem=found.run.problem,
        arch=found.run.arch,
        ratio=other.median_us / winner.median_us,
    )


def list_roofline_points(found: Evidence) -> list[RooflinePoint]:
    """Lists the points of the roofline: the work that the problem needs, and the work that each run did."""
    counted = read_counters(found)
    if not counted.now or not found.run.flops:
        return []
    time_us = _kernel_time(found.sampled)
    points = [RooflinePoint("what the problem asks for", found.run.flops, found.run.bytes, time_us)]
    before = ("before, measured", found.sampled_before, counted.before)
    for name, sampled, counters in (before, ("this run, measured", found.sampled, counted.now)):
        moved_bytes = counters.get("dram_read_bytes", 0) + counters.get("dram_write_bytes", 0)
        if moved_bytes:
            operations = counters.get("tensor_operations") or found.run.flops
            points.append(RooflinePoint(name, operations, moved_bytes, _kernel_time(sampled)))
    return points


def read_detail(sampled: Sequence[SamplesRow]) -> Mapping[str, Any]:
    """Returns the JSON stored with a run's kernel; empty if the kernel was not measured."""
    return next((row.detail for row in sampled if row.role == "kernel"), {})


def _kernel_time(sampled: Sequence[SamplesRow]) -> float:
    return next(row.median_us for row in sampled if row.role == "kernel")


def _known(counters: Any) -> dict[str, float]:
    if not isinstance(counters, Mapping):
        return {}
    return {name: float(counters[name]) for name in LABELS if isinstance(counters.get(name), int | float)}


def _of_next_best(found: Evidence) -> dict[str, float]:
    other, tied = found.next_best, read_detail(found.sampled).get("tied_counters") or []
    return _known(next((each for each in tied if other and each.get("config") == other.params), None))


def _build(
    cubin: CubinRow, counters: Mapping[str, float], run: RunRow | None, sampled: Sequence[SamplesRow] = ()
) -> WinnerFacts:
    clocks = [] if run is None else [each["sm_clock_mhz"] for each in run.telemetry if each.get("sm_clock_mhz")]
    facts = {name: getattr(cubin, name) for name in FACTS}
    is_swizzled = read_swizzled(read_detail(sampled).get("checklist"))
    return WinnerFacts(cubin.params, facts, counters, median(clocks) if clocks else None, is_swizzled)


def _list_moved(diff: CodeDiffRow | None) -> list[Moved]:
    rows = [] if diff is None else diff.instructions
    return [Moved(row["kind"], row["loop_depth"] > 0, row["base"], row["head"]) for row in rows]


def _write(value: float | None) -> str:
    return "" if value is None else write_number(value)


def _change(before: float | None, now: float) -> str:
    return "" if not before else change_text(now / before - 1)
