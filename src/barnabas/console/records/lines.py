"""Records as lines of JSON, as downloads write them, read again to be produced.

    {"key": "c-1", "value": "{\\"amount\\": 7}", "headers": [["trace", {"value": "07"}]], "partition": 2}
    {"key_base64": "AAE=", "value": {"amount": 7}, "headers": {"trace": "07"}}

A key or a value that is not a text is written as JSON. The offset and the time in a download are not used.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final, NamedTuple

from barnabas.client.extensions.records import Header
from barnabas.records.record import HEADER_KEY_ERRORS

RECORDS_MAX: Final = 1_000
PARTITION_MAX: Final = 2**31 - 1
FIELDS: Final = frozenset(
    {"key", "key_base64", "value", "value_base64", "headers", "partition", "offset", "timestamp_ms"}
)


class InvalidLine(Exception):
    """The message names the line, and what is wrong there."""


class LineRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    partition: int | None


def read_lines(text: str) -> list[LineRecord]:
    """The records of a text. INVALID_LINE for the first line that is none."""
    found: list[LineRecord] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        if len(found) >= RECORDS_MAX:
            raise InvalidLine(f"there are more than {RECORDS_MAX:,} records")
        try:
            found.append(_record(json.loads(line)))
        except RecursionError:
            raise InvalidLine(f"line {number}: the JSON is nested too deeply") from None
        except (ValueError, binascii.Error) as error:
            raise InvalidLine(f"line {number}: {error}") from None
    return found


def _record(given: Any) -> LineRecord:
    if not isinstance(given, dict):
        raise ValueError('a record is an object, such as {"key": "a", "value": "b"}')
    unknown = sorted(given.keys() - FIELDS)
    if unknown:
        raise ValueError(f"a record has no {unknown[0][:40]!r}; its fields are {', '.join(sorted(FIELDS))}")
    partition = given.get("partition")
    if partition is not None and (type(partition) is not int or not 0 <= partition <= PARTITION_MAX):
        raise ValueError("partition is a number from 0 on")
    return LineRecord(_bytes(given, "key"), _bytes(given, "value"), _headers(given.get("headers")), partition)


def _bytes(given: dict[str, Any], name: str) -> bytes | None:
    coded = given.get(f"{name}_base64")
    if coded is not None:
        if name in given or not isinstance(coded, str):
            raise ValueError(f"{name}_base64 is a text, and there is no {name} beside it")
        return base64.b64decode(coded, validate=True)
    found = given.get(name)
    if found is None:
        return None
    return (found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)).encode()


def _headers(given: Any) -> list[Header]:
    pairs = list(given.items()) if isinstance(given, dict) else given or []
    if not isinstance(pairs, list):
        raise ValueError("headers are an object, or a list of pairs")
    found: list[Header] = []
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise ValueError("a header is a name and a value")
        name, value = pair
        name.encode(errors=HEADER_KEY_ERRORS)  # refused here, before any record is sent
        if isinstance(value, dict):
            found.append((name, _bytes(value, "value")))
        elif value is None or isinstance(value, str):
            found.append((name, None if value is None else value.encode()))
        else:
            raise ValueError("the value of a header is a text or null")
    return found
