"""Lists the operations that programs can call, by HTTP or as MCP tools. reads.py has the operations that read."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from tilewatch.db.lifecycle.tokens import Holder, Right
from tilewatch.db.page_reads.series import require_known
from tilewatch.db.query_parts import SERIES
from tilewatch.db.session import reading_session
from tilewatch.worker.api import reads
from tilewatch.worker.api.callers import Credentials, find_caller
from tilewatch.worker.api.reads import GpuModel, Kernel
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting.submit_check import CheckAsked, SubmittedChecks
from tilewatch.worker.submitting.submit_requests import submit_check_for

VERSION = "/v1"

Revision = Annotated[
    str,
    Field(
        pattern=r"^[^\x00-\x20-][^\x00-\x20]*$",
        max_length=255,
        description="A sha, a branch or a tag of the watched repository.",
    ),
]


@dataclass(frozen=True)
class Act:
    """The settings, and the holder of the token of a caller who changes something."""

    settings: Settings
    holder: Holder


def submit_check(
    act: Act,
    base: Revision,
    head: Revision,
    kernel: Kernel | None = None,
    gpus: Annotated[
        tuple[GpuModel, ...], Field(max_length=20, description="GPU models; none for all that have a worker.")
    ] = (),
    fail_over: Annotated[float, Field(ge=0, lt=1, description="Allowed slowdown: 0.02 is 2 %.")] = 0.0,
    repository: Annotated[
        str | None, Field(max_length=255, description="The watched repository, where there are several.")
    ] = None,
) -> SubmittedChecks:
    """Compare two commits on the fleet's GPUs before a merge. Call read_check for the answer.
    Kernels whose code did not change are not timed, and a check that was asked before is not done
    again."""
    return submit_check_for(act.settings, act.holder, CheckAsked(base, head, kernel, gpus, fail_over, repository))


@dataclass(frozen=True)
class Operation:
    """An operation that programs can call. `function` first gets a Session to read, or an Act to change something."""

    path: str
    function: Callable[..., Any]
    right: Right = "read"
    method: Literal["GET", "POST"] = "GET"

    @property
    def status(self) -> HTTPStatus:
        """Returns the HTTP status of a successful call: OK for a read, or ACCEPTED for a change that is made later."""
        return HTTPStatus.OK if self.method == "GET" else HTTPStatus.ACCEPTED

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def description(self) -> str:
        return inspect.getdoc(self.function) or ""

    @cached_property
    def signature(self) -> inspect.Signature:
        """Returns the function's signature without its first parameter, which callers do not see."""
        whole = inspect.signature(self.function)
        return whole.replace(parameters=list(whole.parameters.values())[1:])

    @cached_property
    def answer(self) -> TypeAdapter[Any]:
        """Returns the adapter that writes an answer as JSON. NaN and infinite numbers become null."""
        return TypeAdapter(self.signature.return_annotation)


def call(operation: Operation, settings: Settings, credentials: Credentials, arguments: dict[str, Any]) -> Any:
    """Returns an operation's answer to a caller. Raises ExpectedError if the call is refused."""
    with reading_session(settings.connection().database_url) as opened:
        holder = find_caller(opened, credentials, operation.right)
        if operation.right == "read":
            require_known(opened, **{name: each for name, each in arguments.items() if name in SERIES})
            return operation.function(opened, **arguments)
    assert holder is not None
    return operation.function(Act(settings, holder), **arguments)


OPERATIONS = (
    Operation("/repositories", reads.list_repositories),
    Operation("/series", reads.list_series),
    Operation("/points", reads.list_points),
    Operation("/sweeps", reads.list_sweeps),
    Operation("/sweeps/{sweep_id}", reads.read_sweep),
    Operation("/verdicts", reads.list_verdicts),
    Operation("/detectable-change", reads.read_detectable_change),
    Operation("/runs/{run_id}/evidence", reads.read_evidence),
    Operation("/regressions", reads.list_regressions),
    Operation("/regressions/{regression_id}", reads.read_regression),
    Operation("/checks", submit_check, "check", "POST"),
    Operation("/checks", reads.list_checks),
    Operation("/checks/{check_id}", reads.read_check),
    Operation("/actions", reads.list_actions),
)
