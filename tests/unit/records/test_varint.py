"""Varints: both directions, their bounds, and against kafka-python's encoder."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.util import encode_varint

from barnabas.core.errors import InvalidRecord
from barnabas.records.varint import read_varint, read_varlong, write_varint

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@given(INT32)
def test_a_varint_reads_back(value: int) -> None:
    out = bytearray(b"\xff")
    write_varint(out, value)
    assert read_varint(out, 1) == (value, len(out))
    assert read_varint(memoryview(out), 1) == (value, len(out))
    assert len(out) - 1 <= 5


@given(INT64)
def test_a_varlong_reads_back_and_is_written_as_kafka_python_writes_it(value: int) -> None:
    out = bytearray()
    write_varint(out, value)
    theirs = bytearray()
    encode_varint(value, theirs.append)
    assert out == theirs
    assert read_varlong(out, 0) == (value, len(out))
    assert len(out) <= 10


@pytest.mark.parametrize(("read", "longest"), [(read_varint, 5), (read_varlong, 10)])
def test_a_varint_that_is_too_long_is_refused(read, longest: int) -> None:  # type: ignore[no-untyped-def]
    assert read(b"\x80" * (longest - 1) + b"\x00", 0) == (0, longest)
    with pytest.raises(InvalidRecord, match="longer than"):
        read(b"\x80" * longest + b"\x00", 0)


@pytest.mark.parametrize("read", [read_varint, read_varlong])
@pytest.mark.parametrize("data", [b"", b"\x80", b"\x80\x80\x80"])
def test_a_varint_that_is_cut_short_is_refused(read, data: bytes) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidRecord, match="past the end"):
        read(data, 0)


def test_bits_past_the_thirty_second_fall_off() -> None:
    assert read_varint(b"\xff\xff\xff\xff\x7f", 0)[0] == -(1 << 31)
