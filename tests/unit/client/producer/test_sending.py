"""Asyncio shell of the sender: when it asks for a producer id."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from tests.support.producer_world import World

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.producer.sending import Sending
from barnabas.core.backoff import Backoff
from barnabas.core.clock import SystemClock
from barnabas.core.errors import ClusterAuthorizationFailed


class RefusingCluster:
    """Every request for a producer id is refused."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.updates = SimpleNamespace(on_update=[], request=lambda: None)
        self.asked = 0
        self.was_asked = asyncio.Event()

    async def run(self, steps: Any) -> None:
        self.asked += 1
        self.was_asked.set()
        raise ClusterAuthorizationFailed("no")

    def address_of(self, broker_id: int) -> None:
        return None


async def test_a_producer_id_is_asked_for_when_records_wait_and_after_a_refusal_with_a_pause() -> None:
    cluster, world = RefusingCluster(), World(has_id=False)
    sending = Sending(
        cast("ClusterClient", cluster),
        world.sender,
        world.state,
        acks=-1,
        request_timeout_ms=1_000,
        backoff=Backoff(60_000, 60_000),
        linger_ms=0,
    )
    sending.start()

    async def turns() -> None:
        for _ in range(20):
            sending.wake()
            await asyncio.sleep(0)

    await turns()
    assert cluster.asked == 0, "no record waits"
    world.send(b"first")
    sending.wake()
    await cluster.was_asked.wait()
    await turns()
    assert isinstance(world.outcomes()[0][2], ClusterAuthorizationFailed)
    world.send(b"second")
    await turns()
    assert cluster.asked == 1, "the pause is not over"
    await sending.stop()


async def test_records_after_a_refusal_ask_again() -> None:
    cluster, world = RefusingCluster(), World(has_id=False)
    sending = Sending(
        cast("ClusterClient", cluster),
        world.sender,
        world.state,
        acks=-1,
        request_timeout_ms=1_000,
        backoff=Backoff(1, 1),
        linger_ms=0,
    )
    sending.start()
    async with asyncio.timeout(10):
        for asked in (1, 2):
            cluster.was_asked.clear()
            world.send(b"v" * 190)
            sending.wake()
            await cluster.was_asked.wait()
            assert cluster.asked == asked
    await sending.stop()
