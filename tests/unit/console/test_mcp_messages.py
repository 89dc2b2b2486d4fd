"""Hostile messages for the endpoint of agents: each gets an answer, and none an error of the console."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from barnabas.console.mcp.endpoint import PARSE_ERROR, McpEndpoint
from barnabas.console.mcp.tools import TOOL_NAMES
from barnabas.console.web.connections import Connections
from barnabas.console.web.console import Console, ConsoleSettings
from tests.support.manual_time import ManualClock


async def _no_view(*_: object, **__: object) -> Any:
    raise NotImplementedError


def responded(body: str) -> tuple[int, Any]:
    async def ask() -> Response:
        clock = ManualClock()
        connections = Connections({"bootstrap.servers": "a:1"}, clock, _no_view)
        console = Console(ConsoleSettings(mcp_tools=frozenset(TOOL_NAMES)), connections, (), {}, clock)

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": body.encode(), "more_body": False}

        scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": [], "client": ("::1", 0)}
        return await McpEndpoint(console).respond(Request(scope, receive))

    found = asyncio.run(ask())
    return found.status_code, json.loads(bytes(found.body))


def call(tool: str, arguments: str) -> str:
    parameters = f'{{"name": "{tool}", "arguments": {arguments}}}'
    return f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {parameters}}}'


@pytest.mark.parametrize(
    "body",
    [
        '{"jsonrpc": "2.0", "id": "\\ud800", "method": "ping"}',
        '{"jsonrpc": "2.0", "id": 1, "method": "\\ud800"}',
        call("\\udfff", "{}"),
        call("list_topics", '{"\\ud800": 1}'),
        call("list_topics", '{"search": "\\ud800"}'),
        call("describe_topic", '{"topic": "\\ud800"}'),
    ],
)
def test_half_of_a_pair_is_no_text(body: str) -> None:
    status, answer = responded(body)
    assert status == 400
    assert answer["error"]["code"] == PARSE_ERROR


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_arguments_of_any_depth_are_refused(opening: str, closing: str) -> None:
    for depth in range(700, 1_000, 15):
        nested = opening * depth + "1" + closing * depth
        status, answer = responded(call("list_topics", nested))
        if status == 200:
            assert answer["result"]["isError"]
        else:
            assert (status, answer["error"]["code"]) == (400, PARSE_ERROR)
