"""Formats 0 and 1 against kafka-python and aiokafka, and conversion in both directions."""

from __future__ import annotations

import contextlib
from typing import Any

import lz4.frame
import pytest
from aiokafka.record import legacy_records as aiokafka_records
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import legacy_records as kafka_python_records

from barnabas.core.errors import CorruptMessage, InvalidRecord, KafkaError, UnsupportedCompressionType
from barnabas.records.batch import read_batch
from barnabas.records.builder import build_batch, build_end_transaction_marker
from barnabas.records.compression import Codec, compress
from barnabas.records.legacy import (
    LegacyMessage,
    convert_up,
    iterate_any,
    iterate_message_records,
    iterate_messages,
    magic_of,
)
from barnabas.records.record import EndTransactionMarker, Record, iterate_records
from tests.support.slices import convert_down

OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
# kafka-python wants a library for snappy, and either wants one for the LZ4 of magic 0.
ORACLES = [
    pytest.param(module, magic, codec, id=f"{module.__name__.split('.')[0]}-{magic}-{codec.name}")
    for module in (aiokafka_records, kafka_python_records)
    for magic in (0, 1)
    for codec in OLD_CODECS
    if not (codec == Codec.LZ4 and magic == 0)
    and not (codec == Codec.SNAPPY and module is kafka_python_records)
]
PAIRS: list[tuple[bytes | None, bytes | None]] = [(b"k", b"v"), (None, b"w" * 300), (b"t", None), (b"", b"")]


def _theirs(module: Any, magic: int, codec: Codec) -> bytes:
    builder = module.LegacyRecordBatchBuilder(magic=magic, compression_type=int(codec), batch_size=1 << 20)
    for offset, (key, value) in enumerate(PAIRS):
        builder.append(offset, timestamp=1_000 - offset, key=key, value=value)
    data = bytearray(builder.build())
    if codec and magic:  # a producer leaves it to the broker to give the wrapper its offset
        data[:8] = (len(PAIRS) - 1).to_bytes(8, "big")
    return bytes(data)


def _records(magic: int, base_offset: int = 0) -> list[Record]:
    return [
        Record(base_offset + index, 1_000 - index if magic else -1, key, value)
        for index, (key, value) in enumerate(PAIRS)
    ]


def _v2(codec: Codec = Codec.NONE, base_offset: int = 0) -> bytearray:
    records = [(key, value, (), 1_000 - index) for index, (key, value) in enumerate(PAIRS)]
    return build_batch(records, base_offset=base_offset, codec=codec)


def _read(data: bytes | bytearray) -> list[Record]:
    records: list[Record] = []
    for message in iterate_messages(data):
        message.check_crc()
        records.extend(iterate_message_records(message))
    return records


@pytest.mark.parametrize(("module", "magic", "codec"), ORACLES)
def test_their_messages_are_read(module: Any, magic: int, codec: Codec) -> None:
    assert _read(_theirs(module, magic, codec)) == _records(magic)


@pytest.mark.parametrize(("module", "magic", "codec"), ORACLES)
def test_they_read_what_is_converted_down(module: Any, magic: int, codec: Codec) -> None:
    data = convert_down(_v2(codec, base_offset=40), magic)
    theirs = []
    for message in iterate_messages(data):
        size = message.size_bytes
        theirs.extend(
            module.LegacyRecordBatch(bytes(data[message.position : message.position + size]), magic)
        )
    read = [(r.offset, r.timestamp if magic else -1, r.key, r.value) for r in theirs]
    assert read == [record[:4] for record in _records(magic, 40)]
    assert all(message.is_valid_crc for message in iterate_messages(data))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_down_and_up_again_is_the_same_but_for_lost_timestamps(codec: Codec, magic: int) -> None:
    down = convert_down(_v2(codec, base_offset=40), magic)
    kept = read_batch(convert_up(down, keep_offsets=True))
    kept.check_crc()
    assert list(iterate_records(kept)) == _records(magic, 40)
    assert kept.codec == codec
    renumbered = read_batch(convert_up(down))
    assert [record.offset for record in iterate_records(renumbered)] == [0, 1, 2, 3]


def test_lz4_of_magic_0_has_kafkas_wrong_checksum_and_is_read() -> None:
    data = convert_down(_v2(Codec.LZ4), 0)
    (wrapper,) = iterate_messages(data)
    assert wrapper.value is not None
    with pytest.raises(RuntimeError):
        lz4.frame.decompress(bytes(wrapper.value))
    assert _read(data) == _records(0)


def test_the_lz4_checksum_is_the_frames_own() -> None:
    from barnabas.records.legacy import _with_lz4_checksum

    for frame in (compress(Codec.LZ4, b"barnabas" * 9), lz4.frame.compress(b"barnabas" * 9, store_size=True)):
        assert _with_lz4_checksum(frame, is_over_magic=False) == frame


def test_headers_and_control_batches_are_lost_on_the_way_down() -> None:
    marker = build_end_transaction_marker(
        EndTransactionMarker(True, 1), producer_id=1, producer_epoch=1, timestamp=1, base_offset=1
    )
    data = (
        build_batch([(b"k", b"v", [("h", b"x")], 5)])
        + marker
        + build_batch([(b"l", b"w", (), 6)], base_offset=2)
    )
    assert _read(convert_down(data, 1)) == [Record(0, 5, b"k", b"v"), Record(2, 6, b"l", b"w")]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_records_before_the_first_offset_are_left_out(codec: Codec, magic: int) -> None:
    down = convert_down(_v2(codec), magic, first_offset=2)
    assert [record.offset for record in _read(down)] == [2, 3]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_conversion_ends_when_it_is_long_enough(codec: Codec) -> None:
    """A consumer continues after the last message, in the middle of the batch."""
    seen: list[int] = []
    while len(seen) < 4:
        down = convert_down(_v2(codec), 1, first_offset=len(seen), bytes_max=1)
        seen += [record.offset for record in _read(down)]
    assert seen == [0, 1, 2, 3]


