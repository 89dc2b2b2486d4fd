"""Errors of the control interface are answers with a status, and no tracebacks."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client.core.steps import ClusterUnreachable
from barnabas.core.errors import InvalidRequest
from barnabas.network.http.messages import RequestHead
from barnabas.network.http.server import HttpRequest
from barnabas.testing.http.control import ControlEndpoint


async def status_of(method: str, path: str, body: str = "", error: Exception | None = None) -> int:
    def rebalance(_: str) -> None:
        if error is not None:
            raise error

    tested: Any = SimpleNamespace(rebalance=rebalance)
    head = RequestHead(method, path.encode(), b"", ())
    answer = await ControlEndpoint(tested).answer(HttpRequest(head, body.encode(), "user"))
    if answer.body:
        assert json.loads(answer.body)["message"]
    return int(answer.status)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (None, 204),
        (ClusterUnreachable(["connection refused"]), 409),  # the broker ends while it is asked
        (RuntimeError("the broker is paused"), 409),
        (TimeoutError("no response"), 408),
        (InvalidRequest("no"), 400),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_an_error_of_a_call_has_a_status(error: Exception | None, status: int) -> None:
    assert await status_of("POST", "/groups/g/rebalance", error=error) == status


@pytest.mark.parametrize("number", ["Infinity", "1e999", "NaN", "[]", "null", '"x"', "1" * 5_000])
@pytest.mark.parametrize(
    ("path", "name"), [("/topics/t/partitions/0/leader", "to"), ("/topics/t", "partitions")]
)
async def test_a_number_is_a_number(path: str, name: str, number: str) -> None:
    assert await status_of("PUT", path, f'{{"{name}": {number}}}') == 400
