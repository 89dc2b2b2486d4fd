"""The test kit over HTTP, for tests in other languages: `barnabas start --control 127.0.0.1:8500`.

    curl -X POST 127.0.0.1:8500/faults -d '{"api": "Produce", "drop": "after", "times": 1}'

`ROUTES` is the interface; `/openapi.json` is rendered from it. Bodies and responses are JSON. The interface
breaks a broker on purpose, so it is served on loopback only.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from barnabas import __version__
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.core.errors import KafkaError
from barnabas.network.http.messages import HttpResponse, RequestRefused, refusal
from barnabas.network.http.server import HttpRequest
from barnabas.node.broker import Broker
from barnabas.testing.asking import inspection, interventions
from barnabas.testing.faults.rules import HIT_TIMEOUT_S, FaultRule
from barnabas.testing.running.kit import Kit
from barnabas.testing.running.virtual_time import VirtualLoop, VirtualTime

JSON: Final = (b"content-type", b"application/json")
BODY_BYTES_MAX: Final = 2 * 1024 * 1024
"""A larger document would hold the loop for a tenth of a second while it is read."""
BODY_FIELDS_MAX: Final = 32


class Asked(NamedTuple):
    """A request for one route: the names in its path, its query and its body."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    body: dict[str, Any]


class ControlEndpoint:
    """Answers of the control interface of one broker."""

    def __init__(self, kit: Kit, broker: Broker, loop: VirtualLoop) -> None:
        self._kit = kit
        self._broker = broker
        self._loop = loop
        """The broker's loop; this endpoint may be served by another one."""
        self._rules: dict[int, FaultRule] = {}
        """Rules by the number under which clients know them."""
        kit.actions.client = self._client

    async def answer(self, request: HttpRequest) -> HttpResponse:
        try:
            found = await self._answer(request)
        except RequestRefused as error:
            return refusal(error)
        except (KafkaError, TimeoutError, TypeError, ValueError) as error:
            status = HTTPStatus.REQUEST_TIMEOUT if isinstance(error, TimeoutError) else HTTPStatus.BAD_REQUEST
            return refusal(RequestRefused(status, str(error) or type(error).__name__))
        if found is None:
            return HttpResponse(HTTPStatus.NO_CONTENT)
        return HttpResponse(HTTPStatus.OK, json.dumps(found).encode(), (JSON,))

    async def _answer(self, request: HttpRequest) -> Any:
        path = request.head.path.decode(errors="replace")
        allowed: list[str] = []
        for route in ROUTES:
            matched = route.pattern.fullmatch(path)
            if matched is None:
                continue
            if route.method == request.head.method:
                names = {name: unquote(text) for name, text in matched.groupdict().items()}
                query = dict(parse_qsl(request.head.query.decode(errors="replace")))
                return await route.answer(self, Asked(names, query, _body_of(request)))
            allowed.append(route.method)
        if allowed:
            raise RequestRefused(HTTPStatus.METHOD_NOT_ALLOWED, f"{path} takes {', '.join(allowed)}")
        raise RequestRefused(HTTPStatus.NOT_FOUND, f"there is no {path} here; /openapi.json lists the paths")

    # --- fault rules ---

    async def list_faults(self, _: Asked) -> Any:
        active = set(self._kit.faults)
        self._rules = {number: rule for number, rule in self._rules.items() if rule in active}
        return [_shown(number, rule) for number, rule in self._rules.items()]

    async def add_fault(self, asked: Asked) -> Any:
        in_python_alone = {"answer", "change"} & set(asked.body)
        if in_python_alone:
            raise ValueError(f"{', '.join(sorted(in_python_alone))} takes a function, in Python alone")
        rule = self._kit.faults.add(**asked.body)
        number = max(self._rules, default=0) + 1
        self._rules[number] = rule
        return _shown(number, rule)

    async def clear_faults(self, _: Asked) -> None:
        self._kit.faults.clear()
        self._rules.clear()

    async def show_fault(self, asked: Asked) -> Any:
        return _shown(*self._rule(asked))

    async def remove_fault(self, asked: Asked) -> None:
        number, rule = self._rule(asked)
        rule.remove()
        del self._rules[number]

    async def await_fault(self, asked: Asked) -> Any:
        number, rule = self._rule(asked)
        hits, timeout_s = int(asked.query.get("hits", 1)), float(asked.query.get("timeout_s", HIT_TIMEOUT_S))
        await rule.hit(hits, timeout_s)
        return _shown(number, rule)

    def _rule(self, asked: Asked) -> tuple[int, FaultRule]:
        number = int(asked.path["number"])
        rule = self._rules.get(number)
        if rule is None:
            raise RequestRefused(HTTPStatus.NOT_FOUND, f"there is no fault {number}")
        return number, rule

    async def rebalance(self, asked: Asked) -> None:
        async with self._client() as cluster:
            await interventions.rebalance(cluster, asked.path["group"])

    async def fence_members(self, asked: Asked) -> Any:
        async with self._client() as cluster:
            return {"removed": await interventions.remove_members(cluster, asked.path["group"])}

    async def fence_producer(self, asked: Asked) -> None:
        async with self._client() as cluster:
            await interventions.fence_producer(cluster, asked.path["id"])

    # --- disk and time ---

    async def set_disk(self, asked: Asked) -> None:
        disk, under = self._kit.disk, str(asked.body.get("under", ""))
        match str(asked.body.get("state", "")):
            case "healthy":
                disk.heal()
            case "stalled":
                disk.stall(under=under)
            case name if name.startswith("E"):
                disk.fail(name, under=under)
            case other:
                raise ValueError(f"state {other!r}: write healthy, stalled, or an error such as ENOSPC")

    async def advance_time(self, asked: Asked) -> Any:
        time = VirtualTime(self._loop.clock, lambda: [self._loop])
        await asyncio.to_thread(time.advance, asked.body.get("advance", ""))
        return {"now_ms": self._loop.clock.now_ms()}

    # --- looking into the broker ---

    async def list_requests(self, asked: Asked) -> Any:
        seen = self._kit.requests.seen(asked.query.get("api"), asked.query.get("client_id"))
        return [
            {
                "api": each.api,
                "version": each.version,
                "client_id": each.client_id,
                "message": str(each.message),
            }
            for each in seen
        ]

    async def show_log(self, _: Asked) -> Any:
        return self._kit.log.lines()

    async def create_topic(self, asked: Asked) -> Any:
        configs = {str(key): str(value) for key, value in dict(asked.body.get("configs", {})).items()}
        partitions = int(asked.body.get("partitions", 1))
        async with self._client() as cluster:
            await inspection.create_topic(cluster, asked.path["topic"], partitions, configs)
        return {"name": asked.path["topic"], "partitions": partitions}

    async def list_records(self, asked: Asked) -> Any:
        committed = asked.query.get("committed", "false") == "true"
        async with self._client() as cluster:
            found = await inspection.read_records(cluster, asked.path["topic"], committed=committed)
        return [
            {
                "partition": each.partition,
                "offset": each.offset,
                "timestamp": each.timestamp,
                "key": _encoded(each.key),
                "value": _encoded(each.value),
                "headers": [[name, _encoded(value)] for name, value in each.headers],
            }
            for each in found
        ]

    async def list_offsets(self, asked: Asked) -> Any:
        async with self._client() as cluster:
            found = await inspection.committed_offsets(cluster, asked.path["group"])
        return [
            {"topic": place.topic, "partition": place.partition, "offset": offset}
            for place, offset in sorted(found.items())
        ]

    async def await_group(self, asked: Asked) -> Any:
        members = asked.query.get("members")
        async with self._client() as cluster:
            found = await inspection.await_group(
                cluster,
                asked.path["group"],
                state=asked.query.get("state"),
                members=None if members is None else int(members),
                timeout_s=float(asked.query.get("timeout_s", HIT_TIMEOUT_S)),
            )
        return {
            "group": found.group_id,
            "state": found.state,
            "members": [each.member_id for each in found.members],
        }

    async def show_interface(self, _: Asked) -> Any:
        return openapi()

    def _client(self) -> ClusterClient:
        return inspection.kit_client([each.endpoint for each in self._broker.bound_listeners])


