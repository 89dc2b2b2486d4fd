"""Every rule that a leader applies to a producer's records."""

from __future__ import annotations

import dataclasses
import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    MessageTooLarge,
)
from barnabas.records.batch import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER,
    HEADER_BYTES,
    MAGIC_AT,
    RecordBatch,
    read_batch,
)
from barnabas.records.builder import BatchBuilder, assemble_batch, build_batch
from barnabas.records.compression import CODEC_BY_NAME, Codec, compress, compress_within, decompress
from barnabas.records.record import iterate_records
from barnabas.records.validation import (
    LENGTHS_CHECKED_RECORDS_MAX,
    ValidatedRecords,
    ValidationSettings,
    assign_offsets,
    validate_produce,
)

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
DEFAULTS = ValidationSettings()
COMPACTED = ValidationSettings(compacted=True)
RECORDS = [(b"a", b"1", (), NOW_MS - 5), (b"b", b"2", (), NOW_MS), (b"c", b"3", (), NOW_MS - 3)]


def validate(data: bytearray, settings: ValidationSettings = DEFAULTS) -> ValidatedRecords:
    return validate_produce(memoryview(data), settings=settings, now_ms=NOW_MS)


def altered(data: bytearray, **fields: int) -> bytearray:
    """The batch with other header fields and a checksum that is right for them."""
    batch = RecordBatch(data)
    for name, value in fields.items():
        setattr(batch, name, value)
    changed = bytearray(data)
    HEADER.pack_into(
        changed,
        0,
        batch.base_offset,
        batch.size_bytes - 12,
        batch.leader_epoch,
        batch.magic,
        0,
        batch.attributes,
        batch.last_offset_delta,
        batch.base_timestamp,
        batch.max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.record_count,
    )
    changed[CRC_AT:ATTRIBUTES_AT] = RecordBatch(changed).compute_crc().to_bytes(4, "big")
    return changed


# Accepted batches


@pytest.mark.parametrize("codec", list(Codec))
def test_a_good_batch_passes_untouched(codec: Codec) -> None:
    data = build_batch(
        RECORDS, codec=codec, producer_id=4, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    before = bytes(data)
    view = memoryview(data)
    validated = validate_produce(view, settings=DEFAULTS, now_ms=NOW_MS)
    assert validated.buffer is view
    assert bytes(view) == before
    assert validated.record_count == 3
    assert (validated.max_timestamp, validated.offset_of_max_timestamp) == (NOW_MS, 2)
    assert validated.log_append_time == -1
    assert [batch.producer_id for batch in validated.batches] == [4]


def test_offsets_and_epoch_are_assigned_in_place() -> None:
    data = build_batch(RECORDS)
    validated = validate(data)
    assign_offsets(validated, 1_000, 7)
    batch = read_batch(data)
    batch.check_crc()
    assert (batch.base_offset, batch.last_offset, batch.leader_epoch) == (1_000, 1_002, 7)
    assert validated.offset_of_max_timestamp == 1_002
    view = validated.batches[0]
    assert (view.base_offset, view.next_offset, view.leader_epoch) == (1_000, 1_003, 7)


# Batches that are refused by their shape


@pytest.mark.parametrize("records", [None, memoryview(b"")])
def test_no_batch_at_all_is_invalid(records: memoryview | None) -> None:
    with pytest.raises(InvalidRecord, match="at least one"):
        validate_produce(records, settings=DEFAULTS, now_ms=NOW_MS)


@pytest.mark.parametrize("size", [1, 16, 17, 60])
def test_the_beginning_of_a_second_batch_is_cut_off(size: int) -> None:
    batch = build_batch(RECORDS)
    validated = validate(batch + batch[:size])
    assert bytes(validated.buffer) == bytes(batch)


def test_two_batches_are_invalid() -> None:
    with pytest.raises(InvalidRecord, match="exactly one"):
        validate(build_batch(RECORDS) + build_batch(RECORDS))


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_another_magic_is_invalid(magic: int) -> None:
    data = build_batch(RECORDS)
    data[MAGIC_AT] = magic
    with pytest.raises(InvalidRecord, match="magic"):
        validate(data)


@pytest.mark.parametrize("size", [1, 16, 17, 60, 61, 70])
def test_a_truncated_batch_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptMessage):
        validate(build_batch(RECORDS)[:size])


