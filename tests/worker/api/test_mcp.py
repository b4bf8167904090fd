"""An agent uses the tools of `tilewatch mcp` through the protocol's own client, on standard input and output."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from tests.dashboard.fixtures.small_database import KERNEL, PROBLEM, REPOSITORY
from tests.worker.fixtures import tiny_repository
from tilewatch.db.lifecycle import tokens
from tilewatch.db.session import session
from tilewatch.worker.api.operations import OPERATIONS
from tilewatch.worker.context import Context
from tilewatch.worker.settings import Settings

if TYPE_CHECKING:  # tests import it, which is not a cost for the collection of others
    from mcp import Client
    from mcp.types import CallToolResult

SERIES = {"repository": REPOSITORY, "kernel": KERNEL, "problem": PROBLEM, "gpu_model": "h200"}
Talk = Callable[["Client"], Awaitable[Any]]


@pytest.fixture
def reader(api_url: str, tmp_path: Path) -> Settings:
    """Of an agent without a token."""
    return Settings(home=tmp_path, database_url=api_url, broker_url="redis://nobody")


def converse(talk: Talk, settings: Settings, token: str | None = None) -> Any:
    """With a server in this process."""
    from tilewatch.worker.api.mcp_server import make_server

    own = settings.model_copy(update={"api_token": None if token is None else SecretStr(token)})
    return converse_with(make_server(own), talk)


def converse_with(server: Any, talk: Talk) -> Any:
    from mcp import Client

    async def start() -> Any:
        async with Client(server) as client:
            return await talk(client)

    # A thread of its own, because Playwright's loop runs in a process that had a browser before.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(start())).result()


def sentence(result: "CallToolResult") -> str:
    from mcp.types import TextContent

    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


def test_an_agent_finds_the_tools_and_reads_from_the_series_to_the_evidence(reader: Settings) -> None:
    """In a process of its own, as an agent's program starts it."""
    from mcp import StdioServerParameters
    from mcp.client.stdio import stdio_client

    async def talk(client: "Client") -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {operation.name for operation in OPERATIONS} | {"propose_watch_file"}
        assert set(tools["list_points"].input_schema["properties"]) == {*SERIES, "static_facts", "limit"}
        assert "opened" not in str([tool.input_schema for tool in tools.values()])
        series = (await client.call_tool("list_series", {})).structured_content
        assert series is not None
        assert {**SERIES, "gpu_name": "NVIDIA H200"} in series["result"]
        verdicts = (await client.call_tool("list_verdicts", {**SERIES, "limit": 1})).structured_content
        assert verdicts is not None
        (newest,) = verdicts["result"]
        evidence = (await client.call_tool("read_evidence", {"run_id": newest["run_id"]})).structured_content
        assert evidence is not None
        assert evidence["run"]["reason"] == newest["reason"]
        assert evidence["samples"][0]["samples_us"]

    names = ("database_url", "broker_url", "home")
    own = {f"TILEWATCH_{name.upper()}": str(getattr(reader, name)) for name in names}
    command = ["-m", "tilewatch.worker.cli.main", "mcp"]
    server = StdioServerParameters(command=sys.executable, args=command, env={**os.environ, **own})
    converse_with(stdio_client(server), talk)


def test_an_agent_learns_in_a_sentence_what_is_wrong(reader: Settings) -> None:
    async def talk(client: "Client") -> None:
        missing = await client.call_tool("read_evidence", {"run_id": 999_999})
        assert missing.is_error
        assert "there is no run 999999" in sentence(missing)
        for tool, arguments, said in (
            ("read_evidence", {"run_id": "the newest"}, "run_id: Input should be a valid integer, unable to parse"),
            ("read_evidence", {}, "run_id: Field required"),
            ("list_regressions", {"limt": 5}, "there is no argument 'limt'; it has limit"),
            ("list_repositories", {"limit": 5}, "there is no argument 'limit'; this has none"),
            ("list_points", {**SERIES, "kernel": "gemm_fp9"}, "gemm_fp8"),
            ("list_verdicts", {**SERIES, "limit": 0}, "limit: Input should be greater than or equal to 1"),
            ("list_runs", {}, "Unknown tool: list_runs"),
        ):
            refused = await client.call_tool(tool, arguments)
            assert (tool, refused.is_error) == (tool, True)
            assert said in sentence(refused)
            assert "\n" not in sentence(refused)
            assert "pydantic" not in sentence(refused)

    converse(talk, reader)


def test_an_agent_learns_that_a_server_is_away(tmp_path: Path) -> None:
    async def talk(client: "Client") -> str:
        return sentence(await client.call_tool("list_series", {}))

    nowhere = "postgresql://nobody:secret@127.0.0.1:9/none"
    told = converse(talk, Settings(home=tmp_path, database_url=nowhere, broker_url="redis://nobody"))
    assert "a server that this needs does not answer; try again later" in told
    assert "127.0.0.1" not in told


def test_an_agent_asks_for_a_proposed_watch_file(reader: Settings, tmp_path: Path) -> None:
    """Here of a repository whose only kernel nothing calls."""
    made = tiny_repository.make(tmp_path / "made")

    async def talk(client: "Client") -> None:
        proposed = await client.call_tool("propose_watch_file", {"folder": str(made)})
        assert "library/double.py: double_tiles: no test, benchmark or script" in sentence(proposed)
        refused = await client.call_tool("propose_watch_file", {"folder": str(tmp_path / "nowhere")})
        assert refused.is_error

    converse(talk, reader)


def test_an_agent_submits_a_check_and_reads_it(settings: Settings, context: Context) -> None:
    tiny_repository.commit(settings.repository, "Triple", factor=3)
    with session(context.database_url) as opened:
        made = tokens.add(opened, name="agent", rights=["read", "check"], gpu_s=600, who="ada")

    async def talk(client: "Client") -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        acts = [name for name, tool in tools.items() if tool.annotations and not tool.annotations.read_only_hint]
        assert acts == ["submit_check"]
        asked = {"base": "HEAD~1", "head": "HEAD", "gpus": ["sim"]}
        submitted = (await client.call_tool("submit_check", asked)).structured_content
        assert submitted is not None
        (check_id,) = submitted["check_ids"]
        read = (await client.call_tool("read_check", {"check_id": check_id})).structured_content
        assert read is not None
        assert (read["check"]["head_subject"], read["check"]["who"]) == ("Triple", "token agent")

    converse(talk, settings, made)

    async def without_token(client: "Client") -> "CallToolResult":
        return await client.call_tool("submit_check", {"base": "HEAD~1", "head": "HEAD"})

    assert "this needs a token" in sentence(converse(without_token, settings))


def test_a_token_that_is_given_must_be_valid(reader: Settings, api_url: str) -> None:
    with session(api_url) as opened:
        made = tokens.add(opened, name="agent", rights=["read"], gpu_s=0, who="ada")

    async def ask(client: "Client") -> "CallToolResult":
        return await client.call_tool("list_repositories", {})

    assert not converse(ask, reader, made).is_error
    refused = converse(ask, reader, "nonsense")
    assert refused.is_error
    assert "never made, or was revoked" in sentence(refused)
