"""The MCP endpoint: JSON-RPC over one POST, allow-listed, bounded, each call in the audit log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from barnabas.console.mcp.tools import TOOL_NAMES
from tests.support.broker import BarnabasBroker
from tests.support.console import RunningConsole, running_console
from tests.support.waiting import eventually

INVALID_PARAMS, METHOD_NOT_FOUND, INVALID_REQUEST, PARSE_ERROR = -32602, -32601, -32600, -32700


@pytest.fixture(scope="module")
def console(broker: BarnabasBroker) -> Iterator[RunningConsole]:
    directory = str(broker.data_directory)
    with running_console(broker.bootstrap, "--mcp", "all", "--broker-directory", directory) as started:
        yield started


@pytest.fixture(scope="module")
def agent(console: RunningConsole) -> Iterator[httpx.Client]:
    with console.client() as client:
        eventually(lambda: not called(client, "cluster_overview").get("isError", True))
        yield client


def asked(client: httpx.Client, method: str, **parameters: Any) -> Any:
    message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": parameters}
    response = client.post("/mcp", json=message)
    assert response.status_code == 200, response.text
    answer = response.json()
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", 7)
    return answer


def called(client: httpx.Client, tool: str, **arguments: Any) -> Any:
    answer = asked(client, "tools/call", name=tool, arguments=arguments)
    return answer.get("result", answer)


def read(client: httpx.Client, tool: str, **arguments: Any) -> Any:
    result = called(client, tool, **arguments)
    assert not result["isError"], result
    (content,) = result["content"]
    return json.loads(content["text"])


def test_an_agent_introduces_itself(agent: httpx.Client) -> None:
    result = asked(agent, "initialize", protocolVersion="2025-03-26", capabilities={}, clientInfo={})[
        "result"
    ]
    assert result["protocolVersion"] == "2025-03-26"
    assert result["capabilities"] == {"tools": {}}
    newest = asked(agent, "initialize", protocolVersion="2099-01-01")["result"]["protocolVersion"]
    assert newest == "2025-06-18"
    done = agent.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert (done.status_code, done.content) == (202, b"")
    assert asked(agent, "ping")["result"] == {}


def test_tools_have_schemas_and_only_read(agent: httpx.Client) -> None:
    tools = asked(agent, "tools/list")["result"]["tools"]
    assert tuple(tool["name"] for tool in tools) == TOOL_NAMES
    for tool in tools:
        assert tool["annotations"]["readOnlyHint"]
        assert not tool["inputSchema"]["additionalProperties"]


def test_the_tools_answer(agent: httpx.Client) -> None:
    overview = read(agent, "cluster_overview")
    assert overview["topics"] >= 60
    assert overview["brokers"][0]["memory_bytes"], "the broker itself has answered, at its socket"
    page = read(agent, "list_topics", search="service", sort="name", limit=3)
    assert [row["name"] for row in page["rows"]] == ["service-00", "service-01", "service-02"]
    assert page["total"] == 60
    assert read(agent, "describe_topic", topic="orders")["row"]["partitions"] == 3
    groups = read(agent, "list_groups")
    assert groups["total"] == len(groups["rows"])
    for row in groups["rows"]:
        assert read(agent, "describe_group", group=row["group_id"])["row"]["group_id"] == row["group_id"]
    assert read(agent, "describe_log", topic="orders", partition=0)["segments"]
    assert isinstance(read(agent, "list_transactions"), list)
    assert isinstance(read(agent, "list_clients"), list)


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("describe_topic", {}, "needs topic"),
        ("describe_topic", {"topic": 5}, "type string"),
        ("describe_topic", {"topic": "x" * 2_000}, "1024 characters at most"),
        ("describe_topic", {"topic": "nobody"}, "does not exist"),
        ("describe_log", {"topic": "orders", "partition": -1}, "from 0"),
        ("describe_log", {"topic": "orders", "partition": True}, "type integer"),
        ("list_topics", {"limit": 201}, "from 0 to 200"),
        ("list_topics", {"sort": "colour"}, "one of name"),
        ("list_topics", {"drop": "orders"}, "takes no drop"),
        ("list_topics", [], "an object"),
    ],
    ids=lambda value: str(value)[:32],
)
def test_wrong_arguments_are_told_to_the_agent(
    agent: httpx.Client, tool: str, arguments: object, said: str
) -> None:
    result = asked(agent, "tools/call", name=tool, arguments=arguments)["result"]
    assert result["isError"]
    assert said in result["content"][0]["text"]


def test_other_messages_are_refused(agent: httpx.Client) -> None:
    assert asked(agent, "resources/list")["error"]["code"] == METHOD_NOT_FOUND
    assert asked(agent, "tools/call", name="delete_topic")["error"]["code"] == INVALID_PARAMS
    for body, code in (
        (b"{", PARSE_ERROR),
        (b"[" * 60_000, PARSE_ERROR),
        (b"[]", INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": 1}', INVALID_REQUEST),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}', INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": 1e999, "method": "ping"}', INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": NaN, "method": "ping"}', INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": "\\ud800", "method": "ping"}', PARSE_ERROR),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "\\udfff"}', PARSE_ERROR),
    ):
        response = agent.post("/mcp", content=body)
        assert (response.status_code, response.json()["error"]["code"]) == (400, code)
    assert agent.post("/mcp", content=b" " * 100_000).status_code == 413
    assert agent.get("/mcp").status_code == 405
    elsewhere = {"origin": "http://elsewhere.test"}
    assert agent.post("/mcp", json={}, headers=elsewhere).status_code == 403


def test_each_call_is_an_audit_line(console: RunningConsole, agent: httpx.Client) -> None:
    read(agent, "describe_topic", topic="orders")
    called(agent, "describe_topic", topic="nobody\n")
    asked(agent, "tools/call", name="delete_topic")

    def lines() -> list[dict[str, str]]:
        shown = [
            line.partition("{")[2] for line in console.process.output_text().splitlines() if '"MCP"' in line
        ]
        return [json.loads("{" + line) for line in shown]

    expected = {
        ("describe_topic", '{"topic": "orders"}', "done"),
        ("describe_topic", '{"topic": "nobody\\n"}', "failed"),
        ("delete_topic", "", "failed"),
    }
    eventually(
        lambda: expected <= {(line["operation"], line["resource"], line["decision"]) for line in lines()}
    )


def test_tools_are_allow_listed_and_ask_for_the_token(broker: BarnabasBroker) -> None:
    with (
        running_console(broker.bootstrap, "--mcp", "list_topics,list_groups", "--token", "open") as console,
        console.client() as client,
    ):
        message = {"jsonrpc": "2.0", "id": 7, "method": "tools/list"}
        for header in ({}, {"authorization": "Bearer shut"}, {"authorization": "Basic open"}):
            assert client.post("/mcp", json=message, headers=header).status_code == 401
        client.headers["authorization"] = "Bearer open"
        tools = asked(client, "tools/list")["result"]["tools"]
        assert [tool["name"] for tool in tools] == ["list_topics", "list_groups"]
        assert asked(client, "tools/call", name="describe_topic")["error"]["code"] == INVALID_PARAMS


def test_without_tools_there_is_no_endpoint(broker: BarnabasBroker) -> None:
    with running_console(broker.bootstrap) as console, console.client() as client:
        assert client.post("/mcp", json={}).status_code == 404
