"""A request with much in it is read, handled and answered in slices, in the order of its connection."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.core.clock import ManualClock
from barnabas.core.errors import UnknownServerError
from barnabas.core.limits import REQUEST_ELEMENTS_MAX
from barnabas.core.metrics import Metrics
from barnabas.network.exchange import Exchange
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.headers import encode_request
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.dispatcher import Dispatcher
from barnabas.requests.registry import Api, ApiTable
from tests.support.settings import unlimited
from tests.unit.handlers.support import FakePeer

VERSION = 12


class TickingClock(ManualClock):
    """Every look at the time takes a millisecond, so that the turns of a test are counted, not timed."""

    def monotonic_ms(self) -> float:
        self.advance(ms=1)
        return super().monotonic_ms()


class FakeExchange:
    def __init__(self) -> None:
        self.connection = FakePeer()
        self.received_ms = 0.0
        self.answer: bytes | None = None
        self.closed = ""
        self.held = False
        self.kept = False

    def respond(self, parts: Any, /) -> None:
        assert self.answer is None
        self.answer = b"".join(parts)

    def respond_nothing(self) -> None:
        raise AssertionError

    def close(self, reason: str, /) -> None:
        self.closed = reason

    def hold(self) -> None:
        self.held = True

    def keep(self, frame: memoryview, /) -> memoryview:
        self.kept = True
        return memoryview(bytes(frame))

    def keep_piece(self, piece: memoryview, /) -> memoryview:
        return piece


def handle(request: MetadataRequest, context: RequestContext) -> Generator[None, None, MetadataResponse]:
    topics = []
    for topic in request.topics or ():
        topics.append(MetadataResponseTopic(name=topic.name))
        yield
        if topic.name == "fault":
            raise ValueError("a bug")
    return MetadataResponse(topics=topics)


def frame_of(count: int, first: str = "first") -> bytearray:
    names = [first, *(f"t{each}" for each in range(1, count))]
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    return bytearray(b"".join(encode_request(ApiKey.METADATA, VERSION, 9, "me", request)))  # type: ignore[arg-type]


@pytest.fixture
def dispatcher() -> Dispatcher:
    api = Api(ApiKey.METADATA, handle=handle)
    apis = ApiTable([api.key], lambda _: api)
    broker: Any = SimpleNamespace(quotas=unlimited())
    return Dispatcher(apis, broker, TickingClock(), Metrics())


async def turns_until(exchange: FakeExchange) -> int:
    turns = 0
    while exchange.answer is None and not exchange.closed:
        await asyncio.sleep(0)
        turns += 1
        assert turns < 100_000
    return turns


def names_in(answer: bytes) -> list[str | None]:
    return [topic.name for topic in MetadataResponse.decode(answer, VERSION, 5)[0].topics]


async def test_a_small_request_is_answered_inline(dispatcher: Dispatcher) -> None:
    exchange = FakeExchange()
    dispatcher.dispatch(cast("Exchange", exchange), memoryview(frame_of(2)))
    assert exchange.answer is not None
    assert names_in(exchange.answer) == ["first", "t1"]
    assert not exchange.held
    assert not exchange.kept


async def test_others_are_served_while_a_large_request_is_in_slices(dispatcher: Dispatcher) -> None:
    large, frame = FakeExchange(), frame_of(3_000)
    dispatcher.dispatch(cast("Exchange", large), memoryview(frame))
    frame[:] = bytes(len(frame))  # the network receives something else there
    assert large.held
    assert large.answer is None
    served = 0
    while large.answer is None:
        small = FakeExchange()
        dispatcher.dispatch(cast("Exchange", small), memoryview(frame_of(1)))
        assert small.answer is not None, "a small request waits for no large one"
        await asyncio.sleep(0)
        served += 1
    assert served > 3_000 / 5
    assert names_in(large.answer) == ["first", *(f"t{each}" for each in range(1, 3_000))]


async def test_large_requests_of_several_connections_take_turns(dispatcher: Dispatcher) -> None:
    one, two = FakeExchange(), FakeExchange()
    dispatcher.dispatch(cast("Exchange", one), memoryview(frame_of(2_000)))
    dispatcher.dispatch(cast("Exchange", two), memoryview(frame_of(2_000)))
    alone = await turns_until(one)
    assert await turns_until(two) < alone / 100, "neither waits until the other is done"


async def test_too_many_elements_close_the_connection(dispatcher: Dispatcher) -> None:
    exchange = FakeExchange()
    dispatcher.dispatch(cast("Exchange", exchange), memoryview(frame_of(REQUEST_ELEMENTS_MAX + 1)))
    await turns_until(exchange)
    assert "elements" in exchange.closed


async def test_a_bug_in_a_later_slice_is_an_answer(dispatcher: Dispatcher) -> None:
    exchange = FakeExchange()
    dispatcher.dispatch(cast("Exchange", exchange), memoryview(frame_of(2_000, first="fault")))
    await turns_until(exchange)
    assert exchange.answer is not None
    topics = MetadataResponse.decode(exchange.answer, VERSION, 5)[0].topics
    assert len(topics) == 2_000
    assert {topic.error_code for topic in topics} == {UnknownServerError.code}


async def test_stopping_gives_up_what_is_in_slices(dispatcher: Dispatcher) -> None:
    exchange = FakeExchange()
    dispatcher.dispatch(cast("Exchange", exchange), memoryview(frame_of(3_000)))
    await dispatcher.close()
    await asyncio.sleep(0)
    assert exchange.answer is None
