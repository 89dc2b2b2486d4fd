"""Arrow columns against the records that `barnabas.records` reads one by one."""

from __future__ import annotations

import random
import struct

import crc32c
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.core.errors import CorruptMessage, InvalidRecord, KafkaError
from barnabas.records.batch import RecordBatch, iterate_batches
from barnabas.records.builder import NewRecord, build_batch
from barnabas.records.columnar.decode import DecodeTarget, decode_batches
from barnabas.records.columnar.schema import ARROW_TYPES, arrow_schema
from barnabas.records.compression import Codec
from barnabas.records.record import iterate_records
from pyspark_barnabas.shared.columns import SPARK_TYPES

TARGET = DecodeTarget("events", 3, tuple(SPARK_TYPES))
CODECS = list(Codec)

field = st.none() | st.binary(max_size=40) | st.integers(0, 3).map(lambda n: b"x" * (100**n))
header = st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5))
record = st.tuples(field, field, st.lists(header, max_size=4), st.integers(0, 2**42))
one_batch = st.tuples(
    st.lists(record, min_size=1, max_size=30), st.sampled_from(CODECS), st.none() | st.integers(0, 2**41)
)


def expected(data: bytes | bytearray) -> list[dict[str, object]]:
    return [
        {
            "key": row.key,
            "value": row.value,
            "topic": "events",
            "partition": 3,
            "offset": row.offset,
            "timestamp": row.timestamp * 1_000,
            "timestampType": int(batch.is_log_append_time),
            "headers": [{"key": key, "value": value} for key, value in row.headers] or None,
        }
        for batch in iterate_batches(data)
        for row in iterate_records(batch)
    ]


def decoded(data: bytes | bytearray, start: int = 0, end: int = 2**62) -> list[dict[str, object]]:
    found = decode_batches(list(iterate_batches(data)), TARGET, start, end)
    found.validate(full=True)
    at = found.schema.get_field_index("timestamp")
    rows: list[dict[str, object]] = found.set_column(
        at, "timestamp", found.column(at).cast(pa.int64())
    ).to_pylist()
    return rows


@settings(max_examples=60, deadline=None)
@given(st.lists(one_batch, min_size=1, max_size=5))
def test_columns_hold_what_the_records_hold(
    batches: list[tuple[list[NewRecord], Codec, int | None]],
) -> None:
    data = bytearray()
    offset = 5
    for records, codec, append_time in batches:
        data += build_batch(records, base_offset=offset, codec=codec, log_append_time=append_time)
        offset += len(records) + 2
    assert decoded(data) == expected(data)


@pytest.mark.parametrize("size", [0, 1, 60, 120, 8_200])
def test_runs_of_equal_lengths_are_stepped_over_and_left_in_time(size: int) -> None:
    chance = random.Random(size)
    records: list[NewRecord] = []
    while len(records) < 2_000:
        length = chance.choice([size, size, size + chance.randrange(300)])
        run = chance.choice([1, 7, 8, 9, 64, 500])
        records += [(None, chance.randbytes(length), (), 1_000)] * run
    data = build_batch(records[:2_000])
    assert decoded(data) == expected(data)


def test_a_range_is_cut_to_its_offsets() -> None:
    data = build_batch([(None, b"%d" % n, (), n) for n in range(10)], base_offset=100)
    assert [row["offset"] for row in decoded(data, 103, 107)] == [103, 104, 105, 106]


def test_the_schema_is_the_wanted_columns_in_their_order() -> None:
    data = build_batch([(b"k", b"v", (), 1)])
    target = DecodeTarget("t", 0, ("offset", "key"))
    assert decode_batches(list(iterate_batches(data)), target).schema == arrow_schema(("offset", "key"))


def test_a_header_key_that_is_not_utf_8_is_still_shown() -> None:
    data = build_batch([(None, None, [("\udcff", b"1")], 1)])
    assert decoded(data)[0]["headers"] == [{"key": "�", "value": b"1"}]


def resealed(data: bytearray) -> bytearray:
    struct.pack_into(">I", data, 17, crc32c.crc32c(memoryview(data)[21:]))
    return data


@settings(max_examples=150, deadline=None)
@given(st.lists(record, min_size=1, max_size=12), st.data())
def test_broken_records_are_refused_exactly_when_the_oracle_refuses(
    records: list[NewRecord], data: st.DataObject
) -> None:
    raw = build_batch(records)
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(57, len(raw) - 1))] = data.draw(st.integers(0, 255))
    resealed(raw)
    try:
        found = [(row.offset, row.key, row.value) for row in iterate_records(RecordBatch(raw))]
    except KafkaError:
        with pytest.raises((InvalidRecord, CorruptMessage)):
            decode_batches([RecordBatch(raw)], TARGET)
        return
    got = decode_batches([RecordBatch(raw)], TARGET).select(["offset", "key", "value"]).to_pylist()
    # A delta that was made negative leads out of the range that is read, which begins at 0; only a batch
    # whose own range overlaps that is looked through for such records.
    inside = [tuple(row.values()) for row in got if row["offset"] >= 0]
    assert inside == [row for row in found if row[0] >= 0]


def test_spark_and_arrow_name_the_same_columns() -> None:
    assert list(ARROW_TYPES) == list(SPARK_TYPES)
