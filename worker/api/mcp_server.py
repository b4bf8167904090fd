"""Serves the operations to agents as MCP tools, on standard input and output. A client without a token in
TILEWATCH_API_TOKEN can only read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import ValidationError

from tilewatch import errors, find_release
from tilewatch.worker.api.callers import Credentials
from tilewatch.worker.api.operations import OPERATIONS, Operation, call
from tilewatch.worker.api.refusals import NO_ANSWER, UnknownArgument, describe_mistakes
from tilewatch.worker.git.proposals import propose_at
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting.submit_requests import AWAY

ABOUT = """Tilewatch measures GPU kernels over commits and judges whether one became slower.

Begin with list_series: repository, kernel, problem and gpu_model together name a series, and the other tools want
them as they are listed there. Times are in microseconds, changes relative: +0.05 is 5 % slower. Answers are long; ask
for few rows."""


class Server(MCPServer[Any]):
    """An MCP server that refuses unknown arguments. The MCP library would ignore them."""

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        known = {each.name: list(each.signature.parameters) for each in OPERATIONS}.get(name, list(arguments))
        for argument in arguments:
            if argument not in known:
                raise ToolError(str(UnknownArgument(argument, known)))
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                raise ToolError(describe_mistakes(error.__cause__.errors())) from None
            raise


def make_server(settings: Settings) -> MCPServer[Any]:
    token = settings.api_token.get_secret_value() if settings.api_token else None
    credentials = Credentials(token, local=True)
    server = Server("tilewatch", instructions=ABOUT, version=find_release())
    for operation in OPERATIONS:
        server.add_tool(
            _tool(operation, settings, credentials),
            name=operation.name,
            description=operation.description,
            annotations=ToolAnnotations(read_only_hint=operation.method == "GET"),
        )
    server.add_tool(propose_watch_file, annotations=ToolAnnotations(read_only_hint=True))
    return server


def propose_watch_file(folder: str) -> str:
    """Returns a proposed watch file for the last commit of a Git repository in a folder of this machine. The file lists
    operators that tests, benchmarks and scripts call. It also names the kernels that no call reaches, with reasons.

    Takes minutes. Writes nothing to the folder. The repository's code runs in Tilewatch's sandbox, without a GPU."""
    try:
        return str(propose_at(Path(folder).expanduser(), "HEAD"))
    except errors.ExpectedError as refusal:
        raise ToolError(str(refusal)) from None


def _tool(operation: Operation, settings: Settings, credentials: Credentials) -> Callable[..., Any]:
    def answer(**arguments: Any) -> Any:
        try:
            return call(operation, settings, credentials, arguments)
        except AWAY:
            raise ToolError(NO_ANSWER) from None
        except errors.ExpectedError as refusal:
            raise ToolError(str(refusal)) from None

    vars(answer)["__signature__"] = operation.signature
    return answer
