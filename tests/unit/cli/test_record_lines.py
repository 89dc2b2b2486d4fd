"""Records as lines of text or JSON, and lines of standard input."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.records import stdin_lines
from barnabas.cli.records.record_lines import (
    Common,
    Formats,
    dump_record,
    json_parser,
    json_renderer,
    parse_record,
    text_parser,
    text_renderer,
)
from barnabas.cli.records.stdin_lines import LineTooLong, read_lines
from barnabas.cli.records.value_formats import FORMATS
from barnabas.client.extensions.records import Header, ProducerRecord, Record

PLAIN = Common("t")


def outgoing(
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header] = (),
    partition: int | None = None,
    timestamp_ms: int | None = None,
) -> ProducerRecord:
    return ProducerRecord("t", value, key, headers, partition, timestamp_ms)


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
    line = dump_record(Record("t", 3, 9, timestamp, key, value, tuple(headers)))
    assert "\n" not in line
    assert parse_record(line.encode(), PLAIN) == outgoing(key, value, headers, None, timestamp)


def test_a_record_without_a_time_can_be_produced_again() -> None:
    line = dump_record(Record("t", 3, 9, -1, None, b"v", ()))
    assert parse_record(line.encode(), PLAIN) == outgoing(None, b"v", [])


def test_a_lone_surrogate_in_json_stays_escaped() -> None:
    """It has no UTF-8, and would end the reading of a topic."""
    value = rb'{"a":"\ud800"}'
    record = Record("t", 3, 9, 0, None, value, ())
    formats = Formats(value=FORMATS["json"])
    assert text_renderer(keys=False, headers=False, formats=formats)(record) == value + b"\n"
    line = json_renderer(formats)(record)
    assert parse_record(line, PLAIN, formats).value == value


def test_a_value_that_is_no_string_is_written_as_json() -> None:
    record = parse_record(b'{"value": {"a": [1, true]}, "headers": {"n": 1, "s": "x"}}', Common("t", 2))
    assert record == outgoing(None, b'{"a": [1, true]}', [("n", b"1"), ("s", b"x")], 2)


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
        b'{"vaule": "v"}',
        b'{"headers": [{"key": "h", "valeu": "v"}]}',
        b'{"value": "v", "value_base64": "dg=="}',
        b'{"timestamp": true}',
        b'{"timestamp": -2}',
        b'{"timestamp": 9223372036854775808}',
        b"[" * 100_000,
    ],
)
def test_a_line_that_is_no_record_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - JSON's own words will do
        parse_record(line, PLAIN)


def test_a_line_that_is_not_json_says_so() -> None:
    with pytest.raises(ValueError, match=r"^not JSON: Expecting value at column 9$"):
        parse_record(b'{"key": }', PLAIN)


def test_an_unknown_field_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ValueError, match="unknown field 'vaule': did you mean 'value'"):
        parse_record(b'{"vaule": "v"}', PLAIN)


@pytest.mark.parametrize(
    ("name", "data", "text", "in_json"),
    [
        ("string", b"v", b"v", "v"),
        ("json", b'{"a": [1, null]}', b'{"a":[1,null]}', {"a": [1, None]}),
        ("base64", b"\xff\x00", b"/wA=", "/wA="),
        ("hex", b"\xff\x00", b"ff00", "ff00"),
        ("integer", b"\x00\x00\x00\x2a", b"42", 42),
        ("long", b"\xff" * 8, b"-1", -1),
        ("double", b"\x40\x45\x00\x00\x00\x00\x00\x00", b"42.0", 42.0),
    ],
)
def test_formats_go_round(name: str, data: bytes, text: bytes, in_json: object) -> None:
    formats = Formats(FORMATS[name], FORMATS[name])
    record = Record("t", 0, 0, 0, data, data)
    line = text_renderer(keys=True, headers=False, formats=formats)(record)
    assert line == text + b"\t" + text + b"\n"
    parsed = text_parser("\\t", PLAIN, formats)(line[:-1])
    assert FORMATS[name].to_json(parsed.value) == in_json
    dumped = dump_record(record, formats)
    assert json.loads(dumped)["value"] == in_json
    again = parse_record(dumped.encode(), PLAIN, formats)
    assert FORMATS[name].to_json(again.value) == in_json
    if name != "json":
        assert (again.key, again.value) == (parsed.key, parsed.value) == (data, data)


@pytest.mark.parametrize(
    ("name", "text", "data"),
    [
        ("json", b"{", b"{"),
        ("base64", b"%", None),
        ("hex", b"0", None),
        ("integer", b"2147483648", b"abc"),
        ("integer", b"\xff", b""),
        ("long", b"1.5", b"abcd"),
        ("double", b"one", b"abcd"),
    ],
)
def test_what_a_format_cannot_hold_is_refused(name: str, text: bytes, data: bytes | None) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each format has its own words
        FORMATS[name].read(text)
    if data is not None:
        with pytest.raises(ValueError, match=r"t-1 offset 7, value: .*; choose another --value-format"):
            dump_record(Record("t", 1, 7, 0, None, data), Formats(value=FORMATS[name]))


RECORD = Record("orders", 3, 9, 1_700, b"k", b"v", (("h", b"1"), ("n", None)))


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
    nothing = Record("t", 0, 0, 0, None, None)
    assert text_renderer(keys=True, headers=True)(nothing) == b"\tnull\tnull\n"


def test_a_json_line_names_its_origin() -> None:
    line = json_renderer()(RECORD)
    assert line.endswith(b"}\n")
    found = json.loads(line)
    assert (found["topic"], found["partition"], found["offset"], found["key"]) == ("orders", 3, 9, "k")


def test_a_line_is_a_value_or_key_and_value() -> None:
    header = ("h", b"1")
    assert text_parser(None, Common("t", 2, [header]))(b"a:b") == outgoing(None, b"a:b", [header], 2)
    assert text_parser(":", PLAIN)(b"a:b:c") == outgoing(b"a", b"b:c")
    assert text_parser("::", PLAIN)(b":::") == outgoing(b"", b":")


def test_a_separator_may_be_an_escape() -> None:
    assert text_parser("\\t", PLAIN)(b"a\tb") == outgoing(b"a", b"b")
    assert text_parser("\\0", PLAIN)(b"a\0b") == outgoing(b"a", b"b")


def test_a_line_without_the_separator_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the separator '\\\\t' is missing"):
        text_parser("\\t", PLAIN)(b"a:b")
    with pytest.raises(click.BadParameter, match="the separator is empty"):
        text_parser("", PLAIN)


def test_common_headers_follow_those_of_a_json_line() -> None:
    parse = json_parser(Common("t", 1, [("all", b"x")]))
    assert parse(b'{"value": "v", "headers": {"own": "y"}}') == outgoing(
        None, b"v", [("own", b"y"), ("all", b"x")], 1
    )
    assert json_parser(PLAIN)(b'{"value": "v"}') == outgoing(None, b"v", [])


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
