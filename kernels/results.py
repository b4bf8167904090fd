"""Defines the values that leave the harness: plans of sweeps, outcomes of compiling, results of measuring.

All values are frozen, consist of plain Python values, and become JSON by `dataclasses.asdict`. Times are in
microseconds (`_us`) or seconds (`_s`), sizes in bytes. A failure is a value here, never an exception."""

import datetime as dt
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

PROCESS_DIED = "process died: "
"""The part of a failure that says that the tracing or compiling process ended. db/query_parts.py looks for it too."""

Params = Mapping[str, Any]
"""A config. Those of a watched operator may also have texts, bools and fractions as values."""


@dataclass(frozen=True)
class PlannedTrial:
    """One config of a sweep, and a hash of everything on which compiling the config depends."""

    config: Params
    code_key: str


@dataclass(frozen=True)
class Plan:
    """The trials of a sweep of one kernel on one problem for one architecture.

    `parts_of` maps a language model to the problem's weight in the model's total time and the number of problems in
    that total: {"weight": 28.0, "parts": 12}. `dtypes` are the inputs' types, such as "bfloat16". `ships` is the config
    that the library's host code launches, or None if unknown, for example if the host code searches at run time. `work`
    is the problem's size in the watch file's own unit, such as ("tokens", 8192). `rest` counts all configs outside the
    short list. The last `drawn` trials are of configs outside the short list."""

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
    drawn: int = 0
    rest: int = 0
    sizes: Params = field(default_factory=dict)

    @property
    def listed(self) -> tuple[PlannedTrial, ...]:
        """Returns the trials of the short list, or all trials if the kernel has no short list."""
        return self.trials[: len(self.trials) - self.drawn]


@dataclass(frozen=True)
class StaticFacts:
    """Facts about a cubin that are known without running it. `tma_loads` of the `loads` use TMA. `tensor_core_mmas` of
    the `mmas` use Tensor Cores. Each remark has the keys pass, name, passed, line, instruction, shape and text."""

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
    """The outcome of compiling one config. If `status` is ok, `facts`, `content_key`, `code_sha256` and `symbol` are
    set. Otherwise `failure` says why, in one line. If `reused`, the outcome came from the store."""

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

    def find_cubin(self, config: Params) -> "Cubin | None":
        """Returns the cubin of this config, or None if the config did not compile."""
        if self.status != "ok" or self.content_key is None or self.symbol is None:
            return None
        return Cubin(config, self.content_key, self.symbol)

    def make_row(self, code_key: str, host: str) -> dict[str, Any]:
        """Returns this outcome as a row for the table `compilations` and for recordings."""
        facts = asdict(self.facts) if self.facts else dict.fromkeys(each.name for each in fields(StaticFacts))
        own = {name: value for name, value in vars(self).items() if name not in ("reused", "facts")}
        return {**own, **facts, "remarks": list(facts["remarks"] or ()), "code_key": code_key, "host": host}


def is_final(outcome: Mapping[str, Any], limit_s: float) -> bool:
    """Returns whether compiling again would end alike. Returns False for a timeout before `limit_s` of CPU time, and if
    the tracing or compiling process died, for example without memory. `outcome` has the fields of Compiled."""
    if outcome["status"] == "timeout":
        return bool(outcome.get("cpu_s", 0.0) >= limit_s)
    return PROCESS_DIED not in (outcome.get("failure") or "")


@dataclass(frozen=True)
class Cubin:
    """A config whose machine code is in the store under `content_key`."""

    config: Params
    content_key: str
    symbol: str


@dataclass(frozen=True)
class TrialResult:
    """The outcome of one config on the GPU: its samples, or a failure with the first line of the error's message."""

    config: Params
    status: Literal["timed", "wrong", "launch_error", "crashed", "hung"]
    samples_us: tuple[float, ...] = ()
    median_us: float | None = None
    error: float | None = None
    failure: str | None = None


@dataclass(frozen=True)
class Measured:
    """The careful timing of a kernel or baseline. All implementations of a run are timed in rounds; sample i is from
    round i. If an implementation could not run, it has no samples, and `detail["missing"]` says why."""

    implementation: str
    role: Literal["kernel", "baseline"]
    samples_us: tuple[float, ...]
    config: Params | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunResult:
    """The result of a run on one GPU: the sweep's trials and winner, and the timing of the winner and its baselines."""

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
    key: str = field(default_factory=lambda: secrets.token_hex(16))
    """The random name of the run. Several runs may start on a GPU in one microsecond (2026-11-28)."""

    def note(self, **facts: Any) -> "RunResult":
        """Returns the run with these facts added to the details of the kernel's measurement."""
        noted = (
            replace(each, detail={**each.detail, **facts}) if each.role == "kernel" else each
            for each in self.measurements
        )
        return replace(self, measurements=tuple(noted))
