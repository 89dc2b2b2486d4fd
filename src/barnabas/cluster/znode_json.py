"""JSON as Kafka writes it into znodes, and one error for whatever is wrong with it."""

from __future__ import annotations

import json
from typing import Any

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class MalformedZnode(Exception):
    """A node's data is not what its path promises; another program wrote it."""


def to_json(value: dict[str, Any]) -> bytes:
    return _encode(value).encode()


def from_json(data: bytes) -> dict[str, Any]:
    value = json.loads(data.decode())
    if not isinstance(value, dict):
        raise TypeError("not a JSON object")
    return value


class reading:  # noqa: N801 - reads as a statement: `with reading("topic t"):`
    """Everything that decoding can stumble over becomes MalformedZnode, naming `what`."""

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KeyError | TypeError | ValueError | AttributeError):
            raise MalformedZnode(f"{self._what} cannot be read: {error!r}") from error
