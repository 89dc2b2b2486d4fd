"""Records as lines: text or JSON, printed by `consume` and parsed by `produce`.

JSON is the same in both directions:

    {"topic": "t", "partition": 0, "offset": 7, "timestamp": 1700000000000, "key": "k", "value": "v",
     "headers": [{"key": "h", "value": "1"}]}

Bytes that are UTF-8 appear as text. Other bytes appear in base64 under another name (`value_base64`), so that
nothing is lost and the difference shows. As input, a value other than a string is written as JSON itself, and
headers may also be an object. A format (`value_formats`) changes how keys or values appear. An unknown field
is refused: a misspelt one would lose data without a word.
"""

from __future__ import annotations

import base64
import difflib
import json
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import click

from barnabas.cli.records.value_formats import STRING, Format, json_text
from barnabas.client.extensions.records import Header, ProducerRecord, Record

Render = Callable[[Record[Any, Any]], bytes]
Parse = Callable[[bytes], ProducerRecord]
"""ValueError names the problem of a line."""

FIELDS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "key",
    "key_base64",
    "value",
    "value_base64",
    "headers",
)
HEADER_FIELDS = ("key", "value", "value_base64")
TIMESTAMP_MAX = (1 << 63) - 1
NO_TIMESTAMP = -1
"""Printed for records of clients that give no time. As input, the record is of now."""

_ESCAPES = {"\\t": "\t", "\\n": "\n", "\\0": "\0"}


class Formats(NamedTuple):
    key: Format = STRING
    value: Format = STRING


class Common(NamedTuple):
    """Parts that the options of a command give to every record."""

    topic: str
    partition: int | None = None
    headers: Sequence[Header] = ()
    key: bytes | None = None


def text_renderer(*, keys: bool, headers: bool, formats: Formats = Formats()) -> Render:  # noqa: B008 - a constant
    """Value alone, or headers, key and value separated by tabs."""

    def render(record: Record[Any, Any]) -> bytes:
        fields = []
        if headers:
            pairs = (key.encode(errors="replace") + b"=" + (value or b"") for key, value in record.headers)
            fields.append(b",".join(pairs))
        if keys:
            fields.append(_shown(record, "key", record.key, formats.key))
        fields.append(_shown(record, "value", record.value, formats.value))
        return b"\t".join(fields) + b"\n"

    return render


def _shown(record: Record[Any, Any], name: str, data: bytes | None, form: Format) -> bytes:
    if data is None:
        return b"null"
    try:
        return form.show(data)
    except ValueError as error:
        raise _unreadable(record, name, error) from None


def _unreadable(record: Record[Any, Any], name: str, error: ValueError) -> ValueError:
    return ValueError(
        f"{record.topic_partition} offset {record.offset}, {name}: {error}; choose another --{name}-format"
    )


def json_renderer(formats: Formats = Formats()) -> Render:  # noqa: B008 - a constant
    return lambda record: dump_record(record, formats).encode() + b"\n"


def text_parser(separator: str | None, common: Common, formats: Formats = Formats()) -> Parse:  # noqa: B008
    """Whole lines as values, or keys and values around a separator."""
    topic, partition, headers, same_key = common
    read_key, read_value = formats.key.read, formats.value.read
    if separator is None:
        return lambda line: ProducerRecord(topic, read_value(line), same_key, headers, partition)
    if not separator:
        raise click.BadParameter("the separator is empty", param_hint="--key-separator")
    divider = _ESCAPES.get(separator, separator).encode()

    def parse(line: bytes) -> ProducerRecord:
        key, found, value = line.partition(divider)
        if not found:
            raise ValueError(f"the separator {separator!r} is missing")
        return ProducerRecord(topic, read_value(value), read_key(key), headers, partition)

    return parse


def json_parser(common: Common, formats: Formats = Formats()) -> Parse:  # noqa: B008 - a constant
    """JSON lines. The common headers follow the headers of each line."""

    def parse(line: bytes) -> ProducerRecord:
        record = parse_record(line, common, formats)
        if not common.headers:
            return record
        return record._replace(headers=[*(record.headers or ()), *common.headers])

    return parse


def dump_record(record: Record[Any, Any], formats: Formats = Formats()) -> str:  # noqa: B008 - a constant
    shown: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
    }
    for name, data, form in (("key", record.key, formats.key), ("value", record.value, formats.value)):
        try:
            shown |= _dump_bytes(name, data, form)
        except ValueError as error:
            raise _unreadable(record, name, error) from None
    if record.headers:
        shown["headers"] = [
            {"key": key, **_dump_bytes("value", value, STRING)} for key, value in record.headers
        ]
    return json_text(shown)


def parse_record(line: bytes, common: Common, formats: Formats = Formats()) -> ProducerRecord:  # noqa: B008
    """Parse a line into a record; ValueError names the problem.

    Topic, partition and offset in the line are ignored: they describe the record's origin.
    """
    try:
        fields = json.loads(line)
    except RecursionError:
        raise ValueError("the line is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
    if not isinstance(fields, dict):
        raise ValueError("the line is not a JSON object")
    _check_names(fields, FIELDS)
    timestamp = fields.get("timestamp")
    if timestamp == NO_TIMESTAMP:
        timestamp = None
    elif timestamp is not None and (type(timestamp) is not int or not 0 <= timestamp <= TIMESTAMP_MAX):
        raise ValueError("timestamp must be in milliseconds since 1970")
    key = _parse_bytes(fields, "key", formats.key)
    return ProducerRecord(
        topic=common.topic,
        key=common.key if key is None else key,
        value=_parse_bytes(fields, "value", formats.value),
        headers=_parse_headers(fields.get("headers")),
        partition=common.partition,
        timestamp_ms=timestamp,
    )


def _check_names(fields: dict[str, Any], known: Collection[str]) -> None:
    for name in fields:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"a record has {', '.join(known)}"
            raise ValueError(f"unknown field {name!r}: {hint}")
    for name in known:
        if name.endswith("_base64") and None not in (
            fields.get(name),
            fields.get(name.removesuffix("_base64")),
        ):
            raise ValueError(f"{name} and {name.removesuffix('_base64')} exclude each other")


def _dump_bytes(name: str, data: bytes | None, form: Format) -> dict[str, Any]:
    if data is None:
        return {name: None}
    try:
        return {name: form.to_json(data)}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _parse_bytes(fields: dict[str, Any], name: str, form: Format = STRING) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (TypeError, ValueError):
            raise ValueError(f"{name}_base64 is not base64") from None
    value = fields.get(name)
    return None if value is None else form.from_json(value)


def _parse_headers(headers: Any) -> list[Header]:
    if headers is None:
        return []
    if isinstance(headers, dict):
        return [(key, None if value is None else STRING.from_json(value)) for key, value in headers.items()]
    if not isinstance(headers, list) or not all(
        isinstance(each, dict) and isinstance(each.get("key"), str) for each in headers
    ):
        raise ValueError('headers must be an object, or a list of {"key": …, "value": …}')
    for each in headers:
        _check_names(each, HEADER_FIELDS)
    return [(each["key"], _parse_bytes(each, "value")) for each in headers]
