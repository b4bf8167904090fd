"""Lists the operations for programs. Each has the same name, arguments and answer by HTTP and as an MCP tool."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import Any, Literal

from pydantic import TypeAdapter

from tilewatch.db.lifecycle.tokens import Right
from tilewatch.db.page_reads.series import require_known
from tilewatch.db.session import session
from tilewatch.worker.api import acts, reads
from tilewatch.worker.api.acts import Act
from tilewatch.worker.api.callers import Credentials, find_caller
from tilewatch.worker.settings import Settings

VERSION = "/v1"
NAMES = ("repository", "kernel", "problem", "gpu_model")


@dataclass(frozen=True)
class Operation:
    """An operation: its function, whose name is the operation's, and its HTTP path. The function's first argument is a
    session for an operation that reads, and an Act for one that acts."""

    path: str
    function: Callable[..., Any]
    right: Right = "read"
    method: Literal["GET", "POST"] = "GET"

    @property
    def status(self) -> HTTPStatus:
        """Returns the HTTP status of a successful call. For an act, it only says that the act was accepted."""
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
    """Calls an operation for a caller and returns its answer. Raises ExpectedError with a sentence if it is refused."""
    with session(settings.connection().database_url) as opened:
        caller = find_caller(opened, credentials, operation.right)
        if operation.right == "read":
            require_known(opened, **{name: each for name, each in arguments.items() if name in NAMES})
            return operation.function(opened, **arguments)
    assert caller.holder is not None
    return operation.function(Act(settings, caller.holder), **arguments)


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
    Operation("/checks", acts.submit_check, "check", "POST"),
    Operation("/checks", reads.list_checks),
    Operation("/checks/{check_id}", reads.read_check),
    Operation("/actions", reads.list_actions),
)
