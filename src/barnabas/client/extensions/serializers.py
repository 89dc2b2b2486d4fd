"""Serializers and deserializers: keys and values of any type to bytes and back.

A setting takes one of three kinds:

- the name of a built-in form: `bytes`, `string`, `json`;
- a function of the value;
- an object with `serialize(topic, value, headers)` or `deserialize(topic, data, headers)`, such as a client
  of a schema registry. Such a serializer may add headers: `headers` is then a list.

`None` is a tombstone. It never reaches a function; objects receive it, as in Java.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

from barnabas.client.extensions.records import Header
from barnabas.core.errors import InvalidConfig

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
T_co = TypeVar("T_co", covariant=True)


class SerializationError(ValueError):
    """A key or value cannot be serialized or deserialized."""


@runtime_checkable
class Serializer(Protocol[T_contra]):
    def serialize(self, topic: str, value: T_contra | None, headers: list[Header]) -> bytes | None: ...


@runtime_checkable
class Deserializer(Protocol[T_co]):
    def deserialize(self, topic: str, data: bytes | None, headers: Sequence[Header]) -> T_co | None: ...


SerializeWith: TypeAlias = Callable[[T], bytes] | Serializer[T] | str
"""Values of the settings `key.serializer` and `value.serializer`."""

DeserializeWith: TypeAlias = Callable[[bytes], T] | Deserializer[T] | str
"""Values of the settings `key.deserializer` and `value.deserializer`."""


class Codec(Generic[T]):
    """Serializer and deserializer in one, from two functions."""

    def __init__(self, encode: Callable[[T], bytes], decode: Callable[[bytes], T]) -> None:
        self._encode = encode
        self._decode = decode

    def serialize(self, topic: str, value: T | None, headers: list[Header]) -> bytes | None:
        del topic, headers
        return None if value is None else self._encode(value)

    def deserialize(self, topic: str, data: bytes | None, headers: Sequence[Header]) -> T | None:
        del topic, headers
        return None if data is None else self._decode(data)


def _encode_text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise SerializationError(f"the string serializer takes str, not {type(value).__name__}")
    return value.encode()


def _encode_json(value: Any) -> bytes:
    try:
        return json.dumps(value, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise SerializationError(f"the value is not JSON: {error}") from None


def _decode_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise SerializationError(f"the bytes are not UTF-8: {error}") from None


def _decode_json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise SerializationError(f"the bytes are not JSON: {error}") from None


STRING: Final = Codec(_encode_text, _decode_text)
JSON: Final[Codec[Any]] = Codec(_encode_json, _decode_json)

_BY_NAME: Final[Mapping[str, Codec[Any] | None]] = {"bytes": None, "string": STRING, "json": JSON}


def serializer_of(setting: Any, key_name: str) -> Serializer[Any] | None:
    """Serializer that a setting names. None passes bytes through, which is the fastest."""
    if setting is None or isinstance(setting, str):
        return _by_name(setting, key_name)
    if isinstance(setting, Serializer):
        return setting
    if callable(setting):
        return Codec(setting, _decode_text)
    raise InvalidConfig(f"{key_name} takes bytes, string, json, a function or an object with serialize()")


def deserializer_of(setting: Any, key_name: str) -> Deserializer[Any] | None:
    """Deserializer that a setting names. None passes bytes through, which is the fastest."""
    if setting is None or isinstance(setting, str):
        return _by_name(setting, key_name)
    if isinstance(setting, Deserializer):
        return setting
    if callable(setting):
        return Codec(_encode_text, setting)
    raise InvalidConfig(f"{key_name} takes bytes, string, json, a function or an object with deserialize()")


def _by_name(name: str | None, key_name: str) -> Codec[Any] | None:
    if name is None:
        return None
    if name not in _BY_NAME:
        raise InvalidConfig(f"{key_name} is one of {', '.join(_BY_NAME)}, not {name!r}")
    return _BY_NAME[name]
