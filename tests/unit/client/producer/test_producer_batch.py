"""One batch of a producer: bytes, outcomes, splits."""

from __future__ import annotations

import pytest

from barnabas.client.producer.core.batch import OTHER_RECORD_INVALID, ProducerBatch
from barnabas.core.errors import InvalidRecord, KafkaError, MessageTooLarge
from barnabas.core.ids import TopicPartition
from barnabas.records.batch import read_batch
from barnabas.records.compression import Codec
from barnabas.records.record import iterate_records

AT = TopicPartition("orders", 3)
VALUES = [b"a" * 40, b"b" * 40, b"c" * 40, b"d" * 40]


def filled(*values: bytes) -> ProducerBatch:
    batch = ProducerBatch(AT, 1_000, 5.0)
    for number, value in enumerate(values):
        batch.appender.append(b"k", value, (("h", b"1"), ("h", None)), 1_000 + number)
    return batch


@pytest.mark.parametrize("codec", list(Codec))
def test_a_sealed_batch_has_its_records_in_every_codec(codec: Codec) -> None:
    batch = filled(*VALUES)
    batch.is_transactional = True
    batch.set_producer(7, 2, 40)
    batch.seal(codec, None)
    assert batch.data is not None
    found = read_batch(batch.data)
    assert found.is_valid_crc
    assert (found.codec, found.producer_id, found.producer_epoch, found.base_sequence) == (codec, 7, 2, 40)
    assert found.is_transactional
    assert (found.record_count, found.last_offset_delta, found.max_timestamp) == (4, 3, 1_003)
    records = list(iterate_records(found))
    assert [record.value for record in records] == VALUES
    assert [record.timestamp for record in records] == [1_000, 1_001, 1_002, 1_003]
    assert records[0].headers == (("h", b"1"), ("h", None))
    assert batch.last_sequence == 43


def test_another_number_changes_the_header_and_not_the_attempt_in_flight() -> None:
    batch = filled(b"v")
    batch.set_producer(7, 0, 5)
    batch.seal(Codec.NONE, None)
    in_flight = batch.data
    assert in_flight is not None
    before = bytes(in_flight)
    batch.set_producer(7, 1, 0)
    assert bytes(in_flight) == before
    assert batch.data is not None
    found = read_batch(batch.data)
    assert found.is_valid_crc
    assert (found.producer_epoch, found.base_sequence) == (1, 0)


def test_outcomes_are_offsets_by_position() -> None:
    batch = filled(*VALUES)
    woken: list[bool] = []
    batch.waiters.append(lambda: woken.append(batch.is_done))
    batch.complete(100, 77)
    assert woken == [True]
    assert [batch.outcome(index) for index in range(4)] == [(100, 77), (101, 77), (102, 77), (103, 77)]


def test_without_an_offset_no_record_has_one() -> None:
    batch = filled(*VALUES)
    batch.complete(-1, -1)
    assert batch.outcome(3) == (-1, -1)


def test_records_at_fault_have_their_own_reason() -> None:
    batch = filled(*VALUES)
    batch.fail(InvalidRecord("the batch"), [(1, "no key")])
    outcomes = [batch.outcome(index) for index in range(3)]
    assert all(isinstance(each, InvalidRecord) for each in outcomes)
    assert [str(each) for each in outcomes] == [OTHER_RECORD_INVALID, "no key", OTHER_RECORD_INVALID]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_split_batch_is_done_with_its_last_part(codec: Codec) -> None:
    batch = filled(*VALUES)
    batch.seal(codec, None)
    parts = batch.split(61 + batch.size_inflated_bytes // 2)
    assert [part.record_count for part in parts] == [2, 2]
    assert all(part.is_closed and part.created_ms == batch.created_ms for part in parts)
    woken: list[int] = []
    batch.waiters.append(lambda: woken.append(1))
    parts[1].complete(50, -1)
    assert not batch.is_done
    parts[0].fail(MessageTooLarge("still"))
    assert batch.is_done
    assert woken == [1]
    assert batch.outcome(2) == (50, -1)
    assert batch.outcome(3) == (51, -1)
    assert isinstance(batch.outcome(1), KafkaError)


@pytest.mark.parametrize("size", [0, 1, 200])
def test_a_split_always_makes_progress(size: int) -> None:
    batch = filled(b"x" * size, b"x" * size)
    batch.seal(Codec.NONE, None)
    parts = batch.split(61 + batch.size_inflated_bytes // 2)
    assert [part.record_count for part in parts] == [1, 1]


@pytest.mark.parametrize("counts", [(1, 2), (2, 1), (5, 1)])
def test_headers_count_in_a_split(counts: tuple[int, int]) -> None:
    """Parts as large as the batch would be split for ever."""
    small, large = counts
    batch = filled(*[b"v"] * small)
    for _ in range(large):
        batch.appender.append(None, b"v", (("h", b"x" * 5_000),), 1_000)
    batch.seal(Codec.NONE, None)
    parts = batch.split(61 + batch.size_inflated_bytes // 2)
    assert len(parts) > 1
    assert sum(part.record_count for part in parts) == small + large