@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 48])
def test_a_batch_length_below_the_header_is_corrupt(length: int) -> None:
    data = build_batch(RECORDS)
    data[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptMessage):
        validate(data)


@pytest.mark.parametrize("position", [CRC_AT, ATTRIBUTES_AT, 30, HEADER_BYTES + 2, -1])
def test_a_wrong_checksum_is_corrupt(position: int) -> None:
    data = build_batch(RECORDS)
    data[position] ^= 0x10
    with pytest.raises(CorruptMessage, match="CRC"):
        validate(data)


def test_a_base_offset_other_than_zero_is_invalid() -> None:
    with pytest.raises(InvalidRecord, match="base offset"):
        validate(build_batch(RECORDS, base_offset=1))


@pytest.mark.parametrize(
    ("count", "delta"), [(0, -1), (-1, -2), (3, 1), (3, 3), (2, 2), (0, 0), (1 << 30, 2)]
)
def test_a_count_that_is_not_the_offset_range_is_invalid(count: int, delta: int) -> None:
    with pytest.raises(InvalidRecord, match="count of records"):
        validate(altered(build_batch(RECORDS), record_count=count, last_offset_delta=delta))


def test_a_batch_larger_than_the_maximum_is_too_large() -> None:
    data = build_batch(RECORDS)
    validate(data, ValidationSettings(max_message_bytes=len(data)))
    with pytest.raises(MessageTooLarge):
        validate(data, ValidationSettings(max_message_bytes=len(data) - 1))


def test_control_batches_are_the_brokers_own() -> None:
    with pytest.raises(InvalidRecord, match="control"):
        validate(build_batch(RECORDS, is_control=True))


def test_a_producer_id_needs_a_sequence() -> None:
    validate(build_batch(RECORDS, producer_id=0, producer_epoch=0, base_sequence=0))
    with pytest.raises(InvalidRecord, match="sequence"):
        validate(build_batch(RECORDS, producer_id=0, producer_epoch=0, base_sequence=-1))


def test_transactional_records_need_a_producer_id() -> None:
    with pytest.raises(InvalidRecord, match="Transactional"):
        validate(build_batch(RECORDS, is_transactional=True))


@pytest.mark.parametrize("settings", [DEFAULTS, COMPACTED, ValidationSettings(compression_type="gzip")])
def test_an_unknown_codec_is_invalid(settings: ValidationSettings) -> None:
    data = build_batch(RECORDS)
    with pytest.raises(InvalidRecord, match="compression"):
        validate(altered(data, attributes=5), settings)


def test_lengths_of_few_records_are_followed() -> None:
    data = build_batch(RECORDS)
    data[HEADER_BYTES] += 2
    with pytest.raises(InvalidRecord):
        validate(altered(data))


def test_more_records_than_the_bytes_can_hold_are_invalid() -> None:
    count = LENGTHS_CHECKED_RECORDS_MAX + 1
    data = build_batch([(None, None, (), 0)] * count)
    validate(data)
    with pytest.raises(InvalidRecord, match="cannot hold"):
        validate(altered(data, record_count=count + 1, last_offset_delta=count))


# Timestamps


def claiming(count: int, content: bytes, codec: Codec) -> bytearray:
    """A compressed batch that claims `count` records."""
    return assemble_batch(
        compress(codec, content),
        base_offset=0,
        leader_epoch=-1,
        attributes=codec,
        last_offset_delta=count - 1,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )


