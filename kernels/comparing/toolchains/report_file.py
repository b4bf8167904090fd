"""Keeps a comparison of two toolchains as one JSON file, so that a later run of the command can continue it.

The file is written completely or not at all, every few seconds, so measurements survive a killed command.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tilewatch.errors import ExpectedError
from tilewatch.given_files import BadFile, read_given
from tilewatch.kernels.comparing.timing_order import Timing
from tilewatch.kernels.comparing.toolchains.pairs import ToolchainPair, read_compiled_side
from tilewatch.kernels.comparing.toolchains.safety_verdict import Retuning
from tilewatch.kernels.measuring.pair_bench import WITH_HEAD

Row = TypeVar("Row")

VERSION = 2
SAVE_EVERY_S = 5.0
MOST_BYTES = 16 << 20
"""Largest report that is read. One of the whole library on one GPU has 0.4 MB."""
MADE_AT = "%Y-%m-%d %H:%M UTC"

PairKey = tuple[str, str, str]
"""Kernel, problem, architecture."""
GpuKey = tuple[str, str, str]
"""Kernel, problem, GPU model."""

VERSION_1_NAMES = {"a": "base", "b": "head", "a_us": "base_us", "b_us": "head_us", "is_of_b": "is_of_head"}
"""Names of fields in reports of before 2026-11-28."""


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
    """All results so far."""

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
    try:
        return read_rows(json.loads(read_given(path, MOST_BYTES)))
    except BadFile as error:
        raise BadReport(str(error)) from None
    except (AttributeError, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        why = str(error) or type(error).__name__
        raise BadReport(f"{path} is not a report of `tilewatch toolchain compare`: {why}") from None


def find_cubins(path: Path) -> Path:
    """Returns the folder of a report's cubins, beside the report."""
    return path.with_suffix(".cubins")


def list_rows(report: ToolchainReport) -> dict[str, Any]:
    """Returns the report as plain values for `read_rows`."""
    rows = asdict(report)
    for name in ("pairs", "gpus"):
        rows[name] = list(rows[name].values())
    for name in ("frozen", "retuned", "retunings"):
        rows[name] = [
            {"kernel": kernel, "problem": problem, "gpu_model": gpu_model, **row}
            for (kernel, problem, gpu_model), row in rows[name].items()
        ]
    return {"tilewatch_toolchain_report": VERSION, **rows}


def read_rows(rows: Mapping[str, Any]) -> ToolchainReport:
    """Reads a report from plain values. Raises AttributeError, ValueError, KeyError or TypeError for other values."""
    if not isinstance(rows, dict) or (version := rows.get("tilewatch_toolchain_report")) is None:
        raise ValueError("it has no tilewatch_toolchain_report version")
    if version == 1:
        rows = _convert_version_1(rows)
    elif version != VERSION:
        raise ValueError(f"it is one of version {version!r:.60}; this Tilewatch reads versions 1 and {VERSION}")
    return ToolchainReport(
        base=ToolchainName(**rows["base"]),
        head=ToolchainName(**rows["head"]),
        made_at=rows["made_at"],
        fail_over=rows["fail_over"],
        static_wall_s=rows["static_wall_s"],
        static_jobs=rows["static_jobs"],
        pairs={(row["kernel"], row["problem"], row["arch"]): _read_pair(row) for row in rows["pairs"]},
        gpus={row["model"]: GpuUsed(**row) for row in rows["gpus"]},
        frozen=_read_by_gpu(rows["frozen"], _read_timing),
        retuned=_read_by_gpu(rows["retuned"], _read_timing),
        retunings=_read_by_gpu(rows["retunings"], _read_retuning),
    )


def _read_by_gpu(rows: Iterable[Mapping[str, Any]], read: Callable[[Mapping[str, Any]], Row]) -> dict[GpuKey, Row]:
    return {(row["kernel"], row["problem"], row["gpu_model"]): read(row) for row in rows}


def _read_pair(row: Mapping[str, Any]) -> ToolchainPair:
    sides = {side: tuple(map(read_compiled_side, row[side])) for side in ("base", "head")}
    return ToolchainPair(**{**row, **sides})


def _read_timing(row: Mapping[str, Any]) -> Timing:
    times_us = (tuple(row["base_us"]), tuple(row["head_us"]))
    return Timing(*times_us, row["failure"], row["is_of_head"], row["not_apart"])


def _read_retuning(row: Mapping[str, Any]) -> Retuning:
    side = None if row["side"] is None else read_compiled_side(row["side"])
    numbers = {name: row.get(name, 0) for name in ("tried", "compiled", "space", "drawn")}
    return Retuning(side=side, tie=tuple(row["tie"]), failure=row["failure"], **numbers)


def _convert_version_1(rows: Mapping[str, Any]) -> dict[str, Any]:
    """Converts a report of before 2026-11-28, whose sides have other names and whose winners lie apart."""

    def rename(row: Mapping[str, Any]) -> dict[str, Any]:
        return {VERSION_1_NAMES.get(name, name): value for name, value in row.items()}

    winners = {tuple(row["of"]): row["build"] for row in rows["winners"]}
    converted = rename(rows) | {"pairs": [rename(row) for row in rows["pairs"]]}
    for name in ("frozen", "retuned"):
        converted[name] = [{**rename(row), "not_apart": ""} for row in rows[name]]
        for row in converted[name]:
            row["failure"] = f"{WITH_HEAD}{row['failure']}" if row["is_of_head"] else row["failure"]
    converted["retunings"] = [
        {**row, "side": winners.get((row["kernel"], row["problem"], row["gpu_model"]))} for row in rows["retunings"]
    ]
    return converted
