"""Defines the payload of each kind of job: its data besides its database row, stored as JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter

from tilewatch.db.worker_reads.steps import UnmeasuredCode

Payload = TypeVar("Payload")


@dataclass(frozen=True)
class CompilePayload:
    """The payload of a job that compiles a kernel. `items` is None if the job only splits configs into batches."""

    repository: str
    sha: str
    library: str
    kernel: str
    arch: str
    toolchain: str | None = None
    items: tuple[UnmeasuredCode, ...] | None = None
    compiler: str | None = None


@dataclass(frozen=True)
class MeasurePayload:
    """The payload of a job that measures a sweep. `ships` is the config in the tuned table, or None."""

    library: str
    baselines: tuple[str, ...]
    ships: dict[str, Any] | None = None
    toolchain: str | None = None


@dataclass(frozen=True)
class PrepareCheckPayload:
    """The payload of a job that compiles both commits of a check. For `kernels`, None means all."""

    repository: str
    library: str
    kernels: tuple[str, ...] | None = None


@dataclass(frozen=True)
class CheckPayload:
    """The payload of a job that times an operator of a check."""

    operator_id: int
    repository: str
    library: str


@dataclass(frozen=True)
class ToolchainsPayload:
    """The payload of jobs that compare `toolchains` with the first of them. A `fail_over` of 0.01 is 1 %."""

    report_id: int
    toolchains: tuple[str, ...]
    sha: str
    repository: str
    stored_as: str
    library: str
    gpus: tuple[str, ...]
    archs: tuple[str, ...]
    minutes: float
    retunes: bool
    fail_over: float
    kernels: tuple[str, ...] | None = None
    turn: int = 0


def write_payload(payload: Any) -> dict[str, Any]:
    """Returns a payload as a JSON object."""
    return {name: value for name, value in asdict(payload).items() if value is not None}


def read_payload(kind: type[Payload], stored: Mapping[str, Any]) -> Payload:
    """Returns a stored payload as an object of `kind`. Raises pydantic's ValidationError if it does not fit."""
    payload: Payload = _adapter(kind).validate_python(stored)  # type: ignore[arg-type]
    return payload


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    """Returns a cached TypeAdapter for a kind of payload."""
    return TypeAdapter(kind)
