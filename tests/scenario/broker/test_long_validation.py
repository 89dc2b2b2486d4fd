"""Records that are looked at one by one do not hold the loop, however much they inflate to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.core.errors import InvalidRecord, MessageTooLarge
from barnabas.core.limits import INSPECTED_BYTES_MAX
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.records import inspection, validation
from barnabas.records.batch import iterate_batches
from barnabas.records.builder import build_batch
from barnabas.records.compression import Codec
from tests.support.in_process import BY_NAME_PRODUCE, InProcessBroker, in_process_broker
from tests.support.slices import convert_down
from tests.support.wire import content


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[InProcessBroker]:
    async with in_process_broker(tmp_path) as started:
        assert await started.create_topic("compacted", cleanup_policy="compact") == 0
        assert await started.create_topic("gzip", compression_type="gzip") == 0
        yield started


def request_of(topic: str, *rows: tuple[bytes | None, bytes], codec: Codec) -> ProduceRequest:
    records = build_batch([(key, value, (), 1_700_000_000_000) for key, value in rows], codec=codec)
    data = PartitionProduceData(index=0, records=memoryview(records))
    return ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


async def code_of(broker: InProcessBroker, request: ProduceRequest) -> int:
    answer = await broker.ask(request, ProduceResponse, BY_NAME_PRODUCE)
    return answer.responses[0].partition_responses[0].error_code


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each look at all records was on the loop's thread."""
    seen: list[bool] = []
    inspect = inspection.inspect_records

    def noted(*arguments: Any) -> Any:
        seen.append(threading.current_thread() is threading.main_thread())
        return inspect(*arguments)

    monkeypatch.setattr(validation, "inspect_records", noted)
    return seen


@pytest.mark.parametrize("topic", ["compacted", "gzip"])
async def test_a_batch_that_inflates_is_looked_at_by_a_thread(
    broker: InProcessBroker, threads: list[bool], topic: str
) -> None:
    request = request_of(topic, (b"k", bytes(2 << 20)), codec=Codec.ZSTD)
    assert await code_of(broker, request) == 0
    assert threads == [False]
    (batch,) = iterate_batches(content((await broker.fetch(topic, 0)).records))
    assert batch.codec == (Codec.GZIP if topic == "gzip" else Codec.ZSTD)
    assert batch.is_valid_crc


@pytest.mark.parametrize("is_old_format", [True, False])
async def test_what_an_old_producer_sends_is_looked_at_by_a_thread(
    broker: InProcessBroker, threads: list[bool], is_old_format: bool
) -> None:
    """Produce v2: messages become a batch in a thread, and the batch is validated by another."""
    request = request_of("compacted", (b"k", bytes(2 << 20)), codec=Codec.GZIP)
    data = request.topic_data[0].partition_data[0]
    if is_old_format:
        assert isinstance(data.records, memoryview)
        data.records = memoryview(bytearray(convert_down(data.records, 1)))
    answer = await broker.ask(request, ProduceResponse, 2)
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert threads == [False]
    (batch,) = iterate_batches(content((await broker.fetch("compacted", 0)).records))
    assert batch.codec == Codec.GZIP


async def test_a_few_records_are_looked_at_where_they_are(
    broker: InProcessBroker, threads: list[bool]
) -> None:
    assert await code_of(broker, request_of("compacted", (b"k", b"v"), codec=Codec.NONE)) == 0
    assert await code_of(broker, request_of("compacted", (b"k", b"v"), codec=Codec.GZIP)) == 0
    assert threads == [True, True]


@pytest.mark.parametrize("topic", ["compacted", "gzip"])
async def test_a_bomb_is_refused(broker: InProcessBroker, topic: str) -> None:
    request = request_of(topic, (b"k", bytes(INSPECTED_BYTES_MAX + 1)), codec=Codec.ZSTD)
    assert await code_of(broker, request) == MessageTooLarge.code


async def test_what_a_thread_finds_wrong_is_answered(broker: InProcessBroker) -> None:
    request = request_of("compacted", (None, bytes(2 << 20)), codec=Codec.ZSTD)
    assert await code_of(broker, request) == InvalidRecord.code


async def test_records_keep_the_order_of_their_connection(broker: InProcessBroker) -> None:
    requests = [
        request_of("compacted", (b"%d" % each, bytes(size)), codec=Codec.ZSTD if size > 9 else Codec.NONE)
        for each, size in enumerate([4 << 20, 1, 2 << 20, 2])
    ]
    asked = [broker.ask(each, ProduceResponse, BY_NAME_PRODUCE) for each in requests]
    answers = await asyncio.gather(*asked)
    offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers]
    assert offsets == [0, 1, 2, 3]
