"""The payload of each kind of job, as a frozen value: what a job needs besides its row. Replays have replay_job.py.

A payload is stored as JSON: a field's name is a stored name, and a field that is None is left out.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter

from tilewatch.db.worker_reads.steps import UnmeasuredCode

Payload = TypeVar("Payload")


@dataclass(frozen=True)
class CompilePayload:
    """Compiles a kernel of a submission. `library` is the folder of commits whose pyproject.toml names none;
    `toolchain` is None for what the worker has installed; `items` is None for the job that plans the batches."""

    repository: str
    sha: str
    library: str
    kernel: str
    arch: str
    toolchain: str | None = None
    items: tuple[UnmeasuredCode, ...] | None = None


@dataclass(frozen=True)
class MeasurePayload:
    """Measures a sweep. `ships` is the config that the tuned table of the library ships; None without one."""

    library: str
    baselines: tuple[str, ...]
    ships: dict[str, int] | None = None
    toolchain: str | None = None


@dataclass(frozen=True)
class PrepareCheckPayload:
    """Compiles both sides of a check. `kernels` are those that the repository watches; None for all."""

    repository: str
    library: str
    kernels: tuple[str, ...] | None = None


@dataclass(frozen=True)
class CheckPayload:
    """Times one operator of a check."""

    operator_id: int
    repository: str
    library: str


@dataclass(frozen=True)
class ToolchainsPayload:
    """Compares the toolchains `a` and `b`, first on compile workers, then on each of `gpus` in turns.

    Winners and times on record are those of the repository `stored_as`. `minutes` are of each GPU model; a `fail_over`
    of 0.01 is 1 %.
    """

    report_id: int
    a: str
    b: str
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
    """Returns a payload as it is stored."""
    return {name: value for name, value in asdict(payload).items() if value is not None}


def read_payload(kind: type[Payload], stored: Mapping[str, Any]) -> Payload:
    """Reads a stored payload of this kind. Raises pydantic's ValidationError when it is of another kind."""
    payload: Payload = _adapter(kind).validate_python(stored)  # type: ignore[arg-type]
    return payload


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    """Makes the reader of a kind of payload once per process: pydantic takes milliseconds for it."""
    return TypeAdapter(kind)
