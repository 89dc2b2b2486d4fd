"""Lines of JSON: what a download writes is read again, and what is no record names its line."""

from __future__ import annotations

import pytest

from barnabas.console.pages.messages import _line, _plain
from barnabas.console.records.lines import RECORDS_MAX, InvalidLine, LineRecord, read_lines
from barnabas.records.record import Record


@pytest.mark.parametrize(
    "record",
    [
        Record(
            7,
            1_000,
            b"k",
            b'{"a": 1}',
            (("trace", b"07"), ("none", None), ("\udcff", b""), ("bytes", b"\xff")),
        ),
        Record(0, -1, None, None),
        Record(1, 0, b"\xff\x00", "é\u2028\x0b\x85 and \\n".encode()),
    ],
)
def test_what_a_download_writes_is_read_again(record: Record) -> None:
    text = _line(_plain(3, record)).decode()
    assert read_lines(text) == [LineRecord(record.key, record.value, list(record.headers), 3)]


def test_a_value_may_be_json() -> None:
    assert read_lines('{"key": 7, "value": {"a": "é"}, "headers": {"h": "v"}}\r\n\n{"value": ""}') == [
        LineRecord(b"7", '{"a": "é"}'.encode(), [("h", b"v")], None),
        LineRecord(None, b"", [], None),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "7",
        '{"valeu": 1}',
        '{"partition": -1}',
        '{"partition": true}',
        '{"partition": 99999999999}',
        '{"key_base64": "?"}',
        '{"key_base64": 7}',
        '{"key": "a", "key_base64": "AA=="}',
        '{"value": "\\ud800"}',
        '{"headers": 7}',
        '{"headers": [["a"]]}',
        '{"headers": [[7, "v"]]}',
        '{"headers": {"a": [1]}}',
        '{"headers": {"\\ud800": "v"}}',
        '{"value": ' + "[" * 100_000,
    ],
)
def test_a_line_that_is_no_record_is_named(line: str) -> None:
    with pytest.raises(InvalidLine, match=r"^line 2: "):
        read_lines('{"value": "good"}\n' + line)


def test_there_are_not_too_many_records() -> None:
    assert len(read_lines("{}\n" * RECORDS_MAX)) == RECORDS_MAX
    with pytest.raises(InvalidLine, match="more than"):
        read_lines("{}\n" * (RECORDS_MAX + 1))
