"""Records inside batches: other people's encoders as oracles, in both directions."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from aiokafka.record import default_records as aiokafka_records
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import default_records as kafka_python_records

from barnabas.core.errors import InvalidRecord
from barnabas.records.batch import HEADER_BYTES, read_batch
from barnabas.records.builder import (
    BatchBuilder,
    assemble_batch,
    build_batch,
    build_end_transaction_marker,
    rebuild_batch,
)
from barnabas.records.compression import Codec
from barnabas.records.inspection import check_lengths, inspect_records
from barnabas.records.record import EndTransactionMarker, Record, end_transaction_marker, iterate_records

TIMESTAMPS = st.integers(-1, 1 << 45)
HEADERS = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3)
RECORDS = st.lists(
    st.tuples(st.none() | st.binary(max_size=200), st.none() | st.binary(max_size=200), HEADERS, TIMESTAMPS),
    min_size=1,
    max_size=8,
)
SPECIMENS: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]] = [
    (b"key", b"value", [], 1_700_000_000_000),
    (None, b"no key", [("h", b"1"), ("h", None), ("\u00fc", b"")], 1_600_000_000_000),
    (b"", None, [("", b"empty name")], 1_700_000_000_005),
    (b"k" * 100, b"v" * 5_000, [], 1_800_000_000_000),
]
THEIRS = [
    (aiokafka_records, [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]),
    (kafka_python_records, [Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD]),
]
ORACLES = [
    pytest.param(module, codec, id=f"{module.__name__.split('.')[0]}-{codec.name}")
    for module, codecs in THEIRS
    for codec in codecs
]


def _their_batch(module: Any, codec: Codec, records: list[Any]) -> bytearray:
    builder = module.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=1,
        producer_id=123,
        producer_epoch=4,
        base_sequence=56,
        batch_size=1 << 20,
    )
    for offset, (key, value, headers, timestamp) in enumerate(records):
        assert builder.append(offset, timestamp=timestamp, key=key, value=value, headers=headers) is not None
    return bytearray(builder.build())


def _ours(data: bytearray) -> list[tuple[Any, ...]]:
    return [
        (record.key, record.value, list(record.headers), record.timestamp)
        for record in iterate_records(read_batch(data))
    ]


@pytest.mark.parametrize(("module", "codec"), ORACLES)
def test_their_batches_are_read(module: Any, codec: Codec) -> None:
    data = _their_batch(module, codec, SPECIMENS)
    batch = read_batch(data)
    batch.check_crc()
    assert _ours(data) == SPECIMENS
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (123, 4, 56)
    assert batch.is_transactional
    assert batch.codec == codec


@pytest.mark.parametrize(("module", "codec"), ORACLES)
def test_our_batches_are_read_by_them(module: Any, codec: Codec) -> None:
    data = build_batch(
        SPECIMENS, base_offset=10, codec=codec, producer_id=7, producer_epoch=1, base_sequence=2
    )
    theirs = module.DefaultRecordBatch(bytes(data))
    assert theirs.validate_crc()
    assert [(r.key, r.value, list(r.headers), r.timestamp) for r in theirs] == SPECIMENS
    theirs = module.DefaultRecordBatch(bytes(data))
    assert [record.offset for record in theirs] == [10, 11, 12, 13]
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (7, 1, 2)


@given(RECORDS)
def test_uncompressed_batches_are_byte_for_byte_what_kafka_python_writes(records: list[Any]) -> None:
    ours = build_batch(
        records, producer_id=123, producer_epoch=4, base_sequence=56, is_transactional=True, leader_epoch=0
    )
    theirs = _their_batch(kafka_python_records, Codec.NONE, records)
    theirs[12:16] = ours[12:16]  # they leave another leader epoch for the broker to overwrite
    assert ours == theirs


@given(RECORDS, st.sampled_from(Codec))
def test_what_is_built_reads_back(records: list[Any], codec: Codec) -> None:
    assert _ours(build_batch(records, codec=codec)) == records


@given(RECORDS)
def test_the_walks_agree_with_the_decoder(records: list[Any]) -> None:
    batch = read_batch(build_batch(records))
    check_lengths(batch.payload(), batch.record_count)
    summary = inspect_records(batch.payload(), batch.record_count)
    timestamps = [record.timestamp for record in iterate_records(batch)]
    assert batch.base_timestamp + summary.min_timestamp_delta == min(timestamps)
    assert batch.base_timestamp + summary.max_timestamp_delta == max(timestamps)
    assert summary.has_consecutive_offsets
    assert summary.without_key == tuple(i for i, record in enumerate(records) if record[0] is None)


def test_a_log_append_time_batch_gives_every_record_that_time() -> None:
    batch = read_batch(build_batch(SPECIMENS, log_append_time=5))
    assert batch.is_log_append_time
    assert {record.timestamp for record in iterate_records(batch)} == {5}


def test_header_keys_that_are_not_utf8_survive_a_rewrite() -> None:
    data = build_batch([(b"k", b"v", [("\udcff", b"x")], 1)])
    batch = read_batch(data)
    assert rebuild_batch(batch, iterate_records(batch)) == data


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_end_of_transaction_marker_reads_back_and_kafka_python_agrees(is_commit: bool) -> None:
    marker = EndTransactionMarker(is_commit, coordinator_epoch=12)
    data = build_end_transaction_marker(marker, producer_id=5, producer_epoch=3, timestamp=77)
    batch = read_batch(data)
    assert batch.is_control
    assert batch.is_transactional
    (record,) = iterate_records(batch)
    assert end_transaction_marker(record) == marker
    (theirs,) = kafka_python_records.DefaultRecordBatch(bytes(data))
    assert (theirs.commit, theirs.abort) == (is_commit, not is_commit)


def test_control_records_of_other_kinds_are_no_markers() -> None:
    assert end_transaction_marker(Record(0, 0, b"\x00\x00\x00\x02", b"")) is None
    for key, value in [
        (None, b""),
        (b"\x00", b""),
        (b"\x00\x00\x00\x01", b"\x00"),
        (b"\xff\xff\x00\x01", b"\x00" * 6),
    ]:
        with pytest.raises(InvalidRecord):
            end_transaction_marker(Record(0, 0, key, value))


def test_a_rebuilt_batch_keeps_its_range_its_sequence_and_the_offsets_of_what_is_left() -> None:
    data = build_batch(
        SPECIMENS,
        base_offset=100,
        leader_epoch=3,
        codec=Codec.ZSTD,
        producer_id=7,
        producer_epoch=1,
        base_sequence=20,
    )
    batch = read_batch(data)
    kept = [record for record in iterate_records(batch) if record.offset in (101, 102)]
    rebuilt = read_batch(rebuild_batch(batch, kept))
    rebuilt.check_crc()
    assert list(iterate_records(rebuilt)) == kept
    assert (rebuilt.base_offset, rebuilt.last_offset, rebuilt.last_sequence) == (100, 103, 23)
    assert (rebuilt.record_count, rebuilt.leader_epoch, rebuilt.codec) == (2, 3, Codec.ZSTD)


def test_an_emptied_batch_keeps_its_header() -> None:
    batch = read_batch(build_batch(SPECIMENS, base_offset=100, codec=Codec.GZIP))
    empty = read_batch(rebuild_batch(batch, []))
    assert (empty.size_bytes, empty.record_count, empty.last_offset) == (HEADER_BYTES, 0, 103)
    assert empty.max_timestamp == batch.max_timestamp


def test_a_delete_horizon_stands_in_for_the_base_timestamp_and_stays() -> None:
    batch = read_batch(build_batch(SPECIMENS, base_offset=100))
    marked = read_batch(rebuild_batch(batch, iterate_records(batch), delete_horizon_ms=42))
    assert marked.has_delete_horizon
    assert marked.base_timestamp == 42
    assert list(iterate_records(marked)) == list(iterate_records(batch))
    again = read_batch(rebuild_batch(marked, iterate_records(marked)))
    assert (again.has_delete_horizon, again.base_timestamp) == (True, 42)


def test_timestamps_overflow_as_they_do_in_java() -> None:
    extremes: list[tuple[bytes, bytes, list[tuple[str, bytes]], int]] = [
        (b"a", b"", [], (1 << 63) - 1),
        (b"b", b"", [], -(1 << 63)),
        (b"c", b"", [], 0),
    ]
    assert _ours(build_batch(extremes)) == extremes


@pytest.mark.parametrize("offset", [0, 4, 5, 5 + (1 << 31)])
def test_offsets_that_do_not_grow_or_leave_the_range_of_a_batch_are_refused(offset: int) -> None:
    builder = BatchBuilder(base_offset=5)
    builder.append(b"k", b"v", (), 0, 5)
    with pytest.raises(InvalidRecord, match="Offsets"):
        builder.append(b"k", b"v", (), 0, offset)


def _batch_of(payload: bytes, count: int = 1) -> bytearray:
    return assemble_batch(
        payload,
        base_offset=0,
        leader_epoch=-1,
        attributes=0,
        last_offset_delta=count - 1,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )


MALFORMED = {
    "nothing": b"",
    "length past the end": bytes([40, 0, 0, 0, 1, 1, 0]),
    "negative length": bytes([11, 0, 0, 0, 1, 1, 0]),
    "bytes left over": bytes([12, 0, 0, 0, 1, 1, 0, 9]),
    "too short for its fields": bytes([10, 0, 0, 0, 1, 1, 0]),
    "longer than its fields": bytes([14, 0, 0, 0, 1, 1, 0, 0]),
    "key past the end": bytes([12, 0, 0, 0, 80, 1, 0]),
    "value past the end": bytes([12, 0, 0, 0, 1, 80, 0]),
    "negative headers": bytes([12, 0, 0, 0, 1, 1, 1]),
    "too many headers": bytes([12, 0, 0, 0, 1, 1, 80]),
    "header without key": bytes([16, 0, 0, 0, 1, 1, 2, 1, 1]),
    "endless varint": bytes([22, 0, *[0xFF] * 12]),
}


@pytest.mark.parametrize("payload", MALFORMED.values(), ids=MALFORMED)
def test_malformed_records_are_refused_by_decoder_and_walk(payload: bytes) -> None:
    with pytest.raises(InvalidRecord):
        list(iterate_records(read_batch(_batch_of(payload))))
    with pytest.raises(InvalidRecord):
        inspect_records(payload, 1)


@pytest.mark.parametrize(
    "name",
    ["nothing", "length past the end", "negative length", "bytes left over", "too short for its fields"],
)
def test_lengths_that_do_not_fill_the_batch_are_refused_by_the_cheap_walk(name: str) -> None:
    with pytest.raises(InvalidRecord):
        check_lengths(MALFORMED[name], 1)


def test_the_cheap_walk_counts_and_reads_long_lengths() -> None:
    payload = read_batch(build_batch([(b"k", b"v" * size, (), 0) for size in (1, 100, 20_000)])).payload()
    check_lengths(payload, 3)
    for count in (2, 4):
        with pytest.raises(InvalidRecord, match="holds 3"):
            check_lengths(payload, count)
    for too_short in (b"\x80", bytes(1), bytes([10, 0, 0, 0, 1, 1])):
        with pytest.raises(InvalidRecord):
            check_lengths(too_short, 1)


@given(st.binary(max_size=120), st.integers(-3, 5))
def test_random_payloads_raise_only_invalid_record(payload: bytes, count: int) -> None:
    for look in (
        lambda: list(iterate_records(read_batch(_batch_of(payload, count)))),
        lambda: inspect_records(payload, count),
        lambda: check_lengths(payload, count),
    ):
        with contextlib.suppress(InvalidRecord):
            look()


@given(RECORDS, st.data())
def test_mutated_payloads_that_the_full_walk_accepts_can_be_decoded(
    records: list[Any], data: st.DataObject
) -> None:
    batch = read_batch(build_batch(records))
    payload = bytearray(batch.payload())
    payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        inspect_records(payload, batch.record_count)
    except InvalidRecord:
        with pytest.raises(InvalidRecord):
            list(iterate_records(read_batch(_batch_of(bytes(payload), batch.record_count))))
    else:
        list(iterate_records(read_batch(_batch_of(bytes(payload), batch.record_count))))
