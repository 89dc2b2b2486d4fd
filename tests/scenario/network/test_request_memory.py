"""Large requests share the memory of `queued.max.request.bytes`, and no API gets more than it has use for."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from tests.scenario.network.harness import echo, framed, serving, turns, until

from barnabas.core.limits import PLAIN_REQUEST_BYTES_MAX
from barnabas.core.reporting.metrics import Metrics
from barnabas.network.request_memory import NO_BOUND, RequestMemory
from barnabas.protocol.api_keys import ApiKey
from barnabas.requests.registry import frame_bytes_max_of

MIB = 1 << 20
SMALL_POOL: dict[str, Any] = {"queued_max_request_bytes": 3 * MIB, "socket_request_max_bytes": 2 * MIB}


def begun(size: int, sent: int, api_key: int = 0) -> bytes:
    """The beginning of a frame that announces its length."""
    return (struct.pack(">ih", size, api_key) + bytes(size))[:sent]


async def test_large_requests_beyond_the_bound_wait_for_those_before_them() -> None:
    async with serving(echo, **SMALL_POOL) as served:
        memory = served.server.request_memory
        clients = [await served.connect() for _ in range(5)]
        for count, client in enumerate(clients[:2], 1):
            await client.send_raw(begun(2 * MIB, MIB))
            await until(lambda count=count: memory.used_bytes == count * 2 * MIB)  # type: ignore[misc]
        await until(lambda: served.server.counters.received.value == 2 * MIB)
        waiting = [
            asyncio.ensure_future(client.send_raw(begun(2 * MIB, 2 * MIB + 4))) for client in clients[2:]
        ]
        await until(lambda: len(memory._line) == 3)
        before = served.server.counters.received.value
        await turns(200)
        assert served.server.counters.received.value == before
        assert memory.used_bytes == 4 * MIB

        await clients[0].send_raw(bytes(MIB + 4))
        assert len(await clients[0].receive()) == 2 * MIB + 3
        assert memory.used_bytes == 2 * MIB * 2  # the next in line has got in
        clients[1].close()
        for client in clients[2:]:
            assert len(await client.receive()) == 2 * MIB + 3
        await asyncio.gather(*waiting)
        assert memory.used_bytes == 0


async def test_small_requests_do_not_wait() -> None:
    async with serving(echo, **SMALL_POOL) as served:
        for _ in range(2):
            client = await served.connect()
            await client.send_raw(begun(2 * MIB, 2 * MIB))
        await until(lambda: served.server.request_memory.used_bytes == 4 * MIB)
        other = await served.connect()
        await other.send(b"x" * 60_000)
        assert len(await other.receive()) == 60_003


async def test_a_connection_that_ends_gives_back_and_leaves_the_line() -> None:
    async with serving(echo, **SMALL_POOL) as served:
        memory = served.server.request_memory
        first, second, third, fourth = [await served.connect() for _ in range(4)]
        for client in (first, second):
            await client.send_raw(begun(2 * MIB, MIB))
        await until(lambda: memory.used_bytes == 4 * MIB)
        await third.send_raw(begun(2 * MIB, 100_000))
        await until(lambda: len(memory._line) == 1)
        await fourth.send_raw(begun(2 * MIB, 100_000))
        await until(lambda: len(memory._line) == 2)
        (waiting, _), _ = memory._line
        waiting.close("by_peer")  # type: ignore[attr-defined]
        assert len(memory._line) == 1
        first.close()
        await until(lambda: memory.used_bytes == 4 * MIB and not memory._line)
        second.close()
        fourth.close()
        await until(lambda: memory.used_bytes == 0)


async def test_a_frame_too_large_for_its_api_is_refused_at_its_first_bytes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(echo) as served:
        served.server.frame_bytes_max_of = frame_bytes_max_of
        client, produce = await served.connect(), await served.connect()
        await client.send_raw(begun(PLAIN_REQUEST_BYTES_MAX + 1, 100, ApiKey.METADATA))
        assert await client.sees_the_end()
        assert served.closed("bad_frame") == 1
        assert f"the limit for API key 3 is {PLAIN_REQUEST_BYTES_MAX}" in caplog.text
        await produce.send_raw(begun(PLAIN_REQUEST_BYTES_MAX + 1, 100, ApiKey.PRODUCE))
        other = await served.connect()
        await other.send(b"hello")
        assert await other.receive() == b"re:hello"
        assert served.closed("bad_frame") == 1


def test_only_requests_with_records_and_orders_of_controllers_may_be_huge() -> None:
    huge = {key for key in ApiKey if frame_bytes_max_of(key) > PLAIN_REQUEST_BYTES_MAX}
    assert {ApiKey.PRODUCE, ApiKey.UPDATE_METADATA, ApiKey.LEADER_AND_ISR} <= huge
    assert not huge & {ApiKey.METADATA, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.FETCH}
    assert frame_bytes_max_of(-1) == frame_bytes_max_of(9_999) == PLAIN_REQUEST_BYTES_MAX


def test_without_a_bound_nothing_waits() -> None:
    class Waiter:
        def memory_granted(self) -> None:
            raise AssertionError

    memory = RequestMemory(NO_BOUND, Metrics())
    assert all(memory.take(Waiter(), 1 << 40) for _ in range(10))
    memory.give_back(1 << 40)
    assert memory.used_bytes == 9 << 40
    assert framed(b"") == bytes(4)
