"""Defines the payload of each kind of job: the job's data besides its database row. replay_job.py has the payload of
replays. A payload is stored as a JSON object of its fields, except those that are None."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter

from tilewatch.db.worker_reads.steps import UnmeasuredCode

Payload = TypeVar("Payload")


@dataclass(frozen=True)
class CompilePayload:
    """The payload of a job that compiles a kernel of a submission. `library` is the library's folder if the commit's
    pyproject.toml names none. A `toolchain` of None is the installed one. `items` is None if the job plans batches.
    `compiler` is the version for which a worker of the queue `record` traces; None if the job was never moved there."""

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
    """The payload of a job that measures a sweep. `ships` is the config in the library's tuned table, or None."""

    library: str
    baselines: tuple[str, ...]
    ships: dict[str, Any] | None = None
    toolchain: str | None = None


@dataclass(frozen=True)
class PrepareCheckPayload:
    """The payload of a job that compiles both sides of a check. `kernels` limits the kernels; None means all."""

    repository: str
    library: str
    kernels: tuple[str, ...] | None = None


@dataclass(frozen=True)
class CheckPayload:
    """The payload of a job that times one operator of a check."""

    operator_id: int
    repository: str
    library: str


@dataclass(frozen=True)
class ToolchainsPayload:
    """The payload of the jobs that compare `toolchains`, first on compile workers, then on GPUs. The first toolchain is
    the base. `stored_as` is the repository whose stored winners and times are used. Each GPU model is timed for
    `minutes`. A `fail_over` of 0.01 is 1 %."""

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
    """Returns a payload as the JSON object that is stored."""
    return {name: value for name, value in asdict(payload).items() if value is not None}


def read_payload(kind: type[Payload], stored: Mapping[str, Any]) -> Payload:
    """Returns a stored payload as an object of `kind`. Raises pydantic's ValidationError if the two do not match."""
    payload: Payload = _adapter(kind).validate_python(stored)  # type: ignore[arg-type]
    return payload


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    """Returns the reader for a kind of payload. The reader is kept, because making it takes milliseconds."""
    return TypeAdapter(kind)