class Route(NamedTuple):
    method: str
    path: str
    answer: Callable[[ControlEndpoint, Asked], Awaitable[Any]]
    summary: str

    @property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", self.path))


_Endpoint = ControlEndpoint
ROUTES: Final = (
    Route("GET", "/openapi.json", _Endpoint.show_interface, "This interface."),
    Route("GET", "/faults", _Endpoint.list_faults, "Fault rules, in their order."),
    Route("POST", "/faults", _Endpoint.add_fault, "Add a rule: the arguments of docs/TESTING.md."),
    Route("DELETE", "/faults", _Endpoint.clear_faults, "Remove all rules."),
    Route("GET", "/faults/{number}", _Endpoint.show_fault, "One rule, with its matches and hits."),
    Route("DELETE", "/faults/{number}", _Endpoint.remove_fault, "Remove one rule."),
    Route("POST", "/faults/{number}/wait", _Endpoint.await_fault, "Wait for hits (query: hits, timeout_s)."),
    Route("PUT", "/disk", _Endpoint.set_disk, "Set state (healthy, stalled, ENOSPC, …) and under (a path)."),
    Route("POST", "/time", _Endpoint.advance_time, "Let time pass: advance, such as 45s."),
    Route("GET", "/requests", _Endpoint.list_requests, "Last requests (query: api, client_id)."),
    Route("GET", "/log", _Endpoint.show_log, "Last lines of the broker's log."),
    Route("PUT", "/topics/{topic}", _Endpoint.create_topic, "Create a topic: partitions, configs."),
    Route("GET", "/topics/{topic}/records", _Endpoint.list_records, "All records (query: committed=true)."),
    Route("GET", "/groups/{group}/offsets", _Endpoint.list_offsets, "Committed offsets of a group."),
    Route("POST", "/groups/{group}/wait", _Endpoint.await_group, "Wait (query: state, members, timeout_s)."),
    Route("POST", "/groups/{group}/rebalance", _Endpoint.rebalance, "Begin a rebalance."),
    Route("DELETE", "/groups/{group}/members", _Endpoint.fence_members, "Remove all members of a group."),
    Route("POST", "/producers/{id}/fence", _Endpoint.fence_producer, "Fence a transactional id."),
)


