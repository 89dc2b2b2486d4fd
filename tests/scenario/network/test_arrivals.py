"""Queue and total times count from the arrival in the kernel, and end when the response is sent."""

from __future__ import annotations

import sys
import time

import pytest
from tests.scenario.network.harness import Later, Served, serving, turns

from barnabas.core.reporting.metrics import Histogram
from barnabas.network.transport.exchange import Exchange

BUSY_S = 0.05


async def waits_of_two(served: Served, later: Later) -> list[float]:
    """Milliseconds that the second requests of two connections waited while the loop stood still."""
    clients = [await served.connect(), await served.connect()]
    for number, client in enumerate(clients):
        await client.send(b"first")
        await later.has(number)
        later.answer(number)
        await client.receive()
    served.clock.advance(ms=10_000)
    for client in clients:
        client.sock.send(b"\0\0\0\6second")
    time.sleep(BUSY_S)  # noqa: ASYNC251 - the loop is busy
    await later.has(3)
    return [served.clock.monotonic_ms() - each.received_ms for each in later.exchanges[2:]]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux stamps TCP segments")
async def test_a_request_counts_from_its_arrival_in_the_kernel() -> None:
    later = Later()
    async with serving(later) as served:
        for waited_ms in await waits_of_two(served, later):
            assert BUSY_S * 1_000 <= waited_ms <= 10_000


async def test_without_stamps_a_loop_that_was_idle_counts_no_wait() -> None:
    later = Later()
    async with serving(later) as served:
        served.server.stamped = None
        assert await waits_of_two(served, later) == [0.0, 0.0]


async def test_without_stamps_a_busy_loop_counts_half_of_its_turns() -> None:
    received: list[float] = []

    def dispatch(exchange: Exchange, _: memoryview) -> None:
        received.append(served.clock.monotonic_ms() - exchange.received_ms)
        exchange.respond([b"done"])
        served.clock.advance(ms=8)

    async with serving(dispatch) as served:
        served.server.stamped = None
        clients = [await served.connect() for _ in range(2)]
        await turns()
        for client in clients:
            client.sock.send(b"\0\0\0\1x")
        for client in clients:
            await client.receive()
    assert received == [0.0, 4.0]


async def test_a_wait_is_not_longer_than_since_the_last_read() -> None:
    """The wall clock, which the kernel stamps with, may be set forward meanwhile."""
    later = Later()
    async with serving(later) as served:
        client, other = await served.connect(), await served.connect()
        for number, each in enumerate((client, other)):
            await each.send(b"first")
            await later.has(number)
        later.answer(0)
        await client.receive()
        served.clock.advance(ms=3)
        client.sock.send(b"\0\0\0\6second")
        time.sleep(BUSY_S)  # noqa: ASYNC251
        await later.has(2)
        assert served.clock.monotonic_ms() - later.exchanges[2].received_ms <= 3


async def test_the_total_time_ends_when_the_response_is_sent() -> None:
    times = Histogram()
    later = Later()
    async with serving(later) as served:
        client = await served.connect()
        await client.send(b"one", b"two")
        await later.has(1)
        arrived_ms = later.exchanges[0].received_ms
        for exchange in later.exchanges:
            exchange.total_time = times
        served.clock.advance(ms=7)
        later.answer(1)
        assert times.count == 0, "the first response has to leave before the second"
        served.clock.advance(ms=5)
        later.answer(0)
        assert times.count == 2
        assert times.total == 2 * (served.clock.monotonic_ms() - arrived_ms)
        await client.receive()


async def test_a_response_for_a_closed_connection_ends_its_total_time() -> None:
    times = Histogram()
    later = Later()
    async with serving(later) as served:
        client = await served.connect()
        await client.send(b"one")
        await later.has(0)
        later.exchanges[0].total_time = times
        client.close()
        await turns()
        later.exchanges[0].close("test")
        later.answer(0)
        assert times.count == 1
