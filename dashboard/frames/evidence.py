"""Writes the evidence about a run as text, JSON, CSV and tables."""

import csv
import io
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

import pandas as pd

from tilewatch.configs import config_option
from tilewatch.dashboard.frames.baseline_texts import name_lines
from tilewatch.dashboard.frames.reads import Evidence
from tilewatch.dashboard.text import time_text, without_formula
from tilewatch.db.page_reads.evidence import CubinRow, SamplesRow
from tilewatch.db.page_reads.replays import ReplayRow
from tilewatch.metrics import split_kernel
from tilewatch.text import short_sha, write_change

FACT_LABELS = {
    "compile_status": "compiled",
    "code_sha256": "machine code",
    "registers": "registers per thread",
    "stack_bytes": "stack (spills), bytes",
    "shared_bytes": "shared memory, bytes",
    "code_bytes": "code, bytes",
    "tma_loads": "loads through TMA",
    "loads": "loads",
    "tensor_core_mmas": "MMAs on Tensor Cores",
    "mmas": "MMAs",
    "median_us": "time in the sweep, us",
    "compile_s": "compile time, s",
}
CODE_DIGITS = 12


def repeat_commands(found: Evidence) -> str:
    """Returns shell commands that repeat a run's sweep, and time its winner against the earlier run's winner."""
    run, before = found.run, found.before
    lines = [
        f"git checkout {run.sha}",
        shlex.join(["python", "-m", "tilewatch.kernels", "sweep", split_kernel(run.kernel)[0], run.problem]),
    ]
    if before is not None:
        both = found.winner is not None and found.winner_before is not None
        new, old = (each.params if both and each else None for each in (found.winner, found.winner_before))
        replay = replay_command(run.kernel, run.problem, (run.sha, new), (before.sha, old))
        lines += ["# and both winners, of this run and of the run before in this series, timed in turns:", replay]
    return "\n".join(lines)


def replay_command(
    kernel: str, problem: str, new: tuple[str, Mapping[str, Any] | None], old: tuple[str, Mapping[str, Any] | None]
) -> str:
    """Returns the `tilewatch replay` command for two (commit, config) pairs. A config of None is the default."""
    name, metric = split_kernel(kernel)
    line = f"{shlex.join(['tilewatch', 'replay', name, problem])} --of {new[0]} --beside {old[0]}"
    if metric != "time":
        line += f" --metric {metric}"
    if new[1] is not None:
        line += f" --config {shlex.quote(config_option(new[1]))}"
    if old[1] is not None and old[1] != new[1]:
        line += f" --beside-config {shlex.quote(config_option(old[1]))}"
    return line


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> pd.DataFrame:
    """Returns a table of the values that differ between `before` and `after`."""
    changed = [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]
    rows = [{"": name, "before": _text(before.get(name)), "this run": _text(after.get(name))} for name in changed]
    return pd.DataFrame(rows, columns=["", "before", "this run"])


def replay_sentence(row: ReplayRow) -> str:
    """Returns a sentence on the outcome of a replay."""
    sides = {
        "commit": f"{short_sha(row.good_sha)} → {short_sha(row.bad_sha)}",
        "toolchain": f"{row.good_toolchain} → {row.bad_toolchain}, same commit {short_sha(row.bad_sha)}",
        "config": f"best of the short list → winner, same commit {short_sha(row.bad_sha)}",
        "node": f"node {row.host or 'unknown'}, for comparison with another: {_cubins(row)}",
    }.get(row.axis, f"two sides along {row.axis}")  # of a newer release
    if row.failure is not None:
        return f"{sides}: could not be replayed: {row.failure}"
    if row.axis == "node":
        times = " and ".join(dict.fromkeys(time_text(median(each)) for each in _sides(row)))
        return f"{sides}: {times} over {_launches(row)}"
    if _is_one_code(row):
        return f"{sides}: identical machine code"
    change = write_change(median(row.bad_us) / median(row.good_us) - 1)
    return f"{sides}: {change} over {_launches(row)}"


def _launches(row: ReplayRow) -> str:
    return f"{len(row.good_us)} {'launch' if len(row.good_us) == 1 else 'launches'}"


def _is_one_code(row: ReplayRow) -> bool:
    return row.good_code_sha256 is not None and row.good_code_sha256 == row.bad_code_sha256


def _cubins(row: ReplayRow) -> str:
    if _is_one_code(row):
        return f"the cubin of {short_sha(row.bad_sha)}"
    return f"the cubins of {short_sha(row.good_sha)} and {short_sha(row.bad_sha)}"


def _sides(row: ReplayRow) -> list[list[float]]:
    """Returns a list of times in us for the old and for the new version; a single list for identical code."""
    return [row.good_us + row.bad_us] if _is_one_code(row) else [row.good_us, row.bad_us]


