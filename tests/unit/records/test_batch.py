"""The batch view: header fields, iteration, and the patches in place."""

from __future__ import annotations

import pytest

from barnabas.core.errors import CorruptMessage, InvalidRecord
from barnabas.records.batch import (
    HEADER_BYTES,
    MAGIC_AT,
    NO_SEQUENCE,
    RecordBatch,
    iterate_batches,
    iterate_whole_batches,
    read_batch,
    read_header,
    set_max_timestamp,
)
from barnabas.records.builder import build_batch
from barnabas.records.compression import Codec
from barnabas.records.record import iterate_records

RECORDS = [(b"k", b"v", (), 1_000), (None, b"w", (), 3_000), (b"l", None, (), 2_000)]


def test_every_header_field_is_read() -> None:
    data = build_batch(
        RECORDS,
        base_offset=77,
        leader_epoch=5,
        codec=Codec.GZIP,
        producer_id=9,
        producer_epoch=2,
        base_sequence=40,
        is_transactional=True,
    )
    batch = read_batch(data)
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (77, 79, 80)
    assert (batch.size_bytes, batch.leader_epoch, batch.magic) == (len(data), 5, 2)
    assert (batch.base_timestamp, batch.max_timestamp) == (1_000, 3_000)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (
        9,
        2,
        40,
        42,
    )
    assert (batch.record_count, batch.last_offset_delta, batch.codec) == (3, 2, Codec.GZIP)
    assert batch.is_transactional
    assert batch.has_producer_id
    assert not batch.is_control
    assert not batch.is_log_append_time
    assert not batch.has_delete_horizon
    assert batch.is_valid_crc
    assert bytes(batch.payload()) == data[HEADER_BYTES:]
    assert bytes(batch.view()) == data
    assert "77-79" in repr(batch)


def test_sequences_wrap_at_the_end_of_an_int32() -> None:
    batch = read_batch(build_batch(RECORDS, producer_id=1, producer_epoch=0, base_sequence=(1 << 31) - 2))
    assert batch.last_sequence == 0
    assert read_batch(build_batch(RECORDS)).last_sequence == NO_SEQUENCE


def test_an_unknown_codec_is_an_invalid_record() -> None:
    batch = RecordBatch(build_batch(RECORDS))
    batch.attributes |= 7
    with pytest.raises(InvalidRecord):
        _ = batch.codec


def test_log_append_time_replaces_the_timestamps_and_the_crc() -> None:
    data = bytearray(b"front") + build_batch(RECORDS, codec=Codec.LZ4)
    set_max_timestamp(data, 5, 9_999, is_log_append_time=True)
    batch = read_batch(data, 5)
    batch.check_crc()
    assert batch.is_log_append_time
    assert batch.codec == Codec.LZ4
    assert {record.timestamp for record in iterate_records(batch)} == {9_999}
    set_max_timestamp(data, 5, 3_000, is_log_append_time=False)
    assert [record.timestamp for record in iterate_records(read_batch(data, 5))] == [1_000, 3_000, 2_000]


def test_a_changed_byte_is_found_by_the_crc() -> None:
    data = build_batch(RECORDS)
    data[-1] ^= 1
    assert not read_batch(data).is_valid_crc
    with pytest.raises(CorruptMessage):
        read_batch(data).check_crc()


def test_batches_are_read_in_a_row() -> None:
    data = build_batch(RECORDS) + build_batch(RECORDS, base_offset=3) + build_batch(RECORDS, base_offset=6)
    assert [batch.base_offset for batch in iterate_batches(memoryview(data))] == [0, 3, 6]
    assert [batch.base_offset for batch in iterate_whole_batches(data)] == [0, 3, 6]
    assert list(iterate_batches(b"")) == []


@pytest.mark.parametrize("cut", [1, 40, 70])
def test_a_torn_tail_is_an_error_to_the_strict_and_an_end_to_the_lenient(cut: int) -> None:
    data = build_batch(RECORDS) + build_batch(RECORDS, base_offset=3)
    torn = data[:-cut]
    with pytest.raises(CorruptMessage):
        list(iterate_batches(torn))
    assert [batch.base_offset for batch in iterate_whole_batches(torn)] == [0]


def test_a_header_can_be_read_without_its_records() -> None:
    data = build_batch(RECORDS)
    assert read_header(data[:HEADER_BYTES]).size_bytes == len(data)
    with pytest.raises(CorruptMessage):
        read_batch(data[:HEADER_BYTES])
    with pytest.raises(CorruptMessage):
        read_header(data[: HEADER_BYTES - 1])


@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 48])
def test_a_length_smaller_than_the_header_is_corrupt_and_ends_every_iteration(length: int) -> None:
    data = build_batch(RECORDS)
    data[8:12] = length.to_bytes(4, "big", signed=True)
    for iterate in (iterate_batches, iterate_whole_batches):
        with pytest.raises(CorruptMessage):
            list(iterate(data))


def test_another_magic_is_corrupt() -> None:
    data = build_batch(RECORDS)
    data[MAGIC_AT] = 3
    with pytest.raises(CorruptMessage):
        read_batch(data)
