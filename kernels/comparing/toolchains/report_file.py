"""Keeps a comparison of two toolchains as one JSON file, so that a later run of the command can continue it.

The file is written completely or not at all, every few seconds, so measurements survive a killed command.
"""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tilewatch.errors import ExpectedError
from tilewatch.given_files import BadFile, read_given
from tilewatch.kernels.comparing.timing_order import Timing
from tilewatch.kernels.comparing.toolchains.pairs import CompiledSide, ToolchainPair, read_compiled_side
from tilewatch.kernels.comparing.toolchains.safety_verdict import Retuning
from tilewatch.kernels.measuring.pair_bench import WITH_HEAD

VERSION = 1
SAVE_EVERY_S = 5.0
MOST_BYTES = 16 << 20
"""Largest report that is read. One of the whole library on one GPU has 0.4 MB."""
MADE_AT = "%Y-%m-%d %H:%M UTC"

PairKey = tuple[str, str, str]
"""Kernel, problem, architecture."""
GpuKey = tuple[str, str, str]
"""Kernel, problem, GPU model."""

STORED_NAMES = {"is_of_head": "is_of_b"} | {
    f"{side}{end}": f"{letter}{end}"
    for side, letter in (("base", "a"), ("head", "b"))
    for end in ("", "_us", "_cpu_s", "_wall_s")
}
"""Names of fields in stored reports and answers that differ from those in the code."""
READ_NAMES = {stored: name for name, stored in STORED_NAMES.items()}


class BadReport(ExpectedError):
    """The file is not a report of two toolchains, or is one of other toolchains; the message names it."""


@dataclass(frozen=True)
class ToolchainName:
    """Names a toolchain of a report. `compiler` lists the compiling packages; empty until something is compiled."""

    name: str
    compiler: str = ""


@dataclass(frozen=True)
class GpuUsed:
    """A GPU that was used. `wall_s` are all seconds of timing on this model, including compilation."""

    model: str
    name: str
    driver: str
    wall_s: float = 0.0


@dataclass
class ToolchainReport:
    """All results so far. `winners` are the head's own winners, compiled and ready to be timed."""

    base: ToolchainName
    head: ToolchainName
    made_at: str
    fail_over: float = 0.0
    static_wall_s: float = 0.0
    static_jobs: int = 0
    pairs: dict[PairKey, ToolchainPair] = field(default_factory=dict)
    gpus: dict[str, GpuUsed] = field(default_factory=dict)
    frozen: dict[GpuKey, Timing] = field(default_factory=dict)
    retuned: dict[GpuKey, Timing] = field(default_factory=dict)
    retunings: dict[GpuKey, Retuning] = field(default_factory=dict)
    winners: dict[GpuKey, CompiledSide] = field(default_factory=dict)


class ReportKeeper(Protocol):
    """Keeps an unfinished report, so that a later run can continue it."""

    def save_soon(self) -> None:
        """Saves the report if the last save is long enough ago."""

    def save(self) -> None: ...


class ReportFile:
    """The JSON file of an unfinished report."""

    def __init__(self, path: Path, report: ToolchainReport) -> None:
        self._path, self._report, self._saved_at = path, report, 0.0

    def save_soon(self) -> None:
        """Writes the file if the last write is long enough ago."""
        if time.monotonic() - self._saved_at >= SAVE_EVERY_S:
            self.save()

    def save(self) -> None:
        self._saved_at = time.monotonic()
        partial = self._path.with_name(f"{self._path.name}.part")
        partial.write_text(json.dumps(list_rows(self._report)), encoding="utf-8")
        os.replace(partial, self._path)


def read_report(path: Path) -> ToolchainReport:
    """Reads a report from its file. Raises BadReport."""
    return read_report_and_rows(path)[0]


def read_report_and_rows(path: Path) -> tuple[ToolchainReport, dict[str, Any]]:
    """Reads a report from its file, and returns its plain values too. Raises BadReport."""
    try:
        rows = json.loads(read_given(path, MOST_BYTES))
        return read_rows(rows), rows
    except BadFile as error:
        raise BadReport(str(error)) from None
    except (AttributeError, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        why = str(error) or type(error).__name__
        raise BadReport(f"{path} is not a report of `tilewatch toolchain compare`: {why}") from None


def find_cubins(path: Path) -> Path:
    """Returns the folder of a report's cubins, beside the report."""
    return path.with_suffix(".cubins")


def rename_fields(row: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in row.items()}


def list_rows(report: ToolchainReport) -> dict[str, Any]:
    """Returns the report as plain values for `read_rows`."""
    rows = rename_fields(asdict(report), STORED_NAMES)
    for name in ("pairs", "gpus", "retunings"):
        rows[name] = [rename_fields(row, STORED_NAMES) for row in rows[name].values()]
    for name in ("frozen", "retuned"):
        rows[name] = [
            {"kernel": kernel, "problem": problem, "gpu_model": gpu_model, **rename_fields(row, STORED_NAMES)}
            for (kernel, problem, gpu_model), row in rows[name].items()
        ]
    rows["winners"] = [{"of": list(key), "build": build} for key, build in rows["winners"].items()]
    return {"tilewatch_toolchain_report": VERSION, **rows}


def read_rows(rows: Mapping[str, Any]) -> ToolchainReport:
    """Reads a report from plain values. Raises AttributeError, ValueError, KeyError or TypeError for other values."""
    if not isinstance(rows, dict) or (version := rows.get("tilewatch_toolchain_report")) is None:
        raise ValueError("it has no tilewatch_toolchain_report version")
    if version != VERSION:
        raise ValueError(f"it is one of version {version!r:.60}; this Tilewatch reads version {VERSION}")
    sides = [{side: tuple(map(read_compiled_side, row[side])) for side in ("a", "b")} for row in rows["pairs"]]
    pairs = [
        ToolchainPair(**rename_fields({**row, **each}, READ_NAMES))
        for row, each in zip(rows["pairs"], sides, strict=True)
    ]
    timings = {
        name: {(row["kernel"], row["problem"], row["gpu_model"]): _read_timing(row) for row in rows[name]}
        for name in ("frozen", "retuned")
    }
    retunings = [Retuning(**{**row, "tie": tuple(row["tie"])}) for row in rows["retunings"]]
    return ToolchainReport(
        base=ToolchainName(**rows["a"]),
        head=ToolchainName(**rows["b"]),
        made_at=rows["made_at"],
        fail_over=rows["fail_over"],
        static_wall_s=rows["static_wall_s"],
        static_jobs=rows["static_jobs"],
        pairs={(pair.kernel, pair.problem, pair.arch): pair for pair in pairs},
        gpus={row["model"]: GpuUsed(**row) for row in rows["gpus"]},
        frozen=timings["frozen"],
        retuned=timings["retuned"],
        retunings={(each.kernel, each.problem, each.gpu_model): each for each in retunings},
        winners={
            (row["of"][0], row["of"][1], row["of"][2]): read_compiled_side(row["build"]) for row in rows["winners"]
        },
    )


def _read_timing(row: Mapping[str, Any]) -> Timing:
    failure, is_of_head = row["failure"], row["is_of_b"]
    if is_of_head and not failure.startswith(WITH_HEAD):  # a report of before 2026-11-28
        failure = f"{WITH_HEAD}{failure}"
    return Timing(tuple(row["a_us"]), tuple(row["b_us"]), failure, is_of_head, row.get("not_apart", ""))
