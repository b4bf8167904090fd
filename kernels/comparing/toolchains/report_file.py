"""Keeps a comparison of toolchains as one JSON file, so that a later run can continue it."""

import functools
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from tilewatch.errors import ExpectedError
from tilewatch.given_files import BadFile, read_given, write_given
from tilewatch.kernels.comparing.timing_order import Timing
from tilewatch.kernels.comparing.toolchains.pairs import ToolchainPair
from tilewatch.kernels.comparing.toolchains.safety_verdict import Retuning
from tilewatch.kernels.toolchains.versions import read_compilers

VERSION = 3
SAVE_EVERY_S = 5.0
MADE_AT = "%Y-%m-%d %H:%M UTC"

PairKey = tuple[str, str, str, str]
"""Kernel, problem, architecture and the head's name."""
GpuKey = tuple[str, str, str, str]
"""Kernel, problem, GPU model and the head's name."""

PAIR_KEY = ("kernel", "problem", "arch", "head_name")
GPU_KEY = ("kernel", "problem", "gpu_model", "head_name")
BY_GPU = ("frozen", "retuned", "retunings", "baselines")


class BadReport(ExpectedError):
    """Raised if a file is no report, or a report of other toolchains."""


@dataclass(frozen=True)
class ToolchainName:
    """A toolchain as a report names it. If `rung_of` is set, the toolchain is a mix of base and head."""

    name: str
    compiler: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    rung_of: str = ""
    swapped: tuple[str, ...] = ()  # dependencies that have the head's version

    @property
    def versions(self) -> Mapping[str, str]:
        """Returns the versions by package."""
        return self.packages or read_compilers([self.compiler])


@dataclass(frozen=True)
class GpuUsed:
    """A GPU model that a report used. `wall_s` is all time spent on it, including compilation."""

    model: str
    name: str
    driver: str
    wall_s: float = 0.0


@dataclass
class ToolchainReport:
    """All results of a comparison so far. `sides` are the base, the heads, and mixes of both."""

    sides: tuple[ToolchainName, ...]
    made_at: str
    id: str = ""  # tells apart reports begun in one minute; empty in old files
    fail_over: float = 0.0
    static_wall_s: float = 0.0
    static_jobs: int = 0
    pairs: dict[PairKey, ToolchainPair] = field(default_factory=dict)
    gpus: dict[str, GpuUsed] = field(default_factory=dict)
    frozen: dict[GpuKey, Timing] = field(default_factory=dict)
    retuned: dict[GpuKey, Timing] = field(default_factory=dict)
    retunings: dict[GpuKey, Retuning] = field(default_factory=dict)
    baselines: dict[GpuKey, Timing] = field(default_factory=dict)

    @property
    def base(self) -> ToolchainName:
        return self.sides[0]

    @property
    def heads(self) -> tuple[ToolchainName, ...]:
        return tuple(each for each in self.sides[1:] if not each.rung_of)

    def has_passing_failures(self, gpu_model: str) -> bool:
        known = (self.frozen, self.retuned, self.retunings, self.baselines)
        return any(key[2] == gpu_model and each.may_pass for of_kind in known for key, each in of_kind.items())

    def drop_passing_failures(self, gpu_model: str) -> None:
        """Clears a GPU model's failures that may not occur again, so that the next run repeats these timings."""
        for known in (self.frozen, self.retuned, self.baselines):
            passed = [key for key, each in known.items() if key[2] == gpu_model and each.may_pass]
            known |= {key: replace(known[key], failure=None, is_of_head=False, may_pass=False) for key in passed}
        for key in [key for key, each in self.retunings.items() if key[2] == gpu_model and each.may_pass]:
            del self.retunings[key]

    @property
    def title(self) -> str:
        """Returns the names of base and heads, such as: 13.4 → 13.5, 13.6."""
        return f"{self.base.name} → {', '.join(head.name for head in self.heads)}"


class ReportKeeper(Protocol):
    """Keeps an unfinished report for a later run."""

    def save_soon(self) -> None:
        """Saves the report unless it was saved a moment ago."""

    def save(self) -> None: ...