def test_zstd_cannot_be_converted_down() -> None:
    with pytest.raises(UnsupportedCompressionType):
        convert_down(_v2(Codec.ZSTD), 1)


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_log_append_time_is_kept_in_magic_1(codec: Codec) -> None:
    data = build_batch([(b"k", b"v", (), 5), (b"l", b"w", (), 6)], log_append_time=99, codec=codec)
    down = convert_down(data, 1)
    assert all(message.is_log_append_time for message in iterate_messages(down))
    assert [record.timestamp for record in _read(down)] == [99, 99]


def test_a_log_of_many_ages_is_read_in_a_row_and_converted_down() -> None:
    data = convert_down(_v2(), 0) + convert_down(_v2(Codec.GZIP, 4), 1) + _v2(base_offset=8)
    assert [view.last_offset for view in iterate_any(data)] == [0, 1, 2, 3, 7, 11]
    assert [view.next_offset for view in iterate_any(data)][-2:] == [8, 12]
    assert [magic_of(data, view.position) for view in iterate_any(data)] == [0, 0, 0, 0, 1, 2]
    for magic in (0, 1):
        down = convert_down(data, magic)
        assert [record.offset for record in _read(down)] == list(range(12))
        assert max(message.magic for message in iterate_messages(down)) == magic


def test_a_wrong_checksum_is_corrupt_inside_and_outside() -> None:
    data = convert_down(_v2(), 1)
    data[-1] ^= 1
    with pytest.raises(CorruptMessage):
        convert_up(data)


def test_messages_that_are_cut_are_corrupt() -> None:
    data = convert_down(_v2(), 1)
    for size in range(1, LegacyMessage(data).size_bytes):
        with pytest.raises(CorruptMessage):
            list(iterate_messages(data[:size]))
        with pytest.raises(CorruptMessage):
            list(iterate_any(data[:size]))
    with pytest.raises(InvalidRecord):
        convert_up(b"")


def test_offsets_that_do_not_grow_are_invalid_where_they_are_kept() -> None:
    data = convert_down(_v2(), 1) * 2
    with pytest.raises(InvalidRecord, match="grow"):
        convert_up(data, keep_offsets=True)
    assert read_batch(convert_up(data)).record_count == 8


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_bomb_in_a_wrapper_is_stopped_even_in_pieces(codec: Codec) -> None:
    piece = convert_down(build_batch([(b"k", bytes(1 << 20), (), 1)], codec=codec), 1)
    assert read_batch(convert_up(piece * 3, limit_bytes=4 << 20)).record_count == 3
    with pytest.raises(InvalidRecord, match="inflate"):
        convert_up(piece * 5, limit_bytes=4 << 20)


def test_wrappers_do_not_nest_nor_mix_nor_come_empty() -> None:
    from barnabas.records.legacy import _message

    inner = bytes(convert_down(_v2(Codec.GZIP), 1))
    for magic, value in [(1, inner), (0, bytes(convert_down(_v2(), 1))), (1, b"")]:
        wrapper = _message(magic, Codec.GZIP, Record(0, 0, None, compress(Codec.GZIP, value)), 0)
        with pytest.raises(InvalidRecord):
            convert_up(wrapper)
    for record, codec in [(Record(0, 0, None, None), Codec.GZIP), (Record(0, 0, None, b""), Codec.ZSTD)]:
        with pytest.raises(InvalidRecord):
            convert_up(_message(1, codec, record, 0))


@given(st.binary(max_size=100))
def test_random_bytes_raise_only_errors_with_a_code(data: bytes) -> None:
    for look in (convert_up, lambda found: convert_down(found, 1)):
        with contextlib.suppress(KafkaError):
            look(data)


@given(st.sampled_from([0, 1]), st.sampled_from(OLD_CODECS), st.integers(0, 10_000), st.integers(0, 255))
def test_mutated_messages_raise_only_errors_with_a_code(magic: int, codec: Codec, at: int, byte: int) -> None:
    data = convert_down(_v2(codec), magic)
    data[at % len(data)] = byte
    with contextlib.suppress(KafkaError):
        for message in iterate_messages(data):
            list(iterate_message_records(message))
    with contextlib.suppress(KafkaError):
        convert_up(data, keep_offsets=True)


@given(
    st.sampled_from([0, 1]), st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
)
def test_any_offset_and_timestamp_is_converted_or_refused(magic: int, offset: int, timestamp: int) -> None:
    from barnabas.records.legacy import _message

    inner = _message(magic, 0, Record(0, 7, b"k", b"v"), offset) + _message(
        magic, 0, Record(0, timestamp, b"k", b"v"), 1
    )
    wrapper = _message(magic, Codec.GZIP, Record(0, 0, None, compress(Codec.GZIP, inner)), (1 << 63) - 1)
    for data in (inner, wrapper):
        with contextlib.suppress(KafkaError):
            convert_up(data, keep_offsets=True)
        assert read_batch(convert_up(data)).record_count == 2