def static_facts(**cubins: CubinRow | None) -> pd.DataFrame:
    """Returns a table of static facts, such as registers, with a row per fact and a column per cubin."""
    there = {name.replace("_", " "): cubin for name, cubin in cubins.items() if cubin is not None}
    rows = []
    for fact, label in FACT_LABELS.items():
        values = {name: getattr(cubin, fact) for name, cubin in there.items()}
        if any(value is not None for value in values.values()):
            digits = fact == "code_sha256"
            rows.append(
                {"": label, **{n: _text(str(v)[:CODE_DIGITS] if digits and v else v) for n, v in values.items()}}
            )
    return pd.DataFrame(rows, columns=["", *there])


def changed_remarks(before: CubinRow | None, after: CubinRow | None) -> pd.DataFrame:
    """Returns a table of the compiler's remarks that only one of the two cubins has."""

    def lines(cubin: CubinRow | None) -> list[tuple[str, ...]]:
        remarks = (cubin.remarks if cubin else None) or []
        return [tuple(str(remark.get(name) or "") for name in ("instruction", "shape", "text")) for remark in remarks]

    old, new = lines(before), lines(after)
    rows = [("only before", *line) for line in dict.fromkeys(old) if line not in new]
    rows += [("only this run", *line) for line in dict.fromkeys(new) if line not in old]
    return pd.DataFrame(rows, columns=["", "instruction", "shape", "remark"])


def describe_boundary(detail: Mapping[str, Any]) -> str:
    """Returns sentences on whether the commit's code ran in a separate process from the timing; empty if unknown."""
    if "library_runs_apart" not in detail:
        return ""
    kept_from = f"It was kept from {detail['sandbox']}." if "sandbox" in detail else ""
    if detail.get("unchecked"):
        kept_from += f" Its results are not checked. Its watch file says: {detail['unchecked']}."
    if detail["library_runs_apart"]:
        who = "The commit's code ran in a process of its own, which had ended before the first timed launch."
    else:
        why = detail.get("not_apart") or "it is host code"
        stated = f" Its watch file says: {detail['stated']}." if detail.get("stated") else ""
        who = (
            f"Not measured apart: the commit's code ran in the process that timed and checked it, because {why}: a "
            f"time that is too good is a reason to read the commit.{stated}"
        )
    return f"{who} {kept_from}".rstrip()


def describe_clocks(readings: Sequence[Mapping[str, Any]]) -> str:
    """Returns sentences on the GPU's clock, on throttling and on other processes."""
    clocks = [reading["sm_clock_mhz"] for reading in readings if reading.get("sm_clock_mhz") is not None]
    if not clocks:
        return "This run has no telemetry."
    throttled = sorted({reason for reading in readings for reason in reading.get("throttled") or ()})
    known = [each["throttled"] is not None for each in readings if "throttled" in each]
    held = "The GPU was not throttled in any reading." if all(known) else "Whether it was throttled is not known."
    held = f"Throttled: {', '.join(throttled)}." if throttled else held
    ends = dict.fromkeys(f"{each:,.0f}" for each in (min(clocks), max(clocks)))
    return f"SM clock {' to '.join(ends)} MHz. {held} {describe_others(readings)}".rstrip()


def describe_others(readings: Sequence[Mapping[str, Any]]) -> str:
    """Returns a sentence on other processes on the GPU; empty if unknown."""
    looks = [reading["others"] for reading in readings if "others" in reading]
    if names := sorted({name for look in looks for name in look or ()}):
        return f"Also used by {', '.join(names)}: what was timed meanwhile was dropped and timed again."
    if None in looks:
        why = next(filter(None, (reading.get("unreadable", {}).get("others") for reading in readings)), "")
        return f"Whether another process used the GPU meanwhile is not known{f': {why}' if why else ''}."
    return "No other process was seen on the GPU." if looks else ""


def pair_times(found: Evidence) -> Iterator[tuple[str, SamplesRow, SamplesRow | None]]:
    """Yields each implementation's name, its times in the run, and its times in the earlier run or None."""
    earlier = {row.implementation: row for row in found.sampled_before}
    shown = pd.DataFrame([{**vars(row), "run_id": found.run.run_id} for row in found.sampled])
    for row, name in zip(found.sampled, name_lines(shown) if found.sampled else (), strict=True):
        yield name, row, earlier.get(row.implementation)


def as_json(found: Evidence) -> str:
    return json.dumps(asdict(found), indent=1, default=str)


def samples_csv(found: Evidence) -> str:
    """Returns the raw times of this run and of the run before as CSV text."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["run", "sha", "implementation", "round", "time_us"])
    for run, sampled in ((found.run, found.sampled), (found.before, found.sampled_before)):
        if run is not None:
            for row in sampled:
                about = [run.run_id, run.sha, without_formula(row.implementation)]
                writer.writerows([*about, i, us] for i, us in enumerate(row.samples_us, start=1))
    return out.getvalue()


def _text(value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)
