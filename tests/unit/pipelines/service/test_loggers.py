"""Loggers that clients of the pipeline service name are short and few: Python keeps each of them forever."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from tests.support.manual_time import ManualClock

from barnabas.pipelines.service.errors import ServiceError
from barnabas.pipelines.service.http import rest_loggers
from barnabas.pipelines.service.http.rest_loggers import BODY_BYTES_MAX, NAME_CHARACTERS_MAX, Loggers

DEBUG = json.dumps({"level": "DEBUG"}).encode()


@pytest.fixture(autouse=True)
def known() -> Iterator[dict[str, Any]]:
    """Loggers that there are before a test, which are all there are after it."""
    loggers = logging.root.manager.loggerDict
    before = dict(loggers)
    yield before
    loggers.clear()
    loggers.update(before)


@pytest.fixture
def client() -> httpx.AsyncClient:
    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, ServiceError)
        return PlainTextResponse(error.message, error.code)

    routes = [Route("/{logger}", Loggers(ManualClock()).change, methods=["PUT"])]
    handlers: Any = {ServiceError: refused}
    transport = httpx.ASGITransport(Starlette(routes=routes, exception_handlers=handlers))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")


@pytest.mark.parametrize("name", ["a." * 5_000 + "a", "a." * 20 + "a", "a" * (NAME_CHARACTERS_MAX + 1)])
async def test_a_long_name_makes_no_logger(
    name: str, client: httpx.AsyncClient, known: dict[str, Any]
) -> None:
    assert (await client.put(f"/{name}", content=DEBUG)).status_code == 400
    assert logging.root.manager.loggerDict.keys() == known.keys()


async def test_names_that_clients_invent_are_few(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest_loggers, "INVENTED_MAX", 3)
    codes = [(await client.put(f"/invented{number}", content=DEBUG)).status_code for number in range(5)]
    assert codes == [200, 200, 200, 400, 400]
    assert (await client.put("/invented0", content=DEBUG)).status_code == 200
    logging.getLogger("known.one")
    assert (await client.put("/known.one", content=DEBUG)).json() == ["known.one"]


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"[" * BODY_BYTES_MAX, 400), (b"{}" + b" " * BODY_BYTES_MAX, 413), (b"\xff", 400), (b"", 400)],
)
async def test_a_body_is_small(body: bytes, status: int, client: httpx.AsyncClient) -> None:
    assert (await client.put("/barnabas", content=body)).status_code == status


async def test_a_level_that_is_no_text_is_refused(client: httpx.AsyncClient) -> None:
    """No answer could repeat it."""
    assert (await client.put("/root", content=rb'{"level": "\ud800"}')).status_code == 400
