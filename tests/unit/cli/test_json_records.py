"""Records as lines of JSON, and lines of standard input."""

from __future__ import annotations

import asyncio
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli import stdin_lines
from barnabas.cli.json_records import dump_record, parse_record
from barnabas.cli.stdin_lines import LineTooLong, read_lines
from barnabas.client.producer import OutgoingRecord
from barnabas.records.record import Record

maybe_bytes = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(lambda text: text.encode())


@given(
    key=maybe_bytes,
    value=maybe_bytes,
    headers=st.lists(st.tuples(st.text(max_size=5), maybe_bytes), max_size=3),
    timestamp=st.integers(0, 2**50),
)
def test_what_is_printed_can_be_written_back(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], timestamp: int
) -> None:
    line = dump_record("t", 3, Record(9, timestamp, key, value, tuple(headers)))
    assert "\n" not in line
    assert parse_record(line.encode(), None) == OutgoingRecord(key, value, headers, None, timestamp)


def test_a_value_that_is_no_string_is_written_as_json() -> None:
    record = parse_record(b'{"value": {"a": [1, true]}, "headers": {"n": 1, "s": "x"}}', 2)
    assert record == OutgoingRecord(None, b'{"a": [1, true]}', [("n", b"1"), ("s", b"x")], 2)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"{",
        b'{"timestamp": "now"}',
        b'{"headers": 1}',
        b'{"headers": [1]}',
        b'{"value_base64": "%"}',
    ],
)
def test_a_line_that_is_no_record_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - JSON's own words will do
        parse_record(line, None)


async def lines_of(*chunks: bytes) -> list[bytes]:
    reader, writer = os.pipe()
    for chunk in chunks:
        os.write(writer, chunk)
    os.close(writer)
    found = [line async for lines in read_lines(reader) for line in lines]
    os.close(reader)
    return found


async def test_lines_are_whole_whatever_the_pieces() -> None:
    assert await lines_of() == []
    assert await lines_of(b"a\nb", b"c\r\n", b"\n", b"last") == [b"a", b"bc", b"", b"last"]
    assert await lines_of(b"a\n") == [b"a"]


async def test_what_arrives_together_stays_together() -> None:
    reader, writer = os.pipe()
    groups = read_lines(reader)
    os.write(writer, b"a\nb\nc")
    assert await anext(groups) == [b"a", b"b"]
    os.write(writer, b"\n")
    assert await anext(groups) == [b"c"]
    os.close(writer)
    assert [group async for group in groups] == []
    os.close(reader)


async def test_a_line_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdin_lines, "LINE_BYTES_MAX", 5)
    assert await lines_of(b"12345\n123", b"45") == [b"12345", b"12345"]
    with pytest.raises(LineTooLong):
        await lines_of(b"1\n123456")


async def test_a_long_line_is_joined_once() -> None:
    """What is not whole yet is kept in pieces: joined at every read, 40 MB took seconds."""
    reader, writer = os.pipe()
    line = b"x" * (3 * stdin_lines.CHUNK_BYTES)

    def feed() -> None:
        os.write(writer, line + b"\nnext")
        os.close(writer)

    task = asyncio.ensure_future(asyncio.to_thread(feed))
    found = [each async for lines in read_lines(reader) for each in lines]
    await task
    os.close(reader)
    assert found == [line, b"next"]
