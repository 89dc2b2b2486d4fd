"""Values at their edges in the JSON that HTTP interfaces and the inspection socket read.

Every field of every interface gets each of them: texts that are no Unicode, numbers that no field holds, and
values of another type. An answer of 500 and a traceback in the log are faults.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from barnabas.cluster.shared.unix_socket import connect
from barnabas.inspection.serving.questions import QUESTIONS

ODD: Final[tuple[Any, ...]] = (
    *("\ud800", "\0", "x" * 30_000, "", "../..", "\u202e🐞"),
    *(-1, 0, 2**31, 2**63, 2**200, 1e308, float("nan"), float("inf")),
    *(None, True, [], {}, [1] * 100, {"a": "\udfff"}),
)
INTERVENTIONS: Final = ("restart", "stop", "kill", "pause", "crash", "power")
"""Parts of paths of the control interface that end or hold its broker."""
SPEC: Final = {
    "name": "p",
    "source": {"type": "topic", "topics": "s", "schema": "a BIGINT"},
    "sink": {"type": "topic", "topic": "o"},
}
QUESTION_FIELDS: Final = (
    *("principal", "topic", "group_id", "partition", "search", "sort", "limit", "offset"),
    *("descending", "include_internal", "names"),
)
ANSWER_S_MAX: Final = 120.0

Odd = tuple[str, str, bytes | None]
"""Method, path and body."""


def to_pipelines() -> Iterator[Odd]:
    for odd in ODD:
        specs = (
            {**SPEC, "name": odd},
            {**SPEC, "transforms": [{"filter": odd}]},
            {**SPEC, "sink": {"type": "topic", "topic": odd}},
        )
        configs: list[Any] = [odd, {"name": odd}, {"connector.class": odd}, {str(odd): "a"}]
        configs += [{"connector.class": "Pipeline", "pipeline.spec": json.dumps(each)} for each in specs]
        for config in configs:
            yield "POST", "/connectors", _body({"name": "x", "config": config})
            yield "PUT", "/connectors/a/config", _body(config)
            yield "PATCH", "/connectors/a/config", _body(config)
            yield "PUT", "/connector-plugins/Pipeline/config/validate", _body(config)
        yield "POST", "/connectors", _body({"name": odd, "config": {}})
        yield "POST", "/connectors", _body({"name": "x", "initial_state": odd, "config": configs[-1]})
        place = {"partition": {"kafka_topic": odd, "kafka_partition": odd}, "offset": {"kafka_offset": odd}}
        for offsets in (odd, [odd], [place]):
            yield "PATCH", "/connectors/a/offsets", _body({"offsets": offsets})
        yield "PUT", "/admin/loggers/root", _body({"level": odd})


def to_mcp() -> Iterator[Odd]:
    for odd in ODD:
        calls: list[Any] = [odd, {"name": odd}, {"name": "list_topics", "arguments": odd}]
        for tool, names in (
            ("list_topics", ("search", "sort", "offset", "limit", "descending", str(odd))),
            ("list_groups", ("topic", "search")),
            ("describe_topic", ("topic",)),
            ("describe_group", ("group",)),
        ):
            calls += [{"name": tool, "arguments": {name: odd}} for name in names]
        calls.append({"name": "describe_log", "arguments": {"topic": "a", "partition": odd}})
        messages: list[Any] = [{"id": 1, "method": "tools/call", "params": each} for each in calls]
        messages += [{"id": odd, "method": "ping"}, {"id": 1, "method": odd}]
        messages.append({"id": 1, "method": "initialize", "params": {"protocolVersion": odd}})
        for message in messages:
            yield "POST", "/mcp", _body({"jsonrpc": "2.0", **message})


def to_control(described: bytes) -> Iterator[Odd]:
    """By the description of the interface."""
    for path, operations in json.loads(described)["paths"].items():
        if any(each in path for each in INTERVENTIONS):
            continue
        for method, operation in operations.items():
            fields = _fields(operation)
            query = [each["name"] for each in operation["parameters"] if each["in"] == "query"]
            for odd in ODD:
                text = "".join(f"%{byte:02x}" for byte in str(odd).encode(errors="surrogatepass")[:300])
                at = re.sub(r"\{\w+\}", text or "1", path)
                at += "?" + "&".join(f"{name}={text}" for name in query) if query else ""
                if not fields:
                    yield method.upper(), at, None
                for name in fields:
                    yield method.upper(), at, _body({name: odd})


def _fields(operation: dict[str, Any]) -> list[str]:
    body = operation.get("requestBody")
    return [] if body is None else list(body["content"]["application/json"]["schema"]["properties"])


def to_inspection() -> Iterator[dict[str, Any]]:
    for name in QUESTIONS:
        for odd in ODD:
            for field in QUESTION_FIELDS:
                yield {
                    "ask": name,
                    "principal": None,
                    "topic": "t",
                    "group_id": "g",
                    "partition": 0,
                    field: odd,
                }


def ask_inspection(path: Path, question: dict[str, Any]) -> bytes:
    """The answer, a JSON object."""
    payload = json.dumps(question).encode()
    with connect(path) as connection:
        connection.settimeout(ANSWER_S_MAX)
        connection.sendall(struct.pack(">I", len(payload)) + payload)
        return _exactly(connection.recv, struct.unpack(">I", _exactly(connection.recv, 4))[0])


def _exactly(receive: Callable[[int], bytes], size: int) -> bytes:
    received = b""
    while len(received) < size:
        some = receive(size - len(received))
        assert some, "the inspection socket is closed"
        received += some
    return received


def _body(value: Any) -> bytes:
    return json.dumps(value).encode()
