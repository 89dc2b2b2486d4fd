"""JSON as Kafka writes it into znodes, and one error for whatever is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class MalformedZnode(Exception):
    """A node's data is not what its path promises; another program wrote it."""


def to_json(value: dict[str, Any]) -> bytes:
    return _encode(value).encode()


def from_json(data: bytes) -> dict[str, Any]:
    value = json.loads(data)
    if not isinstance(value, dict):
        raise TypeError("not a JSON object")
    return value


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Everything that decoding can stumble over becomes MalformedZnode, naming `what`."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedZnode(f"{what} cannot be read: {error!r}") from error
