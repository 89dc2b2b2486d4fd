"""Random instances of any message in any version, and their comparison.

Values sit on the edges where encodings change their shape: empty and null, 126 to 128 bytes (where a compact
length grows to two bytes), the extremes of every integer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, TypeAlias

from kio.schema.index import schema_name_map
from kio.static.constants import EntityType

from barnabas.core.ids import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import FLEXIBLE_SINCE, ApiKey
from barnabas.protocol.messages import consumer_protocol, request_class, response_class
from barnabas.protocol.schema.declarations import FRESH, Field, Kind
from barnabas.protocol.schema.message import Message

Versions: TypeAlias = tuple[type[Message], list[int]]

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
TEXTS = ("", "a", "topic-1", "Käfer", "🐞", "x" * 126, "y" * 127, "z" * 128, "ß" * 70)


def all_classes() -> list[type[Message]]:
    classes: list[type[Message]] = [
        consumer_protocol.ConsumerProtocolSubscription,
        consumer_protocol.ConsumerProtocolAssignment,
    ]
    for key in map(ApiKey, FLEXIBLE_SINCE):
        classes += [request_class(key), response_class(key)]
    return classes


def all_cases() -> list[tuple[type[Message], int]]:
    return [(cls, version) for cls in all_classes() for version in cls.supported_versions()]


def case_id(case: tuple[type[Message], int]) -> str:
    return f"{case[0].__name__}-v{case[1]}"


def by_class(cases: Iterable[tuple[type[Message], int]]) -> list[Versions]:
    """Messages with those of their versions that are among the cases: one test tries all versions."""
    versions: dict[type[Message], list[int]] = {}
    for cls, version in cases:
        versions.setdefault(cls, []).append(version)
    return list(versions.items())


def class_id(versions: Versions) -> str:
    return versions[0].__name__


@contextmanager
def naming(version: int) -> Iterator[None]:
    """Add the version to an error: it is no part of the name of the test."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in version {version}")
        raise


def kio_name(cls: type[Message]) -> tuple[str, EntityType]:
    api = cls.__schema__.api
    if api is None:
        kind = cls.__name__.removeprefix("ConsumerProtocol").lower()
        return f"consumer_protocol_{kind}", EntityType.data
    request = cls.__name__.endswith("Request")
    return api.name.lower(), EntityType.request if request else EntityType.response


def in_kio(case: tuple[type[Message], int]) -> bool:
    name, kind = kio_name(case[0])
    return kind in schema_name_map.get(name, {}).get(case[1], {})


def random_message(cls: type[Message], version: int, random: Random, size: int) -> Any:
    """An instance whose fields are set wherever `version` has them; `size` bounds its arrays."""
    values = {
        field.name: random_value(field, field.kind, version, random, size)
        for field in cls.__schema__.fields
        if version in field.versions
    }
    return cls(**values)


def random_value(field: Field, kind: Kind, version: int, random: Random, size: int) -> Any:
    if kind is field.kind:
        if version in field.nullable and random.random() < 0.3:
            return None
        if field.tag is not None and random.random() < 0.5:
            return [] if field.default is FRESH else field.default
    if kind.element is not None:
        count = random.randint(0, size)
        return [random_value(field, kind.element, version, random, size) for _ in range(count)]
    if kind.message is not None:
        assert issubclass(kind.message, Message)
        message = random_message(kind.message, version, random, size)
        # A tagged struct of nothing but defaults is not sent, so it does not survive the trip; as
        # an element of an array it is.
        unsent = kind is field.kind and field.tag is not None and message == kind.message()
        return None if unsent else message
    return random_scalar(field.name, kind.name, random)


def random_scalar(name: str, kind: str, random: Random) -> Any:
    if name == "error_code" or name.endswith("_error_code"):
        return random.choice((-1, 0, 1, 6, 35, 100))
    if name.endswith("_ms"):
        return random.choice((0, 1, 30_000, 2**31 - 1))
    if kind in BITS:
        high = 2 ** (BITS[kind] - 1)
        return random.choice((0, 1, -1, high - 1, -high, random.randrange(-high, high)))
    if kind == "string":
        return random.choice(TEXTS)
    if kind in ("bytes", "records"):
        return random.choice(
            (b"", b"\x00", random.randbytes(126), random.randbytes(127), random.randbytes(5000))
        )
    if kind == "uuid":
        return random.choice((ZERO_UUID, Uuid(random.randbytes(16))))
    if kind == "float64":
        return random.choice((0.0, -1.5, 1e300))
    assert kind == "bool"
    return random.random() < 0.5
