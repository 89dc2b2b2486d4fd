"""Masks of fields that no visitor sees: `customers=email,card.number`, `payments-*=*`, `users:key=*`.

Records are masked where they are read, before a filter, a page, a download, a figure or a tool sees them. So
a filter cannot guess a hidden value. Fields are found in JSON. A value that is not JSON is masked whole,
because a field of it cannot be hidden in its bytes: a mask of a topic in Avro or Protobuf hides each value.
A large value is masked whole too: a thread parses JSON in thirty times its size.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from barnabas.client.extensions.records import Header
from barnabas.core.errors import InvalidConfig

MASK: Final = "***"
EVERYTHING: Final = "*"
PARTS: Final = ("value", "key", "headers")
MASKED_BYTES_MAX: Final = 1024 * 1024
"""Of a key or a value whose fields are masked."""
_WHOLE: Final = MASK.encode()


@dataclass(frozen=True, slots=True)
class Mask:
    """Hidden fields of the keys, values and headers of one topic."""

    value: frozenset[str] = frozenset()
    """Names of fields at any depth, paths such as `card.number`, or everything."""
    key: frozenset[str] = frozenset()
    headers: frozenset[str] = frozenset()

    def of_value(self, data: bytes | None) -> bytes | None:
        return _masked(data, self.value)

    def of_key(self, data: bytes | None) -> bytes | None:
        return _masked(data, self.key)

    def of_headers(self, headers: Sequence[Header]) -> tuple[Header, ...]:
        hides_all = EVERYTHING in self.headers
        return tuple(
            (name, _WHOLE) if value is not None and (hides_all or name in self.headers) else (name, value)
            for name, value in headers
        )


class Masks:
    """The masks of all topics."""

    def __init__(self, rules: Sequence[str] = ()) -> None:
        """INVALID_CONFIG for a rule that cannot be read."""
        self._rules = [_rule(each) for each in rules]

    def of(self, topic: str) -> Mask | None:
        found: dict[str, frozenset[str]] = {}
        for pattern, part, fields in self._rules:
            if fnmatchcase(topic, pattern):
                found[part] = found.get(part, frozenset()) | fields
        return Mask(**found) if found else None


def _rule(text: str) -> tuple[str, str, frozenset[str]]:
    place, equals, listed = text.partition("=")
    pattern, colon, part = place.partition(":")
    fields = frozenset(filter(None, map(str.strip, listed.split(","))))
    if not equals or not pattern or not fields or (colon and part not in PARTS):
        raise InvalidConfig(f"--mask is TOPIC=FIELDS, TOPIC:key=FIELDS or TOPIC:headers=NAMES, not {text!r}")
    return pattern, part or "value", fields


def _masked(data: bytes | None, fields: frozenset[str]) -> bytes | None:
    if not data or not fields:
        return data
    if EVERYTHING in fields or len(data) > MASKED_BYTES_MAX:
        return _WHOLE
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return _WHOLE
    if not isinstance(found, dict | list):
        return _WHOLE
    names = {each for each in fields if "." not in each}
    paths = [each.split(".") for each in fields if "." in each]
    _hide_names(found, names)
    for each in paths:
        _hide_path(found, each)
    try:
        return json.dumps(found, ensure_ascii=False).encode("utf-8", "backslashreplace")
    except RecursionError:
        return _WHOLE


def _hide_names(found: Any, names: set[str]) -> None:
    waiting = [found]
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            waiting += each
        elif isinstance(each, dict):
            for name, value in each.items():
                if name in names:
                    each[name] = MASK
                else:
                    waiting.append(value)


def _hide_path(found: Any, path: Sequence[str]) -> None:
    """Lists on the way are gone through."""
    waiting = [(found, 0)]
    while waiting:
        each, depth = waiting.pop()
        if isinstance(each, list):
            waiting += [(item, depth) for item in each]
        elif isinstance(each, dict) and path[depth] in each:
            if depth + 1 == len(path):
                each[path[depth]] = MASK
            else:
                waiting.append((each[path[depth]], depth + 1))
