"""Batches made of Arrow columns, read back by `barnabas.records`, and partitions as Java chooses them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.records.batch import read_batch
from barnabas.records.columnar.schema import HEADERS_TYPE
from barnabas.records.compression import Codec
from barnabas.records.record import iterate_records
from pyspark_barnabas.produce.encode import Producer, Rows, cuts_by_size, payloads, seal, sizes
from pyspark_barnabas.produce.partitioner import assign, murmur2

field = st.none() | st.binary(max_size=30) | st.integers(0, 3).map(lambda n: b"y" * (90**n))
header = st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=200))
row = st.tuples(field, field, st.none() | st.lists(header, max_size=3))


@settings(max_examples=80, deadline=None)
@given(st.lists(row, min_size=1, max_size=100), st.integers(1, 50_000), st.sampled_from(list(Codec)))
def test_batches_hold_the_rows(
    rows: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]],
    batch_bytes: int,
    codec: Codec,
) -> None:
    # A slice, because what Spark hands over need not begin at the start of its buffers.
    keys = pa.array([b"before", *(key for key, _, _ in rows)], pa.binary()).slice(1)
    values = pa.array([b"before", *(value for _, value, _ in rows)], pa.binary()).slice(1)
    headers = pa.array(
        [[], *(None if each is None else [{"key": k, "value": v} for k, v in each] for _, _, each in rows)],
        HEADERS_TYPE,
    ).slice(1)
    columns = Rows(keys, values, headers)
    cuts = cuts_by_size(sizes(columns), batch_bytes)
    found = []
    sequence = 7
    for payload in payloads(columns, cuts):
        raw = seal(
            payload, codec=codec, timestamp_ms=1_234, producer=Producer(5, 2, True), base_sequence=sequence
        )
        batch = read_batch(raw)
        assert batch.is_valid_crc
        assert batch.is_transactional
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (5, 2, sequence)
        records = list(iterate_records(batch))
        assert [record.offset for record in records] == list(range(payload.record_count))
        assert batch.last_offset_delta == payload.record_count - 1
        found += records
        sequence += payload.record_count
    assert [(record.key, record.value, list(record.headers)) for record in found] == [
        (key, value, each or []) for key, value, each in rows
    ]
    assert {record.timestamp for record in found} == {1_234}


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1 << 48), st.binary(max_size=200)), min_size=1, max_size=60),
    st.integers(1, 5_000),
)
def test_records_keep_timestamps_of_their_own(rows: list[tuple[int, bytes]], batch_bytes: int) -> None:
    times = np.array([at for at, _ in rows], np.int64)
    columns = Rows(None, pa.array([value for _, value in rows], pa.binary()), None, times)
    found = []
    for payload in payloads(columns, cuts_by_size(sizes(columns), batch_bytes)):
        batch = read_batch(
            seal(payload, codec=Codec.NONE, timestamp_ms=7, producer=Producer(), base_sequence=-1)
        )
        records = list(iterate_records(batch))
        assert batch.max_timestamp == max(record.timestamp for record in records)
        found += records
    assert [(record.timestamp, record.value) for record in found] == rows


def test_rows_without_keys_and_headers_are_encoded() -> None:
    columns = Rows(None, pa.array(["a", "ü", ""]), None)
    (payload,) = payloads(columns, np.array([0]))
    raw = seal(payload, codec=Codec.NONE, timestamp_ms=1, producer=Producer(), base_sequence=-1)
    assert [record.value for record in iterate_records(read_batch(raw))] == [b"a", "ü".encode(), b""]


def test_cuts_keep_batches_small_and_records_whole() -> None:
    assert cuts_by_size(np.array([10, 10, 10, 50, 10]), 25).tolist() == [0, 2, 3, 4]


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        # Utils.murmur2 of the Java client.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_are_hashed_as_java_hashes_them(key: bytes, hashed: int) -> None:
    assert murmur2(pa.array([b"x", key, b"", key]).slice(1))[[0, 2]].tolist() == [hashed & 0x7FFF_FFFF] * 2


def test_rows_without_a_key_stick_together() -> None:
    keys = pa.array([None, b"foobar", None])
    assert assign(keys, 3, 10, sticky=4).tolist() == [4, (-790332482 & 0x7FFF_FFFF) % 10, 4]
