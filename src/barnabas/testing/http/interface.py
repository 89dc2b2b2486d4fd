"""Routes of an HTTP interface: which request goes where, what it may name, and its OpenAPI page.

A query or a body that has a name which the route does not know is refused. A misspelt argument would change
nothing, and the test would not say why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from barnabas import __version__
from barnabas.network.http.messages import RequestRefused
from barnabas.network.http.server import HttpRequest

BODY_BYTES_MAX: Final = 2 * 1024 * 1024
"""A larger document would hold the loop for a tenth of a second while it is read."""
BODY_FIELDS_MAX: Final = 32


class Asked(NamedTuple):
    """A request for one route: the names in its path, its query and its body."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    body: dict[str, Any]


class Route(NamedTuple):
    method: str
    path: str
    answer: Callable[[Any, Asked], Awaitable[Any]]
    """Method of an endpoint."""
    summary: str
    query: Sequence[str] = ()
    body: Sequence[str] = ()

    @property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", self.path))


def route_of(routes: Sequence[Route], request: HttpRequest) -> tuple[Route, Asked]:
    """The route of a request, and what it asks. Raises RequestRefused."""
    path = request.head.path.decode(errors="replace")
    allowed: list[str] = []
    for route in routes:
        matched = route.pattern.fullmatch(path)
        if matched is None:
            continue
        if route.method == request.head.method:
            names = {name: unquote(text) for name, text in matched.groupdict().items()}
            query = dict(parse_qsl(request.head.query.decode(errors="replace"), keep_blank_values=True))
            body = _body_of(request)
            _check_names("the query", query, route.query)
            _check_names("the body", body, route.body)
            return route, Asked(names, query, body)
        allowed.append(route.method)
    if allowed:
        raise RequestRefused(HTTPStatus.METHOD_NOT_ALLOWED, f"{path} takes {', '.join(allowed)}")
    raise RequestRefused(HTTPStatus.NOT_FOUND, f"there is no {path} here; /openapi.json lists the paths")


def openapi(routes: Sequence[Route]) -> dict[str, Any]:
    """The interface in the form of OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        in_path = re.findall(r"\{(\w+)\}", route.path)
        named = [("path", name) for name in in_path] + [("query", name) for name in route.query]
        operation: dict[str, Any] = {
            "summary": route.summary,
            "parameters": [
                {"name": name, "in": where, "required": where == "path", "schema": {"type": "string"}}
                for where, name in named
            ],
            "responses": {
                "200": {"description": "Done."},
                "400": {"description": "The message says what to write instead."},
                "408": {"description": "The request timed out before its condition was met."},
                "409": {"description": "The broker is paused or does not run, or the rule was removed."},
            },
        }
        if route.body:
            schema = {"type": "object", "properties": {name: {} for name in route.body}}
            operation["requestBody"] = {
                "content": {"application/json": {"schema": {**schema, "additionalProperties": False}}}
            }
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Barnabas test kit", "version": __version__},
        "paths": paths,
    }


def _check_names(where: str, given: Collection[str], known: Sequence[str]) -> None:
    unknown = sorted(set(given) - set(known))
    if unknown:
        allowed = f"write {', '.join(known)}" if known else "this path takes none"
        raise RequestRefused(HTTPStatus.BAD_REQUEST, f"{where} names {', '.join(unknown)}; {allowed}")


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