def openapi() -> dict[str, Any]:
    """The interface in the form of OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        parameters = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in re.findall(r"\{(\w+)\}", route.path)
        ]
        paths.setdefault(route.path, {})[route.method.lower()] = {
            "summary": route.summary,
            "parameters": parameters,
            "responses": {"200": {"description": "Done."}, "400": {"description": "The message says why."}},
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Barnabas test kit", "version": __version__},
        "paths": paths,
    }


def _shown(number: int, rule: FaultRule) -> dict[str, Any]:
    return {"number": number, "rule": str(rule), "matches": rule.matches, "hits": rule.hits}


def _encoded(data: bytes | None) -> dict[str, str] | None:
    """Bytes in JSON: always as base64, and as text where they are UTF-8."""
    if data is None:
        return None
    shown = {"base64": base64.b64encode(data).decode()}
    try:
        return {**shown, "text": data.decode()}
    except UnicodeDecodeError:
        return shown


def _body_of(request: HttpRequest) -> dict[str, Any]:
    if not request.body:
        return {}
    if len(request.body) > BODY_BYTES_MAX:
        raise RequestRefused(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"a body here has at most {BODY_BYTES_MAX} bytes",
        )
    try:
        body = json.loads(request.body)
    except (ValueError, RecursionError):
        raise RequestRefused(HTTPStatus.BAD_REQUEST, "the body is not JSON") from None
    if not isinstance(body, dict) or len(body) > BODY_FIELDS_MAX:
        raise RequestRefused(HTTPStatus.BAD_REQUEST, "the body is not a JSON object of this interface")
    return body