class ReportFile:
    """The JSON file of an unfinished report."""

    def __init__(self, path: Path, report: ToolchainReport) -> None:
        self._path, self._report, self._saved_at = path, report, 0.0

    def save_soon(self) -> None:
        """Writes the file unless it was written a moment ago."""
        if time.monotonic() - self._saved_at >= SAVE_EVERY_S:
            self.save()

    def save(self) -> None:
        self._saved_at = time.monotonic()
        partial = self._path.with_name(f"{self._path.name}.part")
        write_given(partial, json.dumps(list_rows(self._report)))
        os.replace(partial, self._path)


def read_report(path: Path) -> ToolchainReport:
    """Returns the report in a file. Raises BadReport if the file is not a report."""
    try:
        return read_rows(json.loads(read_given(path)))
    except BadFile as error:
        raise BadReport(str(error)) from None
    except (AttributeError, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise BadReport(f"{path} is not a report of `tilewatch toolchain compare`: {why}") from None


def find_cubins(path: Path) -> Path:
    """Returns the folder of a report's cubins, which lies beside the report."""
    return path.with_suffix(".cubins")


def list_rows(report: ToolchainReport) -> dict[str, Any]:
    """Returns the report as values for JSON, which `read_rows` reads."""
    rows = asdict(report)
    for name in ("pairs", "gpus"):
        rows[name] = list(rows[name].values())
    for name in BY_GPU:
        rows[name] = [{**dict(zip(GPU_KEY, key, strict=True)), **row} for key, row in rows[name].items()]
    return {"tilewatch_toolchain_report": VERSION, **rows}


def read_rows(rows: Mapping[str, Any]) -> ToolchainReport:
    """Returns a report from the values of `list_rows`. Raises AttributeError, ValueError, KeyError or TypeError."""
    if not isinstance(rows, dict) or (version := rows.get("tilewatch_toolchain_report")) is None:
        raise ValueError("it has no tilewatch_toolchain_report version")
    if version != VERSION:
        raise ValueError(f"it is one of version {version!r:.60}; this Tilewatch reads version {VERSION}")
    keys = {"pairs": PAIR_KEY, "gpus": ("model",), **dict.fromkeys(BY_GPU, GPU_KEY)}
    by_key = {name: {_read_key(row, fields): row for row in rows[name]} for name, fields in keys.items()}
    plain = {name: rows[name] for name in ("sides", "made_at", "fail_over", "static_wall_s", "static_jobs")}
    report: ToolchainReport = _make_reader().validate_python({"id": "", **rows, **plain, **by_key})
    if not report.sides:
        raise ValueError("it names no toolchain")
    json.dumps(list_rows(report), allow_nan=False)  # raises ValueError: the database stores no NaN
    return report


def merge(stored: ToolchainReport, other: ToolchainReport) -> ToolchainReport:
    """Returns one report from two files of the same report, such as those of two machines."""
    compiled = {side.name: side for side in other.sides if side.compiler}
    sides = {**{side.name: side for side in (*other.sides, *stored.sides)}, **compiled}
    parts: dict[str, Any] = {
        name: {**getattr(stored, name), **getattr(other, name)} for name in ("pairs", "gpus", *BY_GPU)
    }
    for name in ("frozen", "retuned", "baselines"):
        for key, timing in getattr(stored, name).items():
            if len(timing.base_us) > len(parts[name][key].base_us):
                parts[name][key] = timing
    longest = {name: max(getattr(stored, name), getattr(other, name)) for name in ("static_wall_s", "static_jobs")}
    return replace(other, sides=tuple(sides.values()), **parts, **longest)


def _read_key(row: Mapping[str, Any], fields: Sequence[str]) -> tuple[str, ...] | str:
    values = tuple(str(row[name]) for name in fields)
    return values if len(values) > 1 else values[0]


@functools.cache
def _make_reader() -> Any:
    from pydantic import TypeAdapter  # imported here, because it takes longer than a help text

    return TypeAdapter(ToolchainReport)
