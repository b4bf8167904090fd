"""The operations that programs have, each by HTTP and as a tool of MCP with the same name, arguments and answer."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from pydantic import TypeAdapter

from tilewatch.db.lifecycle.tokens import Right
from tilewatch.worker.api import reads

VERSION = "/v1"


@dataclass(frozen=True)
class Operation:
    """A function that gets a session and arguments, and its address. Its name is the function's."""

    path: str
    function: Callable[..., Any]
    right: Right = "read"
    method: Literal["GET", "POST"] = "GET"

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def description(self) -> str:
        return inspect.getdoc(self.function) or ""

    @cached_property
    def signature(self) -> inspect.Signature:
        """The function's parameters without the session."""
        whole = inspect.signature(self.function)
        return whole.replace(parameters=list(whole.parameters.values())[1:])

    @cached_property
    def answer(self) -> TypeAdapter[Any]:
        """Writes an answer as JSON; a number that is not finite becomes null."""
        return TypeAdapter(self.signature.return_annotation)


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
    Operation("/actions", reads.list_actions),
)
