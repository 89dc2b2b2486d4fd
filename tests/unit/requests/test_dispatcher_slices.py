"""A request with much in it is read, handled and answered in slices, in the order of its connection."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.core.errors import UnknownServerError
from barnabas.core.limits import REQUEST_ELEMENTS_MAX
from barnabas.core.reporting.metrics import Metrics
from barnabas.network.transport.exchange import Exchange
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from barnabas.protocol.schema.headers import encode_request
from barnabas.requests.context import RequestContext
from barnabas.requests.dispatcher import Dispatcher
from barnabas.requests.registry import Api, ApiTable
from tests.support.settings import unlimited
from tests.unit.handlers.support import FakePeer

VERSION = 12


class TickingClock:
    """Every look at the time takes a millisecond, so that the turns of a test are counted, not timed."""

    def __init__(self) -> None:
        self._elapsed_ms = 0

    def now_ms(self) -> int:
        return self._elapsed_ms

    def monotonic_ms(self) -> float:
        self._elapsed_ms += 1
        return self._elapsed_ms


class Asker(FakePeer):
    """A connection on which one request comes, and its answer leaves."""

    def __init__(self) -> None:
        super().__init__()
        self.answer: bytes | None = None
        self.refusal = ""
        self.held = False
        self.kept = False

    def ask(self, dispatcher: Dispatcher, frame: bytearray) -> None:
        dispatcher.dispatch(Exchange(self, 0.0), memoryview(frame))

    def answered(self, exchange: Exchange) -> None:
        assert self.answer is None
        parts: Any = exchange.parts
        self.answer = b"".join(parts)

    def refuse(self, reason: str) -> None:
        self.refusal = reason

    def hold(self) -> None:
        self.held = True

    def keep(self, frame: memoryview) -> memoryview:
        self.kept = True
        return memoryview(bytes(frame))


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


async def turns_until(asker: Asker) -> int:
    turns = 0
    while asker.answer is None and not asker.refusal:
        await asyncio.sleep(0)
        turns += 1
        assert turns < 100_000
    return turns


def names_in(answer: bytes) -> list[str | None]:
    return [topic.name for topic in MetadataResponse.decode(answer, VERSION, 5)[0].topics]


async def test_a_small_request_is_answered_inline(dispatcher: Dispatcher) -> None:
    asker = Asker()
    asker.ask(dispatcher, frame_of(2))
    assert asker.answer is not None
    assert names_in(asker.answer) == ["first", "t1"]
    assert not asker.held
    assert not asker.kept


async def test_others_are_served_while_a_large_request_is_in_slices(dispatcher: Dispatcher) -> None:
    large, frame = Asker(), frame_of(3_000)
    large.ask(dispatcher, frame)
    frame[:] = bytes(len(frame))  # the network receives something else there
    assert large.held
    assert large.answer is None
    served = 0
    while large.answer is None:
        small = Asker()
        small.ask(dispatcher, frame_of(1))
        assert small.answer is not None, "a small request waits for no large one"
        await asyncio.sleep(0)
        served += 1
    assert served > 3_000 / 5
    assert names_in(large.answer) == ["first", *(f"t{each}" for each in range(1, 3_000))]


async def test_large_requests_of_several_connections_take_turns(dispatcher: Dispatcher) -> None:
    one, two = Asker(), Asker()
    one.ask(dispatcher, frame_of(2_000))
    two.ask(dispatcher, frame_of(2_000))
    alone = await turns_until(one)
    assert await turns_until(two) < alone / 100, "neither waits until the other is done"


async def test_too_many_elements_close_the_connection(dispatcher: Dispatcher) -> None:
    asker = Asker()
    asker.ask(dispatcher, frame_of(REQUEST_ELEMENTS_MAX + 1))
    await turns_until(asker)
    assert "elements" in asker.refusal


async def test_a_bug_in_a_later_slice_is_an_answer(dispatcher: Dispatcher) -> None:
    asker = Asker()
    asker.ask(dispatcher, frame_of(2_000, first="fault"))
    await turns_until(asker)
    assert asker.answer is not None
    topics = MetadataResponse.decode(asker.answer, VERSION, 5)[0].topics
    assert len(topics) == 2_000
    assert {topic.error_code for topic in topics} == {UnknownServerError.code}


async def test_stopping_gives_up_what_is_in_slices(dispatcher: Dispatcher) -> None:
    asker = Asker()
    asker.ask(dispatcher, frame_of(3_000))
    await dispatcher.close()
    await asyncio.sleep(0)
    assert asker.answer is None
