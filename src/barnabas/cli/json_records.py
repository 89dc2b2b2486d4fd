"""Records as JSON, one a line, the same in both directions: what `consume --json` prints,
`produce --json` takes.

    {"partition": 0, "offset": 7, "timestamp": 1700000000000, "key": "k", "value": "v",
     "headers": [{"key": "h", "value": "1"}]}

Bytes that are UTF-8 appear as text. Others appear in base64 under another name
(`value_base64`), so that nothing is lost and a reader sees the difference. Going in, a value
that is no string is written as JSON itself, and headers may also be an object.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from barnabas.client.producer import OutgoingRecord
from barnabas.records.record import Header, Record


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
    """The record that a line describes; ValueError says what is wrong with it.

    Partition, offset and topic of where it came from are not taken over: they belong there.
    """
    fields = json.loads(line)
    if not isinstance(fields, dict):
        raise ValueError("it is not a JSON object")
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