SMALLEST = bytes([12, 0, 0, 0, 1, 1, 0])


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_compressed_records_that_claim_to_be_many_are_counted(codec: Codec) -> None:
    """Otherwise a hundred bytes could move the end of the log by two billion."""
    good = claiming(5_000, SMALLEST * 5_000, codec)
    assert len(good) < 5_000
    assert validate(good).record_count == 5_000
    for count in (5_001, 4_999):
        with pytest.raises(InvalidRecord):
            validate(claiming(count, SMALLEST * 5_000, codec))
    for content in (b"not records at all", SMALLEST * 1_000):
        with pytest.raises(InvalidRecord):
            validate(claiming(90_000, content, codec))
        with pytest.raises(MessageTooLarge):
            validate(claiming((1 << 31) - 1, content, codec))


def test_a_bomb_is_stopped_where_records_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.records.validation.COUNTED_BYTES_MAX", 10_000)
    with pytest.raises(MessageTooLarge):
        validate(claiming(5_000, SMALLEST * 5_000, Codec.ZSTD))


def test_a_timestamp_too_far_ahead_is_invalid() -> None:
    validate(build_batch([(b"k", b"v", (), NOW_MS + HOUR_MS)]))
    with pytest.raises(InvalidTimestamp):
        validate(build_batch([(b"k", b"v", (), NOW_MS + HOUR_MS + 1)]))


def test_a_timestamp_too_old_is_invalid_where_the_topic_bounds_it() -> None:
    old = [*RECORDS, (b"d", b"4", (), NOW_MS - HOUR_MS - 1)]
    validate(build_batch(old))
    bounded = ValidationSettings(timestamp_before_max_ms=HOUR_MS)
    validate(build_batch(RECORDS), bounded)
    with pytest.raises(InvalidTimestamp) as refusal:
        validate(build_batch(old, codec=Codec.SNAPPY), bounded)
    assert [index for index, _why in refusal.value.record_errors] == [3]


def test_records_without_a_timestamp_are_never_out_of_range() -> None:
    bounded = ValidationSettings(timestamp_before_max_ms=HOUR_MS)
    for settings in (DEFAULTS, bounded, COMPACTED):
        validated = validate(build_batch([(b"k", b"v", (), -1)]), settings)
        assert validated.max_timestamp == -1


def test_a_wrong_largest_timestamp_is_put_right_where_records_are_read() -> None:
    data = altered(build_batch(RECORDS), max_timestamp=NOW_MS - 100)
    validated = validate(data, COMPACTED)
    assert validated.max_timestamp == NOW_MS
    batch = read_batch(data)
    batch.check_crc()
    assert batch.max_timestamp == NOW_MS == validated.batches[0].max_timestamp


@pytest.mark.parametrize("codec", list(Codec))
def test_log_append_time_overwrites_what_the_producer_said(codec: Codec) -> None:
    data = build_batch([(b"k", b"v", (), NOW_MS + 10 * HOUR_MS)], codec=codec)
    validated = validate(data, ValidationSettings(timestamp_type="LogAppendTime"))
    assert (validated.max_timestamp, validated.log_append_time) == (NOW_MS, NOW_MS)
    batch = read_batch(data)
    batch.check_crc()
    assert batch.is_log_append_time
    assert [record.timestamp for record in iterate_records(batch)] == [NOW_MS]
    assert validated.batches[0].is_log_append_time
    assert validated.batches[0].crc == batch.crc


def test_producers_do_not_set_log_append_time_themselves() -> None:
    data = build_batch(RECORDS, log_append_time=NOW_MS)
    with pytest.raises(InvalidTimestamp, match="LogAppendTime"):
        validate(data, ValidationSettings(timestamp_type="LogAppendTime"))
    with pytest.raises(InvalidTimestamp, match="LogAppendTime"):
        validate(build_batch(RECORDS, log_append_time=-1))


def test_every_record_that_claims_log_append_time_is_named() -> None:
    batch = build_batch(RECORDS, log_append_time=NOW_MS)
    with pytest.raises(InvalidTimestamp) as caught:
        validate(batch, ValidationSettings(timestamp_type="LogAppendTime"))
    assert [index for index, _ in caught.value.record_errors] == [0, 1, 2]


def test_on_a_create_time_topic_the_type_is_put_back() -> None:
    data = build_batch(RECORDS, log_append_time=NOW_MS)
    validated = validate(data)
    assert not validated.batches[0].is_log_append_time
    batch = read_batch(data)
    batch.check_crc()
    assert not batch.is_log_append_time


