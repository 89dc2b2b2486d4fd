"""MCP over HTTP: one POST carries one JSON-RPC message, and its response is one JSON object.

There is no session and no stream, which the protocol's Streamable HTTP transport allows. The endpoint is off
unless tools are named. It serves these tools only, with the console's own view of the cluster, and asks for
the console's token where there is one. Each call is a line of the audit log, whether it is answered or not.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from barnabas import __version__
from barnabas.client.core.client_errors import ClientClosed
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.console.mcp.tools import TOOLS, InvalidArguments, Tool
from barnabas.console.view.interface import NotOffered
from barnabas.console.web.api import as_json
from barnabas.console.web.audit import note_question
from barnabas.console.web.connections import reason_of
from barnabas.console.web.console import Console
from barnabas.core.errors import KafkaError
from barnabas.network.http.json_body import read_json

PATH: Final = "/mcp"
VERSIONS: Final = ("2025-06-18", "2025-03-26", "2024-11-05")
"""Revisions of the protocol, the newest first. They do not differ in the parts that are served here."""
REQUEST_BYTES_MAX: Final = 64 * 1024
ANSWER_BYTES_MAX: Final = 1024 * 1024
"""Text of an answer: an agent reads all of it."""
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
INSTRUCTIONS: Final = (
    "Questions about an Apache Kafka compatible cluster. All tools read; nothing can be changed here."
    " Lists have pages: use search, sort and limit instead of reading all of them."
)

Message = dict[str, Any]


class RpcError(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class McpEndpoint:
    def __init__(self, console: Console) -> None:
        self._console = console
        allowed = console.settings.mcp_tools
        self._tools: Mapping[str, Tool] = {tool.name: tool for tool in TOOLS if tool.name in allowed}

    async def respond(self, request: Request) -> Response:
        if not self._may_ask(request):
            self._note(request, "authenticate", PATH, "no valid token")
            return JSONResponse(
                {"message": "send the console's token: Authorization: Bearer ..."},
                401,
                headers={"www-authenticate": "Bearer"},
            )
        body = await request.body()
        if len(body) > REQUEST_BYTES_MAX:
            return JSONResponse({"message": f"a message has at most {REQUEST_BYTES_MAX} bytes"}, 413)
        try:
            message = _parsed(body)
        except RpcError as error:
            return JSONResponse(_failed(None, error), 400)
        if "id" not in message:
            return Response(status_code=202)  # a notification
        try:
            result = await self._result(message, request)
        except RpcError as error:
            return JSONResponse(_failed(message["id"], error))
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": result})

    @property
    def _user(self) -> str:
        shared = self._console.shared
        return "ANONYMOUS" if shared is None else shared.shown_user

    def _note(self, request: Request, operation: str, resource: str, failure: str | None) -> None:
        cluster = self._console.settings.name
        note_question(self._user, _host(request), operation, resource, failure, cluster)

    def _may_ask(self, request: Request) -> bool:
        token = self._console.settings.token
        if token is None:
            return True
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and secrets.compare_digest(given.strip().encode(), token.encode())

    async def _result(self, message: Message, request: Request) -> Message:
        parameters = message.get("params", {})
        if not isinstance(parameters, dict):
            raise RpcError(INVALID_PARAMS, "params must be an object")
        match message["method"]:
            case "initialize":
                asked = parameters.get("protocolVersion")
                return {
                    "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "barnabas", "version": __version__},
                    "instructions": INSTRUCTIONS,
                }
            case "ping":
                return {}
            case "tools/list":
                return {"tools": [tool.described() for tool in self._tools.values()]}
            case "tools/call":
                return await self._call(parameters, request)
        raise RpcError(METHOD_NOT_FOUND, f"no method {str(message['method'])[:64]}")

    async def _call(self, parameters: Message, request: Request) -> Message:
        """The result of a tool. A refusal is a result too, so that the agent reads it."""
        name = parameters.get("name")
        tool = self._tools.get(name) if isinstance(name, str) else None
        shown = str(name)[:64]
        if tool is None:
            self._note(request, shown, "", "no such tool is allowed")
            raise RpcError(INVALID_PARAMS, f"no tool {shown}; one of {', '.join(self._tools)}")
        given = parameters.get("arguments", {})
        resource = json.dumps(given)[:256]
        try:
            text = await self._answer(tool, given)
        except (InvalidArguments, NotOffered, KafkaError, ClientClosed, ClusterUnreachable) as error:
            self._note(request, tool.name, resource, reason_of(error))
            return {"content": [_text(reason_of(error))], "isError": True}
        self._note(request, tool.name, resource, None)
        return {"content": [_text(text)], "isError": False}

    async def _answer(self, tool: Tool, given: object) -> str:
        arguments = tool.checked(given)
        shared = self._console.shared
        if shared is None:
            raise ClusterUnreachable(["no broker answers yet"])
        text = json.dumps(as_json(await tool.ask(shared.view, arguments)))
        if len(text) > ANSWER_BYTES_MAX:
            raise InvalidArguments(
                f"the answer has {len(text)} bytes, more than {ANSWER_BYTES_MAX}: ask for less"
            )
        return text


def _parsed(body: bytes) -> Message:
    try:
        message = read_json(body)
    except (ValueError, RecursionError):
        raise RpcError(PARSE_ERROR, "the body is not JSON") from None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise RpcError(INVALID_REQUEST, "the body is not one JSON-RPC 2.0 message")
    if not isinstance(message.get("method"), str):
        raise RpcError(INVALID_REQUEST, "the message has no method")
    given = message.get("id")
    is_number = isinstance(given, int) or (isinstance(given, float) and math.isfinite(given))
    if not is_number and not isinstance(given, str | None):
        raise RpcError(INVALID_REQUEST, "the id of a message is a text or a number")
    return message


def _failed(message_id: object, error: RpcError) -> Message:
    return {"jsonrpc": "2.0", "id": message_id, "error": {"code": error.code, "message": str(error)}}


def _text(text: str) -> Message:
    return {"type": "text", "text": text}


def _host(request: Request) -> str:
    return request.client.host if request.client else ""
