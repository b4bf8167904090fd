"""Defines the results of planning, compiling and measuring. Times are in microseconds (`_us`) or seconds (`_s`)."""

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
    """One config to try, with a hash of everything that its compilation depends on."""

    config: Params
    code_key: str


@dataclass(frozen=True)
class Plan:
    """The configs to try for a kernel, problem and architecture. The last `drawn` trials are not on the short list."""

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
    parts_of: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by language model
    ships: Params | None = None  # the config that the library's host code launches; None if unknown
    work: tuple[str, float] | None = None  # in the watch file's own unit, such as ("tokens", 8192)
    dtypes: tuple[str, ...] = ()
    drawn: int = 0
    rest: int = 0  # number of configs outside the short list
    sizes: Params = field(default_factory=dict)

    @property
    def listed(self) -> tuple[PlannedTrial, ...]:
        """Returns the trials of the short list, or all trials if there is no short list."""
        return self.trials[: len(self.trials) - self.drawn]


@dataclass(frozen=True)
class StaticFacts:
    """Facts about a cubin that are known without running it, such as registers and spills."""

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
    """The outcome of compiling one config. `failure` says in one line why it failed."""

    status: Literal["ok", "timeout", "error"]
    compiler: str
    arch: str
    compile_s: float
    cpu_s: float
    reused: bool  # whether the outcome came from the store
    failure: str | None = None
    content_key: str | None = None
    code_sha256: str | None = None
    symbol: str | None = None
    facts: StaticFacts | None = None

    def find_cubin(self, config: Params) -> "Cubin | None":
        """Returns the cubin of a config, or None if it did not compile."""
        if self.status != "ok" or self.content_key is None or self.symbol is None:
            return None
        return Cubin(config, self.content_key, self.symbol)

    def make_row(self, code_key: str, host: str) -> dict[str, Any]:
        """Returns this outcome as a row for the database."""
        facts = asdict(self.facts) if self.facts else dict.fromkeys(each.name for each in fields(StaticFacts))
        own = {name: value for name, value in vars(self).items() if name not in ("reused", "facts")}
        return {**own, **facts, "remarks": list(facts["remarks"] or ()), "code_key": code_key, "host": host}


def is_final(outcome: Mapping[str, Any], limit_s: float) -> bool:
    """Returns whether compiling again within `limit_s` would give the same outcome."""
    if outcome["status"] == "timeout":
        return bool(outcome.get("cpu_s", 0.0) >= limit_s)
    return PROCESS_DIED not in (outcome.get("failure") or "")


@dataclass(frozen=True)
class Cubin:
    """A config whose machine code is stored under `content_key`."""

    config: Params
    content_key: str
    symbol: str


@dataclass(frozen=True)
class TrialResult:
    """The result of timing one config: samples, or a failure."""

    config: Params
    status: Literal["timed", "wrong", "launch_error", "crashed", "hung"]
    samples_us: tuple[float, ...] = ()
    median_us: float | None = None
    error: float | None = None
    failure: str | None = None


@dataclass(frozen=True)
class Measured:
    """The final timing of a kernel or baseline. `samples_us` is empty if the kernel could not run."""

    implementation: str
    role: Literal["kernel", "baseline"]
    samples_us: tuple[float, ...]
    config: Params | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunResult:
    """The result of a sweep on one GPU: all trials, the winner, and the timing of the winner and its baselines."""

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
        """Returns a copy of the result with `facts` added to the details of the kernel's measurement."""
        noted = (
            replace(each, detail={**each.detail, **facts}) if each.role == "kernel" else each
            for each in self.measurements
        )
        return replace(self, measurements=tuple(noted))