@pytest.mark.parametrize("base", [(1 << 63) - 1, -(1 << 63)])
def test_a_timestamp_beyond_64_bits_is_invalid(base: int) -> None:
    data = altered(build_batch([(b"k", b"v", (), delta) for delta in (0, 1, -1)]), base_timestamp=base)
    with pytest.raises(InvalidTimestamp, match="64 bits"):
        validate(data, ValidationSettings(timestamp_type="LogAppendTime", compacted=True))


# Keys


@pytest.mark.parametrize("codec", list(Codec))
def test_compacted_topics_need_keys(codec: Codec) -> None:
    validate(build_batch(RECORDS, codec=codec), COMPACTED)
    keyless = [*RECORDS, (None, b"v", (), NOW_MS), (b"", b"an empty key is a key", (), NOW_MS)]
    validate(build_batch(keyless, codec=codec))
    with pytest.raises(InvalidRecord, match="without a key") as refusal:
        validate(build_batch(keyless, codec=codec), COMPACTED)
    assert [index for index, _why in refusal.value.record_errors] == [3]


def test_a_batch_with_both_faults_is_refused_for_its_timestamps_and_names_all() -> None:
    records = [
        (None, b"v", (), NOW_MS),
        (b"k", b"v", (), NOW_MS + 2 * HOUR_MS),
        (None, b"", (), NOW_MS + 2 * HOUR_MS),
    ]
    with pytest.raises(InvalidTimestamp) as refusal:
        validate(build_batch(records), COMPACTED)
    reasons = dict(refusal.value.record_errors)
    assert reasons.keys() == {0, 1, 2}
    assert "key" in reasons[0]
    assert "key" in reasons[2]
    assert "Timestamp" in reasons[1]


# Compression


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_the_topics_codec_is_imposed(source: Codec, target: str) -> None:
    data = build_batch(
        RECORDS, codec=source, producer_id=4, producer_epoch=1, base_sequence=9, is_transactional=True
    )
    before = bytes(data)
    validated = validate(data, ValidationSettings(compression_type=target))
    batch = read_batch(validated.buffer)
    batch.check_crc()
    assert batch.codec == CODEC_BY_NAME[target]
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (4, 1, 9)
    assert batch.is_transactional
    assert list(iterate_records(batch)) == list(iterate_records(read_batch(before)))
    assert bytes(data) == before
    if source == CODEC_BY_NAME[target]:
        assert bytes(validated.buffer) == before
    assign_offsets(validated, 50, 2)
    assert read_batch(validated.buffer).base_offset == 50


def test_recompression_and_log_append_time_go_together() -> None:
    settings = ValidationSettings(compression_type="gzip", timestamp_type="LogAppendTime")
    validated = validate(build_batch(RECORDS), settings)
    batch = read_batch(validated.buffer)
    batch.check_crc()
    assert (batch.codec, batch.is_log_append_time, batch.max_timestamp) == (Codec.GZIP, True, NOW_MS)


def test_what_recompression_makes_too_large_is_refused() -> None:
    data = build_batch([(b"k", bytes(10_000), (), NOW_MS)], codec=Codec.ZSTD)
    settings = ValidationSettings(compression_type="uncompressed", max_message_bytes=5_000)
    with pytest.raises(MessageTooLarge):
        validate(data, settings)


