"""Encoder of new records: the same bytes as the builder's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.records.appender import RecordAppender, record_bytes_max
from barnabas.records.batch import HEADER_BYTES
from barnabas.records.builder import BatchBuilder

content = st.none() | st.binary(max_size=300) | st.integers(4_000, 20_000).map(bytes)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=10)), max_size=3)
records = st.tuples(content, content, headers, st.integers(-1, 1 << 40))


@given(st.lists(records, min_size=1, max_size=20))
def test_records_are_encoded_as_the_builder_does(
    given_records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]],
) -> None:
    appender, builder = RecordAppender(), BatchBuilder()
    for number, (key, value, pairs, timestamp) in enumerate(given_records):
        before = len(appender.payload)
        assert appender.append(key, value, pairs, timestamp) == number
        assert len(appender.payload) - before <= record_bytes_max(key, value, pairs)
        builder.append(key, value, pairs, timestamp)
    assert appender.payload == builder.build()[HEADER_BYTES:]
    assert appender.record_count == len(given_records)
    assert appender.max_timestamp == max(timestamp for *_, timestamp in given_records)


def test_more_records_than_the_table_of_varints_has() -> None:
    appender, builder = RecordAppender(), BatchBuilder()
    for number in range(5_000):
        appender.append(None, b"v", (), number)
        builder.append(None, b"v", (), number)
    assert appender.payload == builder.build()[HEADER_BYTES:]
