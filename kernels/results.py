"""Defines the values that leave the harness: plans of sweeps, outcomes of compiling, results of measuring.

Everything is frozen, made of plain Python values and turns into JSON with `dataclasses.asdict`. Times are microseconds
(`_us`) or seconds (`_s`), sizes bytes. Failures are values here, never exceptions.
"""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Params = Mapping[str, int]


@dataclass(frozen=True)
class PlannedTrial:
    """One config of a sweep and the key of everything that goes into compiling it (computed before compiling)."""

    config: Params
    code_key: str


@dataclass(frozen=True)
class Plan:
    """The trials of a sweep of one kernel on one problem for one architecture.

    `parts_of` says by model of use what part of the model's total the problem is: {"weight": 28.0, "parts": 12}.
    `dtypes` are the inputs' types: "bfloat16", "float8_e4m3fn".
    `ships` is the config that the watched library's own host code launches; None where it is not known, as when host
    code searches at run time. `work` is the owner's measure of the problem, a unit and an amount.
    """

    kernel: str
    problem: str
    arch: str
    source_sha256: str
    element_bytes: int
    axes: tuple[tuple[str, tuple[int, ...]], ...]
    flops: int
    bytes: int
    baselines: tuple[str, ...]
    trials: tuple[PlannedTrial, ...]
    parts_of: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    ships: Params | None = None
    work: tuple[str, float] | None = None
    dtypes: tuple[str, ...] = ()


@dataclass(frozen=True)
class StaticFacts:
    """Facts that a cubin shows without running.

    `tma_loads` of `loads` became TMA; `tensor_core_mmas` of `mmas` became Tensor Core code. `remarks` are the
    compiler's, one dict each: pass, name, passed, line, instruction, shape, text."""

    registers: int
    stack_bytes: int
    shared_bytes: int
    code_bytes: int
    cubin_bytes: int
    tma_loads: int
    loads: int
    tensor_core_mmas: int
    mmas: int
    remarks: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Compiled:
    """The outcome of compiling one config. `facts`, `content_key`, `code_sha256` and `symbol` exist when status is ok;
    `failure` (one line) otherwise. `reused`: the cubin (or the failure) came from the store."""

    status: Literal["ok", "timeout", "error"]
    compiler: str
    arch: str
    compile_s: float
    cpu_s: float
    reused: bool
    failure: str | None = None
    content_key: str | None = None
    code_sha256: str | None = None
    symbol: str | None = None
    facts: StaticFacts | None = None


@dataclass(frozen=True)
class Cubin:
    """A config whose machine code is in the store under `content_key`."""

    config: Params
    content_key: str
    symbol: str


@dataclass(frozen=True)
class TrialResult:
    """The outcome of one config on the GPU: timed with samples, or a failure with its first line."""

    config: Params
    status: Literal["timed", "wrong", "launch_error", "crashed", "hung"]
    samples_us: tuple[float, ...] = ()
    median_us: float | None = None
    error: float | None = None
    failure: str | None = None


@dataclass(frozen=True)
class Measured:
    """Careful samples of one implementation; element i belongs to paired round i of the run.

    An implementation that could not run has no samples and says why in `detail["missing"]`."""

    implementation: str
    role: Literal["kernel", "baseline"]
    samples_us: tuple[float, ...]
    config: Params | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunResult:
    """One session on one GPU: the sweep's choice and the careful timing of it and its baselines."""

    host: str
    gpu_model: str
    gpu_uuid: str
    gpu_name: str
    timer: Literal["cupti", "events", "simulated"]
    toolchain: Mapping[str, str]
    telemetry: tuple[Mapping[str, Any], ...]
    sweep_gpu_s: float
    winner: Params | None
    tie: tuple[Params, ...]
    trials: tuple[TrialResult, ...]
    measurements: tuple[Measured, ...]
    started_at: dt.datetime
    finished_at: dt.datetime

    @property
    def key(self) -> str:
        """Names the run: a GPU of a machine starts one run at a time."""
        return f"{self.host}:{self.gpu_uuid}:{self.started_at.isoformat()}"
