"""Fetch responses over a socket: their time, their size and their end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from barnabas.client.aio.channel import Channel
from barnabas.core.errors import OffsetOutOfRange
from barnabas.core.limits import REQUESTS_IN_FLIGHT_MAX
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.records.batch import iterate_batches
from tests.support.in_process import BY_NAME_FETCH, InProcessBroker, fetch_request, in_process_broker
from tests.support.wire import content
from tests.unit.storage import support as storage

READ_COMMITTED = 1
PATIENCE_MS = 600_000
"""Longer than any test: who is answered was not answered by the clock."""


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[InProcessBroker]:
    async with in_process_broker(tmp_path) as started:
        assert await started.create_topic("topic") == 0
        yield started


@pytest.fixture
async def reader(broker: InProcessBroker) -> AsyncIterator[Channel]:
    """A second connection: on one connection answers leave in the order of the requests."""
    channel = await Channel.connect(broker.address)
    yield channel
    channel.close()


def pending_fetches(broker: InProcessBroker) -> int:
    replicas = broker.broker._replicas
    assert replicas is not None
    return replicas.delayed.fetches.pending


async def test_a_waiting_fetch_is_woken_by_the_append_that_makes_it_enough(
    broker: InProcessBroker, reader: Channel
) -> None:
    first = await broker.produce("topic", b"one")
    assert first.error_code == 0
    size_bytes = len(content((await broker.fetch("topic", 0)).records))
    request = fetch_request("topic", 0, min_bytes=2 * size_bytes, max_wait_ms=PATIENCE_MS)
    waiting = asyncio.ensure_future(reader.send(request, FetchResponse, version_max=BY_NAME_FETCH))
    while pending_fetches(broker) == 0:
        await broker.metadata("topic")
    assert not waiting.done()
    assert (await broker.produce("topic", b"two")).error_code == 0
    answer = (await waiting).responses[0].partitions[0]
    assert [each.base_offset for each in iterate_batches(content(answer.records))] == [0, 1]
    assert pending_fetches(broker) == 0


async def test_patience_ends_with_an_empty_answer(broker: InProcessBroker) -> None:
    answer = await broker.ask(fetch_request("topic", 0, max_wait_ms=30), FetchResponse, BY_NAME_FETCH)
    assert answer.throttle_time_ms == 0
    part = answer.responses[0].partitions[0]
    assert (part.error_code, part.high_watermark, content(part.records)) == (0, 0, b"")


async def test_a_deleted_topic_wakes_its_readers(broker: InProcessBroker, reader: Channel) -> None:
    request = fetch_request("topic", 0, max_wait_ms=PATIENCE_MS)
    waiting = asyncio.ensure_future(reader.send(request, FetchResponse, version_max=BY_NAME_FETCH))
    while pending_fetches(broker) == 0:
        await broker.metadata("topic")
    deletion = DeleteTopicsRequest(topic_names=["topic"], timeout_ms=1_000)
    await broker.ask(deletion, DeleteTopicsResponse, 5)
    assert (await waiting).responses[0].partitions[0].error_code != 0


async def test_ten_thousand_waiting_fetches_do_not_wake_an_idle_broker(broker: InProcessBroker) -> None:
    """Wake-ups of the timer are counted, not seconds of a processor."""
    replicas = broker.broker._replicas
    assert replicas is not None
    timer = replicas.delayed.fetches._timer
    driver_wake = timer.wake
    assert driver_wake is not None
    wakes: list[float] = []

    def counted(due_ms: float) -> None:
        wakes.append(due_ms)
        driver_wake(due_ms)

    timer.wake = counted
    channels = [await Channel.connect(broker.address) for _ in range(160)]
    request = fetch_request("topic", 0, max_wait_ms=PATIENCE_MS)
    waiting = [
        asyncio.ensure_future(channel.send(request, FetchResponse, version_max=BY_NAME_FETCH))
        for channel in channels
        for _ in range(REQUESTS_IN_FLIGHT_MAX - 1)
    ]
    while pending_fetches(broker) < len(waiting):
        await broker.metadata("topic")
    assert len(wakes) <= 2, "the driver sleeps until the first is due, whatever comes after it"
    assert (await broker.produce("topic")).error_code == 0
    await asyncio.gather(*waiting)
    assert pending_fetches(broker) == 0
    for channel in channels:
        channel.close()


async def test_a_fetch_from_the_middle_of_a_batch_gets_the_whole_batch(broker: InProcessBroker) -> None:
    await broker.produce("topic", b"a", b"b", b"c")
    part = await broker.fetch("topic", 2)
    (only,) = iterate_batches(content(part.records))
    assert (only.base_offset, only.last_offset) == (0, 2)


async def test_the_brokers_limit_caps_what_a_reader_asks_for(tmp_path: Path) -> None:
    """And a reader that wants more than that at once is not kept waiting for it."""
    async with in_process_broker(tmp_path, fetch_max_bytes=1024) as broker:
        assert await broker.create_topic("topic") == 0
        for _ in range(8):
            assert (await broker.produce("topic", bytes(300))).error_code == 0
        request = fetch_request("topic", 0, max_bytes=1 << 20, min_bytes=1 << 16, max_wait_ms=PATIENCE_MS)
        async with asyncio.timeout(60):
            answer = await broker.ask(request, FetchResponse, BY_NAME_FETCH)
        assert 300 < len(content(answer.responses[0].partitions[0].records)) <= 1024


async def test_the_first_batch_comes_whole_however_small_the_limit(broker: InProcessBroker) -> None:
    await broker.produce("topic", bytes(100_000))
    await broker.produce("topic", b"next")
    part = await broker.fetch("topic", 0, max_bytes=1)
    (only,) = iterate_batches(content(part.records))
    assert only.is_valid_crc
    assert only.last_offset == 0


@pytest.mark.parametrize("offset", [-1, 2, 1 << 40])
async def test_an_offset_outside_the_log_is_out_of_range(broker: InProcessBroker, offset: int) -> None:
    await broker.produce("topic", b"only")
    part = await broker.fetch("topic", offset)
    assert part.error_code == OffsetOutOfRange.code
    assert content(part.records or b"") == b""


async def test_a_committed_reader_gets_the_last_stable_offset_and_the_aborted_list(
    broker: InProcessBroker,
) -> None:
    replicas = broker.broker._replicas
    assert replicas is not None
    partition = replicas.partition("topic", 0)
    for producer_id in (1, 2, 3):
        transactional = storage.batch(
            [b"of %d" % producer_id],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        partition.append(memoryview(transactional), -1)
    for producer_id, commit in ((1, False), (2, True)):
        storage.end_transaction(
            partition.log, producer_id, commit=commit, epoch=partition.leadership.leader_epoch
        )
    partition.maybe_advance_high_watermark()

    part = await broker.fetch("topic", 0, isolation_level=READ_COMMITTED)
    assert (part.high_watermark, part.last_stable_offset) == (5, 2)
    assert [each.base_offset for each in iterate_batches(content(part.records))] == [0, 1]
    assert part.aborted_transactions is not None
    assert [(each.producer_id, each.first_offset) for each in part.aborted_transactions] == [(1, 0)]
    part = await broker.fetch("topic", 0)
    assert [each.base_offset for each in iterate_batches(content(part.records))] == [0, 1, 2, 3, 4]
    assert part.aborted_transactions is None
