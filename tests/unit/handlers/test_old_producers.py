"""Many old messages are converted away from the loop, and each partition keeps its own error."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.core.errors import CorruptMessage, MessageTooLarge
from barnabas.handlers.produce import handle_produce
from barnabas.handlers.shared import up_conversion
from barnabas.handlers.shared.up_conversion import convert_in_a_thread, converted, is_long_conversion
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records.batch import RecordBatch
from barnabas.records.legacy import convert_up
from tests.support.manual_time import ManualClock
from tests.support.wire import message_set_entry


def partition(records: bytes) -> PartitionProduceData:
    return PartitionProduceData(index=0, records=memoryview(bytearray(records)))


def request_of(*partitions: PartitionProduceData) -> ProduceRequest:
    return ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=list(partitions))])


@pytest.fixture
def context() -> Any:
    configs = SimpleNamespace(topic_config=lambda _: SimpleNamespace(max_message_bytes=100_000))
    return SimpleNamespace(
        broker=SimpleNamespace(configs=configs, clock=ManualClock()),
        exchange=SimpleNamespace(keep_piece=lambda piece: piece),
        keeps_records=False,
        converted=None,
        spent_ms=0.0,
    )


ONE = message_set_entry(b"v")


def test_only_many_or_compressed_messages_leave_the_loop() -> None:
    wrapper = bytearray(ONE)
    wrapper[17] = 1
    assert not is_long_conversion(request_of(partition(ONE * 10)))
    assert is_long_conversion(request_of(partition(ONE), partition(ONE * 1_000)))
    assert is_long_conversion(request_of(partition(bytes(wrapper))))
    assert not is_long_conversion(request_of(PartitionProduceData(index=0, records=None), partition(b"x")))


async def test_each_partition_has_its_own_outcome(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set()

    def watched(records: memoryview, *, limit_bytes: int) -> bytearray:
        threads.add(threading.current_thread())
        context.broker.clock.advance(ms=7)
        return convert_up(records, limit_bytes=limit_bytes)

    monkeypatch.setattr(up_conversion, "convert_up", watched)
    good, corrupt, huge = partition(ONE * 1_000), partition(ONE * 999 + ONE[:-1]), partition(ONE * 20_000)
    await convert_in_a_thread(request_of(good, corrupt, huge), context)
    assert RecordBatch(converted(good, context)).record_count == 1_000
    with pytest.raises(CorruptMessage):
        converted(corrupt, context)
    with pytest.raises(MessageTooLarge):
        converted(huge, context)
    assert threading.current_thread() not in threads
    assert context.spent_ms == 2 * 7, "of one that is too large nothing is converted"


def test_the_records_are_kept_before_the_turn_ends(context: Any) -> None:
    """After it the network receives something else to where they are."""
    received = bytearray(ONE * 1_000)
    data = PartitionProduceData(index=0, records=memoryview(received))
    work: list[Any] = []
    context.api_version = 2
    context.broker.quotas = SimpleNamespace(is_limiting=False)
    context.exchange.keep_piece = lambda piece: memoryview(bytes(piece))
    context.answer_with = work.append
    handle_produce(request_of(data), context)
    received[:] = bytes(len(received))
    assert data.records == ONE * 1_000
    work[0].close()
