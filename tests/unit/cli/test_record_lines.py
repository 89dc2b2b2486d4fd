"""Records as lines of text or JSON, and lines of standard input."""

from __future__ import annotations

import asyncio
import json
import os

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.support import stdin_lines
from barnabas.cli.support.record_lines import (
    dump_record,
    json_parser,
    json_renderer,
    parse_record,
    text_parser,
    text_renderer,
)
from barnabas.cli.support.stdin_lines import LineTooLong, read_lines
from barnabas.client.aio.consumer import Fetched
from barnabas.client.aio.producer import OutgoingRecord
from barnabas.records.record import Record

maybe_bytes = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(lambda text: text.encode())


@given(
    key=maybe_bytes,
    value=maybe_bytes,
    headers=st.lists(st.tuples(st.text(max_size=5), maybe_bytes), max_size=3),
    timestamp=st.integers(0, 2**50),
)
def test_a_printed_record_can_be_produced_again(
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


RECORD = Fetched(3, Record(9, 1_700, b"k", b"v", (("h", b"1"), ("n", None))))


@pytest.mark.parametrize(
    ("keys", "headers", "line"),
    [
        (False, False, b"v\n"),
        (True, False, b"k\tv\n"),
        (False, True, b"h=1,n=\tv\n"),
        (True, True, b"h=1,n=\tk\tv\n"),
    ],
)
def test_text_has_headers_key_and_value_in_this_order(keys: bool, headers: bool, line: bytes) -> None:
    assert text_renderer(keys=keys, headers=headers)(RECORD) == line


def test_a_missing_key_or_value_is_printed_as_null() -> None:
    nothing = Fetched(0, Record(0, 0, None, None, ()))
    assert text_renderer(keys=True, headers=True)(nothing) == b"\tnull\tnull\n"


def test_a_json_line_names_its_origin() -> None:
    line = json_renderer("orders")(RECORD)
    assert line.endswith(b"}\n")
    found = json.loads(line)
    assert (found["topic"], found["partition"], found["offset"], found["key"]) == ("orders", 3, 9, "k")


def test_a_line_is_a_value_or_key_and_value() -> None:
    header = ("h", b"1")
    assert text_parser(None, [header], 2)(b"a:b") == OutgoingRecord(None, b"a:b", [header], 2)
    assert text_parser(":", [], None)(b"a:b:c") == OutgoingRecord(b"a", b"b:c", [], None)
    assert text_parser("::", [], None)(b":::") == OutgoingRecord(b"", b":", [], None)


def test_a_separator_may_be_an_escape() -> None:
    assert text_parser("\\t", [], None)(b"a\tb") == OutgoingRecord(b"a", b"b", [], None)
    assert text_parser("\\0", [], None)(b"a\0b") == OutgoingRecord(b"a", b"b", [], None)


def test_a_line_without_the_separator_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the separator '\\\\t' is missing"):
        text_parser("\\t", [], None)(b"a:b")
    with pytest.raises(click.BadParameter, match="the separator is empty"):
        text_parser("", [], None)


def test_common_headers_follow_those_of_a_json_line() -> None:
    parse = json_parser([("all", b"x")], 1)
    assert parse(b'{"value": "v", "headers": {"own": "y"}}') == OutgoingRecord(
        None, b"v", [("own", b"y"), ("all", b"x")], 1
    )
    assert json_parser([], None)(b'{"value": "v"}') == OutgoingRecord(None, b"v", [], None)


async def lines_of(*chunks: bytes) -> list[bytes]:
    reader, writer = os.pipe()
    for chunk in chunks:
        os.write(writer, chunk)
    os.close(writer)
    found = [line async for lines in read_lines(reader) for line in lines]
    os.close(reader)
    return found


async def test_lines_are_joined_from_any_chunks() -> None:
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
    """An incomplete line is kept in pieces: joined at every read, 40 MB took seconds."""
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
