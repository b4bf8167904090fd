"""Groups of columns that several queries share."""

import datetime as dt
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SeriesColumns:
    repository: str
    kernel: str
    problem: str
    gpu_model: str


@dataclass(frozen=True)
class SeriesRow(SeriesColumns):
    """A series with the name of its GPU model."""

    gpu_name: str


@dataclass(frozen=True)
class JudgedSeriesColumns(SeriesColumns):
    """A run of a series, and the reason of the run's verdict."""

    run_id: int
    sha: str
    subject: str
    measured_at: dt.datetime
    reason: str


@dataclass(frozen=True)
class CommitColumns:
    sha: str
    subject: str
    position: int
    committed_at: dt.datetime


@dataclass(frozen=True)
class RunColumns:
    run_id: int
    origin: str
    machine: str
    measured_at: dt.datetime


@dataclass(frozen=True)
class JudgedRunColumns(CommitColumns, RunColumns):
    """A run with its commit, the GPU's peak rates and the verdict; the verdict is None if the run was not judged."""

    author: str | None
    device_name: str
    timer: str
    toolchain: dict[str, Any]
    flops: int
    bytes: int
    rate: dict[str, Any] | None
    fp8_tflops: float | None
    bandwidth_gbps: float | None
    verdict: str | None
    change: float | None
    reason: str | None


@dataclass(frozen=True)
class TimeColumns:
    """The time of one implementation with its 95 % interval, and its ratio to a baseline."""

    median_us: float
    low_us: float
    high_us: float
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    baseline: str | None


@dataclass(frozen=True)
class MeasurementColumns(TimeColumns):
    """The measurement of one implementation. `detail` is the JSON stored with it."""

    implementation: str
    role: str
    params: dict[str, Any] | None
    detail: dict[str, Any]


@dataclass(frozen=True)
class CodeColumns:
    """Facts about a config's machine code. Each is None if the config was not compiled."""

    registers: int | None
    stack_bytes: int | None
    shared_bytes: int | None
    code_bytes: int | None
    compile_s: float | None


@dataclass(frozen=True)
class TrialColumns(CodeColumns):
    """The outcome of one config in a sweep, with facts about its machine code."""

    params: dict[str, Any]
    status: str
    failure: str | None
    median_us: float | None
    compile_status: str | None
    tma_loads: int | None
    loads: int | None
    tensor_core_mmas: int | None
    mmas: int | None
