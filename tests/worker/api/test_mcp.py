"""An agent uses the tools of `tilewatch mcp` through the protocol's own client, on standard input and output."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import CallToolResult, TextContent

from tests.dashboard.fixtures.small_database import KERNEL, PROBLEM, REPOSITORY
from tests.worker.fixtures import tiny_repository
from tilewatch.db.lifecycle import tokens
from tilewatch.db.session import session
from tilewatch.worker.api.operations import OPERATIONS
from tilewatch.worker.context import Context
from tilewatch.worker.settings import Settings

SERIES = {"repository": REPOSITORY, "kernel": KERNEL, "problem": PROBLEM, "gpu_model": "h200"}
Talk = Callable[[Client], Awaitable[Any]]
Agent = Callable[..., Any]


@pytest.fixture
def agent(api_url: str, tmp_path: Any) -> Agent:
    """Runs a conversation with `tilewatch mcp`, which is started for it."""
    own = {"TILEWATCH_DATABASE_URL": api_url, "TILEWATCH_BROKER_URL": "redis://nobody", "TILEWATCH_HOME": str(tmp_path)}

    def run(talk: Talk, environment: Mapping[str, str] | None = None) -> Any:
        command = ["-c", "from tilewatch.worker.cli.main import main; main()", "mcp"]
        server = StdioServerParameters(
            command=sys.executable, args=command, env={**os.environ, **own, **(environment or {})}
        )

        async def converse() -> Any:
            async with Client(stdio_client(server)) as client:
                return await talk(client)

        return asyncio.run(converse())

    return run


def sentence(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


def test_an_agent_finds_the_tools_and_reads_from_the_series_to_the_evidence(agent: Agent) -> None:
    async def talk(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {operation.name for operation in OPERATIONS}
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

    agent(talk)


def test_an_agent_learns_in_a_sentence_what_is_wrong(agent: Agent) -> None:
    async def talk(client: Client) -> None:
        missing = await client.call_tool("read_evidence", {"run_id": 999_999})
        assert missing.is_error
        assert "there is no run 999999" in sentence(missing)
        mistaken = await client.call_tool("read_evidence", {"run_id": "the newest"})
        assert mistaken.is_error
        assert "run_id" in sentence(mistaken)

    agent(talk)


def test_an_agent_submits_a_check_and_reads_it(agent: Agent, settings: Settings, context: Context) -> None:
    tiny_repository.commit(settings.repository, "Triple", factor=3)
    with session(context.database_url) as opened:
        made = tokens.add(opened, name="agent", rights=["read", "check"], gpu_s=600, who="ada")
    own = {
        "TILEWATCH_DATABASE_URL": context.database_url,
        "TILEWATCH_BROKER_URL": context.broker_url,
        "TILEWATCH_REPOSITORY": str(settings.repository),
        "TILEWATCH_LIBRARY": settings.library,
    }

    async def talk(client: Client) -> None:
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

    agent(talk, {**own, "TILEWATCH_API_TOKEN": made})

    async def without_token(client: Client) -> CallToolResult:
        return await client.call_tool("submit_check", {"base": "HEAD~1", "head": "HEAD"})

    assert "this needs a token" in sentence(agent(without_token, own))


def test_a_token_that_is_given_must_be_valid(agent: Agent, api_url: str) -> None:
    with session(api_url) as opened:
        made = tokens.add(opened, name="agent", rights=["read"], gpu_s=0, who="ada")

    async def ask(client: Client) -> CallToolResult:
        return await client.call_tool("list_repositories", {})

    assert not agent(ask, {"TILEWATCH_API_TOKEN": made}).is_error
    refused = agent(ask, {"TILEWATCH_API_TOKEN": "nonsense"})
    assert refused.is_error
    assert "never made, or was revoked" in sentence(refused)
