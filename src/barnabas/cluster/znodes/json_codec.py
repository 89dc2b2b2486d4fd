"""JSON codec for znodes, as Kafka writes them, and one error for malformed data.

Decoded values go into requests to brokers, so numbers must fit and names must be names. A request that cannot
be encoded would block all that follow it. For the same reason a znode is decoded before it is written
(`written`). No broker of the cluster could work with a znode that its decoder refuses.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

from barnabas.core.errors import InvalidRequest

T = TypeVar("T")

INT32_MAX: Final = (1 << 31) - 1

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class MalformedZnode(Exception):
    """Data of a node that does not match its path; another program wrote it."""


STUMBLES: Final = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""Errors of decoding: json gives up on deep nesting, and reads `Infinity`, which overflows an int."""


def to_json(value: dict[str, Any]) -> bytes:
    return to_utf8(_encode(value))


def to_utf8(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"a znode cannot hold text that is not Unicode: {error}") from None


def written(value: T, data: bytes, decode: Callable[[bytes], T]) -> bytes:
    """`data`, if `decode` reads `value` from it; InvalidRequest if not."""
    try:
        found = decode(data)
    except MalformedZnode as error:
        raise InvalidRequest(f"the znode would be unreadable: {error}") from None
    if found != value:
        raise InvalidRequest(f"a znode written as {value!r} would be read as {found!r}")
    return data


def from_json(data: bytes) -> dict[str, Any]:
    value = json.loads(data.decode())
    if not isinstance(value, dict):
        raise TypeError("not a JSON object")
    if rb"\u" in data:
        # Half of a surrogate pair is not a character, and no request could encode it.
        _encode(value).encode()
    return value


def int32(value: Any) -> int:
    """Number that fits requests, also from text."""
    number = int(value)
    if not -INT32_MAX - 1 <= number <= INT32_MAX:
        raise ValueError(f"{number} is out of range")
    return number


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def broker_ids(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise TypeError("not a list of brokers")
    return tuple(map(int32, value))


class reading:  # noqa: N801 - reads as a statement: `with reading("topic t"):`
    """Context that turns every decoding error into MalformedZnode, naming `what`."""

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, STUMBLES):
            raise MalformedZnode(f"{self._what} cannot be read: {error!r}") from error