@pytest.mark.parametrize("target", ["gzip", "snappy", "lz4", "uncompressed"])
def test_what_recompression_makes_too_large_is_in_memory_once(target: str) -> None:
    """Zstd finds repetitions that the other codecs do not: 60 KB become megabytes that they keep."""
    inflated_bytes = 4 << 20
    block = random.Random(1).randbytes(512 * 1024)
    value = block * (inflated_bytes // len(block))
    data = build_batch([(b"k", value, (), NOW_MS)], codec=Codec.ZSTD)
    settings = ValidationSettings(compression_type=target, compacted=True)
    tracemalloc.start()
    try:
        with pytest.raises(MessageTooLarge):
            validate(data, settings)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2.0 * inflated_bytes


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_compression_within_a_bound(codec: Codec) -> None:
    data = random.Random(1).randbytes(1_000) * 1_000
    whole = compress_within(codec, data, None, 1 << 21)
    assert decompress(codec, whole, 1 << 20) == data
    assert compress_within(codec, data, None, len(whole)) == whole
    with pytest.raises(MessageTooLarge):
        compress_within(codec, data, None, len(whole) - 1)


def test_a_compression_level_is_used() -> None:
    randomness = random.Random(1)
    words = [randomness.randbytes(6) for _ in range(300)]
    records = [(b"k", b" ".join(randomness.choices(words, k=5_000)), (), NOW_MS)]
    sizes = [
        len(
            validate(
                build_batch(records), ValidationSettings(compression_type="zstd", compression_level=level)
            ).buffer
        )
        for level in (-10, 19)
    ]
    assert sizes[0] > sizes[1]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_offset_deltas_that_are_not_consecutive_are_invalid_where_records_are_read(codec: Codec) -> None:
    builder = BatchBuilder(codec=codec)
    for offset, (key, value, headers, timestamp) in zip((0, 5, 9), RECORDS, strict=True):
        builder.append(key, value, headers, timestamp, offset)
    with pytest.raises(InvalidRecord, match="consecutive"):
        validate(builder.build(last_offset_delta=2), COMPACTED)


def test_more_records_than_can_be_read_are_to_be_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.records.validation.INSPECTED_RECORDS_MAX", 2)
    validate(build_batch(RECORDS))
    validate(build_batch(RECORDS[:2]), COMPACTED)
    with pytest.raises(MessageTooLarge):
        validate(build_batch(RECORDS), COMPACTED)


def _claiming(codec: Codec, payload: bytes) -> bytearray:
    return assemble_batch(
        payload,
        base_offset=0,
        leader_epoch=-1,
        attributes=codec,
        last_offset_delta=0,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=1,
    )


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_bytes_that_do_not_inflate_are_invalid_and_not_to_be_sent_again(codec: Codec) -> None:
    with pytest.raises(InvalidRecord):
        validate(_claiming(codec, b"this is no compressed stream"), COMPACTED)


def test_a_bomb_is_stopped_where_records_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.records.validation.INSPECTED_BYTES_MAX", 1 << 20)
    with pytest.raises(MessageTooLarge, match="inflate"):
        validate(_claiming(Codec.ZSTD, compress(Codec.ZSTD, bytes(32 << 20))), COMPACTED)


# Anything at all

ALL_SETTINGS = st.builds(
    ValidationSettings,
    timestamp_type=st.sampled_from(["CreateTime", "LogAppendTime"]),
    timestamp_before_max_ms=st.sampled_from([HOUR_MS, (1 << 63) - 1]),
    compression_type=st.sampled_from(["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]),
    compacted=st.booleans(),
)


@given(st.binary(max_size=150), ALL_SETTINGS)
def test_random_bytes_raise_only_errors_with_a_code(data: bytes, settings: ValidationSettings) -> None:
    with pytest.raises(KafkaError):
        validate(bytearray(data), settings)


@given(ALL_SETTINGS, st.sampled_from(Codec), st.randoms(use_true_random=False))
def test_mutated_batches_raise_only_errors_with_a_code(
    settings: ValidationSettings, codec: Codec, randomness: random.Random
) -> None:
    data = build_batch(RECORDS, codec=codec, producer_id=1, producer_epoch=0, base_sequence=0)
    for _ in range(randomness.randint(1, 3)):
        data[randomness.randrange(HEADER_BYTES - 44, len(data))] = randomness.randrange(256)
    data = altered(data)  # a checksum that is right, so that what is behind it is reached
    try:
        validated = validate(data, settings)
    except KafkaError:
        return
    assign_offsets(validated, 10, 1)
    read_batch(validated.buffer).check_crc()


def test_the_settings_cannot_change_under_a_request() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        DEFAULTS.compacted = True  # type: ignore[misc]
