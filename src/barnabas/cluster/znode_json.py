"""JSON as Kafka writes it into znodes, and one error for whatever is wrong with it.

What is read here goes into requests to brokers, so numbers must fit and names must be names: a request
that cannot be encoded would hold up everything behind it.
"""

from __future__ import annotations

import json
from typing import Any, Final

INT32_MAX: Final = (1 << 31) - 1

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class MalformedZnode(Exception):
    """A node's data is not what its path promises; another program wrote it."""


STUMBLES: Final = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""What decoding can raise: json gives up on deep nesting, and reads `Infinity`, which no integer is."""


def to_json(value: dict[str, Any]) -> bytes:
    return _encode(value).encode()


def from_json(data: bytes) -> dict[str, Any]:
    value = json.loads(data.decode())
    if not isinstance(value, dict):
        raise TypeError("not a JSON object")
    if rb"\u" in data:
        # Half of a pair spells no character, and no request could say it to a broker.
        _encode(value).encode()
    return value


def int32(value: Any) -> int:
    """A number that requests have room for; text that spells one will do."""
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
    """Everything that decoding can stumble over becomes MalformedZnode, naming `what`."""

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, STUMBLES):
            raise MalformedZnode(f"{self._what} cannot be read: {error!r}") from error
