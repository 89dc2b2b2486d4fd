"""Requests as no client sends them: well-formed with hostile values, and with some bytes changed.

Everything is drawn from the tables of the protocol, so an API or a version that is added is tried without
another line here. The same seed gives the same requests.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

import crc32c

from barnabas.core.ids import ZERO_UUID, Uuid
from barnabas.core.regions import FileRegion
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import request_class
from barnabas.protocol.schema.declarations import Field, Kind
from barnabas.protocol.schema.headers import encode_request
from barnabas.protocol.schema.message import Message
from tests.support import wire

TOPIC, GROUP, TRANSACTION = "hostile", "hostile-group", "hostile-transaction"

BITS = {"int8": 8, "int16": 16, "uint16": 17, "int32": 32, "int64": 64}
WAIT_MS = (-1, 0, 1, 20, -(2**31))
"""Where a peer says how long it may take: what is well-formed must be answered soon."""
TOPICS = (
    *(TOPIC, TOPIC, TOPIC, "unknown", "hostile.", "hostile_", "__consumer_offsets", "__transaction_state"),
    *("", ".", "..", "a/b", "ä", "a\0b", "x" * 249, "x" * 250),
)
TEXTS = (
    *("", "a", "\0", "🐞", "x" * 127, "y" * 32_767, "../..", "1", "-1", "true"),
    *("hostile", "range", "uniform", "consumer"),
)
CONFIG_KEYS = (
    *("retention.ms", "cleanup.policy", "segment.bytes", "max.message.bytes", "compression.type"),
    *("min.insync.replicas", "log.cleaner.threads", "advertised.listeners", "message.max.bytes"),
    *("consumer.session.timeout.ms", "unknown.key", ""),
)
CONFIG_VALUES = (
    *("", "-1", "0", "1", "9" * 40, "nan", "1e3", "compact", "delete,compact", "{}", "["),
    *("x" * 5_000, "\0"),
)


class Hostile(NamedTuple):
    """One frame, without its size."""

    what: str
    payload: bytes


def frame_of(
    key: ApiKey, version: int, message: Message, correlation_id: int = 1, client_id: str = "hostile"
) -> bytes:
    parts = encode_request(key, version, correlation_id, client_id, message)
    assert not any(isinstance(part, FileRegion) for part in parts)
    return b"".join(bytes(part) for part in parts if not isinstance(part, FileRegion))


def well_formed(key: ApiKey, version: int, random: Random) -> Hostile:
    message = _message(request_class(key), version, random, depth=0)
    return Hostile(f"{key.name} v{version}: {shortened(message)}", frame_of(key, version, message))


def shortened(message: Message) -> str:
    text = repr(message)
    return text if len(text) < 2_000 else f"{text[:2_000]} … of {len(text)} characters"


def _message(cls: type[Message], version: int, random: Random, depth: int) -> Any:
    values = {
        field.name: _value(field, field.kind, version, random, depth)
        for field in cls.__schema__.fields
        if version in field.versions
    }
    return cls(**values)


def _value(field: Field, kind: Kind, version: int, random: Random, depth: int) -> Any:
    if kind is field.kind and version in field.nullable and random.random() < 0.2:
        return None
    if kind.element is not None:
        return _array(field, kind.element, version, random, depth)
    if kind.message is not None:
        assert issubclass(kind.message, Message)
        return _message(kind.message, version, random, depth + 1)
    return _scalar(field.name, kind.name, random)


def _array(field: Field, element: Kind, version: int, random: Random, depth: int) -> list[Any]:
    """Nothing, one, a few, the same several times, or many."""
    count = random.choice((0, 1, 1, 1, 2, 3)) if depth else random.choice((0, 1, 1, 1, 2, 3, 3, 150))
    items = [_value(field, element, version, random, depth) for _ in range(min(count, 3))]
    while items and len(items) < count:
        items.append(random.choice(items))
    if items and random.random() < 0.2:
        items.append(items[0])
    return items


def _scalar(name: str, kind: str, random: Random) -> Any:
    if kind == "string":
        return random.choice(_texts(name))
    if kind == "bool":
        return random.random() < 0.5
    if kind in BITS:
        return _number(name, kind, random)
    if kind in ("bytes", "records"):
        return random.choice(BLOBS)(random)
    if kind == "uuid":
        return random.choice((ZERO_UUID, Uuid(b"\xff" * 16), Uuid(random.randbytes(16))))
    assert kind == "float64", kind
    return random.choice((0.0, -0.0, -1.5, 1e300, float("inf"), float("nan")))


def _texts(name: str) -> tuple[str, ...]:
    if "group" in name and "instance" not in name:
        return (GROUP, GROUP, "", "y" * 32_767)
    if "transaction" in name:
        return (TRANSACTION, TRANSACTION, "", "\0")
    if "topic" in name or name == "name":
        return TOPICS + CONFIG_KEYS[:4] if name == "name" else TOPICS
    if "config" in name or name == "key":
        return CONFIG_KEYS
    return TEXTS + CONFIG_VALUES if name == "value" else TEXTS


def _number(name: str, kind: str, random: Random) -> int:
    bits = BITS[kind]
    high = 2 ** (bits - 1)
    low = 0 if kind == "uint16" else -high
    if name.endswith("_ms") and "retention" not in name:
        return random.choice([each for each in WAIT_MS if low <= each < high])
    if "partition" in name or name == "index" or name.endswith("_id"):
        return random.choice((0, 0, 0, 1, -1 if low else 0, high - 1, low))
    return random.choice((0, 1, 2, -1 if low else 0, high - 1, low, random.randrange(low, high)))


# Records


def _batch(random: Random) -> bytes:
    return wire.batch(
        [random.choice((b"", b"v" * 100, None)) for _ in range(random.choice((0, 1, 3)))],
        attributes=random.choice((0, 0, 1, 2, 3, 4, 5, 7, 0x10, 0x20, 0x30, -1)),
        count=random.choice((None, None, 0, -1, 2**31 - 1)),
        last_offset_delta=random.choice((None, None, -1, 2**31 - 1)),
        producer_id=random.choice((-1, 0, 2**63 - 1, -(2**63))),
        producer_epoch=random.choice((-1, 0, 32_767, -32_768)),
        base_sequence=random.choice((-1, 0, 2**31 - 1)),
        timestamp_ms=random.choice((0, -1, 1_700_000_000_000, 2**63 - 1, -(2**63))),
        magic=random.choice((2, 2, 2, 2, 0, 1, 3, -1)),
    )


def _batch_with_another_body(random: Random) -> bytes:
    """With its checksum right, so that the records themselves are read."""
    whole = bytearray(wire.batch([b"one", b"two" * 50, None], attributes=random.choice((0, 0, 1, 2, 3, 4))))
    for _ in range(random.choice((1, 1, 3))):
        whole[random.randrange(61, len(whole))] = random.choice(
            (0, 1, 0x7F, 0x80, 0xFF, random.randrange(256))
        )
    struct.pack_into(">I", whole, 17, crc32c.crc32c(whole[21:]))
    return bytes(whole)


def _old_messages(random: Random) -> bytes:
    whole = bytearray(wire.message_set_entry(b"v" * random.choice((0, 10, 300)), magic=random.choice((0, 1))))
    if random.random() < 0.5:
        whole[random.randrange(len(whole))] ^= 1 << random.randrange(8)
    return bytes(whole) * random.choice((1, 1, 3))


BLOBS: tuple[Callable[[Random], bytes], ...] = (
    lambda _: b"",
    lambda random: random.randbytes(random.choice((1, 11, 60, 61, 62, 500))),
    _batch,
    _batch,
    _batch_with_another_body,
    _old_messages,
    lambda random: _batch(random) + _batch(random),
    lambda random: _batch(random)[: random.randrange(100)],
)

# Bytes


def mutated(whole: bytes, other: bytes, random: Random) -> bytes:
    """Some of its bytes changed, left out, doubled, or taken from another request."""
    data = bytearray(whole)
    for _ in range(random.choice((1, 1, 2, 5))):
        if data:
            random.choice(MUTATIONS)(data, other, random)
    return bytes(data)


def _flip(data: bytearray, _: bytes, random: Random) -> None:
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _cut(data: bytearray, _: bytes, random: Random) -> None:
    at = random.randrange(len(data))
    del data[at : at + random.choice((1, 2, 4, 8, len(data)))]


def _insert(data: bytearray, _: bytes, random: Random) -> None:
    at = random.randrange(len(data))
    data[at:at] = random.randbytes(random.choice((1, 2, 4, 100)))


def _splice(data: bytearray, other: bytes, random: Random) -> None:
    at, source = random.randrange(len(data)), random.randrange(len(other) + 1)
    data[at:] = other[source:]


def _raise_count(data: bytearray, _: bytes, random: Random) -> None:
    """A possible length or count becomes an extreme one."""
    extreme = random.choice(
        (
            b"\x7f\xff\xff\xff",
            b"\xff\xff\xff\xff",
            b"\x80\0\0\0",
            b"\xff\xff\xff\xff\x0f",
            b"\x7f\xff",
            b"\xff" * 11,
            b"\0",
        )
    )
    at = random.randrange(len(data))
    data[at : at + len(extreme)] = extreme


def _double(data: bytearray, _: bytes, random: Random) -> None:
    at = random.randrange(len(data))
    piece = data[at : at + random.choice((4, 16, 64))]
    data[at:at] = piece * random.choice((1, 2, 50))


MUTATIONS = (_flip, _flip, _cut, _insert, _splice, _raise_count, _raise_count, _double)


def pieces(stream: bytes, random: Random) -> Iterator[bytes]:
    """The stream, cut anywhere."""
    if random.random() < 0.7:
        yield stream
        return
    at = 0
    while at < len(stream):
        size = random.choice((1, 3, 50, 5_000))
        if size == 1 and at > 20:
            size = 50
        yield stream[at : at + size]
        at += size
