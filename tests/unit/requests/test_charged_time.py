"""A client is charged for what its requests take of the loop, in all their turns; waiting is free."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.config.dynamic.client_entities import USERS, EntityPart
from barnabas.core.errors import ClusterAuthorizationFailed
from barnabas.core.limits import TURN_MS_MAX
from barnabas.core.reporting.metrics import Metrics, render_prometheus
from barnabas.handlers import APIS
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import request_class, response_class
from barnabas.protocol.messages.metadata import MetadataResponse
from barnabas.protocol.schema.headers import encode_request
from barnabas.quota.keys import REQUEST_PERCENTAGE
from barnabas.requests.context import RequestContext
from barnabas.requests.dispatcher import Dispatcher
from barnabas.requests.registry import Api, ApiTable
from barnabas.security.acl.authorizer import AllowAll, Authorizer
from tests.support.manual_time import ManualClock
from tests.unit.quota.test_client_quotas import Quotas
from tests.unit.requests.test_dispatcher_slices import Asker

VERSION = 12
WORK_MS = 12
OTHERS_MS = 40.0
"""Time that other work takes of the loop, or that the request waits."""
WINDOW_S = 1_000
FREE_MS = 10.0
"""Allowance of the quota in its window. Twice of it is throttled for a whole window, which is the maximum."""


class ThrottledAsker(Asker):
    throttled_ms = 0.0

    def throttle(self, delay_ms: float) -> None:
        self.throttled_ms = delay_ms


class World:
    """A broker with one handler, and the clock that its work moves on."""

    def __init__(self) -> None:
        self.quotas = Quotas({"quota.window.num": "2", "quota.window.size.seconds": str(WINDOW_S)})
        self.clock: ManualClock = self.quotas.clock
        self.metrics = Metrics()
        self.asker = ThrottledAsker()
        self.dispatcher: Dispatcher | None = None

    async def limit(self) -> None:
        percentage = FREE_MS / (WINDOW_S * 1_000) * 100
        await self.quotas.set((EntityPart(USERS, None),), **{REQUEST_PERCENTAGE: str(percentage)})

    def serve(self, handle: Callable[[Any, Any], Any]) -> None:
        self.send(Api(ApiKey.METADATA, handle=handle), AllowAll())

    def send(self, api: Api, authorizer: Authorizer) -> None:
        broker: Any = SimpleNamespace(quotas=self.quotas.quotas, clock=self.clock, authorizer=authorizer)
        self.dispatcher = Dispatcher(ApiTable([api.key], lambda _: api), broker, self.clock, self.metrics)
        parts: list[Any] = encode_request(api.key, api.versions[-1], 9, "me", request_class(api.key)())
        self.asker.ask(self.dispatcher, bytearray(b"".join(parts)))

    def work(self, last: Callable[[], object] = MetadataResponse) -> Generator[None, None, Any]:
        for _ in range(WORK_MS):
            self.clock.advance(ms=1)
            yield
        return last()

    async def charged_ms(self) -> float:
        """Once it is answered; others are busy in each turn of the loop before."""
        for _ in range(100):
            if self.asker.answer is not None:
                break
            self.clock.advance(ms=OTHERS_MS)
            await asyncio.sleep(0)
        assert self.asker.answer is not None
        answer, _ = MetadataResponse.decode(self.asker.answer, VERSION, 5)
        assert answer.throttle_time_ms == self.asker.throttled_ms
        return FREE_MS * (1 + answer.throttle_time_ms / (WINDOW_S * 1_000))

    def metric(self, name: str) -> float:
        found = [
            line for line in render_prometheus(self.metrics).splitlines() if line.startswith(f"{name}{{")
        ]
        assert len(found) == 1
        return float(found[0].split()[-1])


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    await world.limit()
    yield world
    assert world.dispatcher is not None
    await world.dispatcher.close()


async def test_of_a_handler_in_slices(world: World) -> None:
    def handle(_: object, __: object) -> Generator[None, None, Any]:
        return (yield from world.work())

    world.serve(handle)
    assert await world.charged_ms() == pytest.approx(WORK_MS)
    assert world.metric("kafka_request_local_time_ms_sum") == pytest.approx(WORK_MS)
    turns_between = WORK_MS // int(TURN_MS_MAX)
    assert world.metric("kafka_request_remote_time_ms_sum") == pytest.approx(turns_between * OTHERS_MS)


async def test_queue_time_is_from_arrival_to_the_handler(world: World) -> None:
    """The request of `Asker` arrives at 0."""
    world.clock.advance(ms=OTHERS_MS)
    world.serve(lambda *_: MetadataResponse())
    started_ms = world.clock.monotonic_ms()
    await world.charged_ms()
    assert world.metric("kafka_request_queue_time_ms_sum") == pytest.approx(started_ms)
    assert started_ms >= OTHERS_MS


async def test_of_slices_that_a_plain_handler_begins(world: World) -> None:
    world.serve(lambda _, context: context.answer_in_slices(world.work()))
    assert await world.charged_ms() == pytest.approx(WORK_MS)


async def test_of_slices_that_end_in_others(world: World) -> None:
    """As a fetch of many partitions, which is read in slices and answered in slices."""

    def handle(_: object, context: RequestContext) -> None:
        context.answer_in_slices(world.work(lambda: context.answer_in_slices(short())))

    def short() -> Generator[None, None, MetadataResponse]:
        for _ in range(3):
            world.clock.advance(ms=1)
            yield
        return MetadataResponse()

    world.serve(handle)
    assert await world.charged_ms() == pytest.approx(WORK_MS + 3)


async def test_of_slices_after_a_wait(world: World) -> None:
    """As a fetch that waited for data, or a write of several partitions that waited for replicas."""

    def handle(_: object, context: RequestContext) -> None:
        world.clock.advance(ms=2)
        answer = lambda: context.answer_in_slices(world.work())  # noqa: E731
        asyncio.get_running_loop().call_soon(answer)

    world.serve(handle)
    assert await world.charged_ms() == pytest.approx(2 + WORK_MS)


async def test_of_slices_before_a_wait(world: World) -> None:
    def handle(_: object, context: RequestContext) -> None:
        def wait() -> None:
            asyncio.get_running_loop().call_soon(context.respond, MetadataResponse())

        context.answer_in_slices(world.work(wait))

    world.serve(handle)
    assert await world.charged_ms() == pytest.approx(WORK_MS)


async def test_of_a_coroutine(world: World) -> None:
    async def handle(_: object, context: RequestContext) -> MetadataResponse:
        await asyncio.sleep(0)
        response: MetadataResponse = await context.spread(world.work())
        await asyncio.sleep(0)
        return response

    world.serve(handle)
    assert await world.charged_ms() == pytest.approx(WORK_MS)


async def test_of_a_coroutine_that_a_plain_handler_begins(world: World) -> None:
    async def answer(context: RequestContext) -> MetadataResponse:
        await asyncio.sleep(0)
        response: MetadataResponse = await context.spread(world.work())
        return response

    world.serve(lambda _, context: context.answer_with(answer(context)))
    assert await world.charged_ms() == pytest.approx(WORK_MS)


async def test_a_coroutine_is_told_that_it_is_cancelled(world: World) -> None:
    ended: list[str] = []

    async def handle(_: object, __: object) -> MetadataResponse:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return MetadataResponse()

    world.serve(handle)
    await asyncio.sleep(0)
    assert world.dispatcher is not None
    await world.dispatcher.close()
    assert ended == ["cancelled"]
    assert world.asker.refusal == "the broker is shutting down"


class AllowNothing(AllowAll):
    allows_everything = False

    def allows(self, *_: object, **__: object) -> bool:
        return False


@pytest.mark.parametrize("api", [api for api in APIS if api.is_between_brokers], ids=lambda api: api.key.name)
@pytest.mark.parametrize("authorizer", [AllowAll(), AllowNothing()], ids=["a-broker", "anybody"])
async def test_only_brokers_are_exempt(world: World, api: Api, authorizer: Authorizer) -> None:
    is_broker = authorizer.allows_everything
    response = response_class(api.key)
    world.quotas.quotas.charge_time(world.asker.principal.name, "me", 2 * FREE_MS)
    world.send(replace(api, handle=lambda _, __: response()), authorizer)
    assert world.asker.answer is not None
    answer: Any = response.decode(world.asker.answer, api.versions[-1], 5)[0]
    assert answer.error_code == (0 if is_broker else ClusterAuthorizationFailed.code)
    assert bool(world.asker.throttled_ms) != is_broker
