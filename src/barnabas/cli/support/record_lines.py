"""Records as lines: text or JSON, printed by `consume` and parsed by `produce`.

JSON is the same in both directions:

    {"partition": 0, "offset": 7, "timestamp": 1700000000000, "key": "k", "value": "v",
     "headers": [{"key": "h", "value": "1"}]}

Bytes that are UTF-8 appear as text. Other bytes appear in base64 under another name (`value_base64`), so that
nothing is lost and the difference shows. As input, a value that is no string is written as JSON itself, and
headers may also be an object.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any

import click

from barnabas.client.aio.consumer import Fetched
from barnabas.client.aio.producer import OutgoingRecord
from barnabas.records.record import Header, Record

Render = Callable[[Fetched], bytes]
Parse = Callable[[bytes], OutgoingRecord]
"""ValueError names the problem of a line."""

_ESCAPES = {"\\t": "\t", "\\n": "\n", "\\0": "\0"}


def text_renderer(*, keys: bool, headers: bool) -> Render:
    """Value alone, or headers, key and value separated by tabs."""

    def render(each: Fetched) -> bytes:
        record = each.record
        fields = []
        if headers:
            pairs = (key.encode(errors="replace") + b"=" + (value or b"") for key, value in record.headers)
            fields.append(b",".join(pairs))
        if keys:
            fields.append(b"null" if record.key is None else record.key)
        fields.append(b"null" if record.value is None else record.value)
        return b"\t".join(fields) + b"\n"

    return render


def json_renderer(topic: str) -> Render:
    return lambda each: dump_record(topic, each.partition, each.record).encode() + b"\n"


def text_parser(separator: str | None, headers: Sequence[Header], partition: int | None) -> Parse:
    """Whole lines as values, or keys and values around a separator."""
    if separator is None:
        return lambda line: OutgoingRecord(None, line, headers, partition)
    if not separator:
        raise click.BadParameter("the separator is empty", param_hint="--key-separator")
    divider = _ESCAPES.get(separator, separator).encode()

    def parse(line: bytes) -> OutgoingRecord:
        key, found, value = line.partition(divider)
        if not found:
            raise ValueError(f"the separator {separator!r} is missing")
        return OutgoingRecord(key, value, headers, partition)

    return parse


def json_parser(headers: Sequence[Header], partition: int | None) -> Parse:
    """JSON lines. `headers` follow the headers of each line."""

    def parse(line: bytes) -> OutgoingRecord:
        record = parse_record(line, partition)
        return record._replace(headers=[*record.headers, *headers]) if headers else record

    return parse


def dump_record(topic: str, partition: int, record: Record) -> str:
    shown: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_dump_bytes("key", record.key),
        **_dump_bytes("value", record.value),
    }
    if record.headers:
        shown["headers"] = [{"key": key, **_dump_bytes("value", value)} for key, value in record.headers]
    return json.dumps(shown, ensure_ascii=False)


def parse_record(line: bytes, partition: int | None) -> OutgoingRecord:
    """Parse a line into a record; ValueError names the problem.

    Topic, partition and offset in the line are ignored: they describe the record's origin.
    """
    fields = json.loads(line)
    if not isinstance(fields, dict):
        raise ValueError("the line is not a JSON object")
    timestamp = fields.get("timestamp")
    if timestamp is not None and not isinstance(timestamp, int):
        raise ValueError("timestamp must be in milliseconds")
    return OutgoingRecord(
        key=_parse_bytes(fields, "key"),
        value=_parse_bytes(fields, "value"),
        headers=_parse_headers(fields.get("headers")),
        partition=partition,
        timestamp_ms=timestamp,
    )


def _dump_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _parse_bytes(fields: dict[str, Any], name: str) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (TypeError, ValueError):
            raise ValueError(f"{name}_base64 is not base64") from None
    return to_bytes(fields.get(name))


def to_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()


def _parse_headers(headers: Any) -> list[Header]:
    if headers is None:
        return []
    if isinstance(headers, dict):
        return [(key, to_bytes(value)) for key, value in headers.items()]
    if not isinstance(headers, list) or not all(
        isinstance(each, dict) and isinstance(each.get("key"), str) for each in headers
    ):
        raise ValueError('headers must be an object, or a list of {"key": …, "value": …}')
    return [(each["key"], _parse_bytes(each, "value")) for each in headers]
