"""Identifiers of brokers, topics and partitions, and Kafka's 128-bit ids in base64."""

from __future__ import annotations

import base64
import re
import struct
from operator import mul
from typing import Final, NamedTuple, NewType, Protocol, Self

from barnabas.core.errors import InvalidTopicException

BrokerId = NewType("BrokerId", int)

NO_LEADER = BrokerId(-1)
NO_EPOCH: Final = -1
"""Of a leader or a broker."""
NO_OFFSET: Final = -1
ACKS_ALL: Final = -1
"""An append is acknowledged when all in-sync replicas have it."""

TOPIC_NAME_LENGTH_MAX: Final = 249
"""Leaves room for `-<partition>` and a deletion suffix in a 255-byte file name."""

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
"""Topics that only brokers write."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Randomness(Protocol):
    """The one source of random numbers; `random.Random` and `random.SystemRandom` both fit."""

    def randbytes(self, n: int, /) -> bytes: ...
    def random(self) -> float: ...
    def randrange(self, start: int, stop: int, /) -> int: ...


class Uuid(bytes):
    """Sixteen bytes, written the way Kafka writes them: URL-safe base64 with no padding."""

    __slots__ = ()

    def __new__(cls, raw: bytes) -> Self:
        if len(raw) != 16:
            raise ValueError(f"a Uuid has 16 bytes, not {len(raw)}")
        return super().__new__(cls, raw)

    @classmethod
    def generate(cls, randomness: Randomness) -> Uuid:
        """A random (version 4) id. It is not a reserved id, and does not start with '-', which command-line
        tools read as an option."""
        while True:
            raw = bytearray(randomness.randbytes(16))
            raw[6] = (raw[6] & 0x0F) | 0x40
            raw[8] = (raw[8] & 0x3F) | 0x80
            candidate = cls(bytes(raw))
            if not str(candidate).startswith("-"):
                return candidate

    @classmethod
    def parse(cls, text: str) -> Uuid:
        return cls(base64.urlsafe_b64decode(text + "=="))

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(self).rstrip(b"=").decode()

    def __repr__(self) -> str:
        return f"Uuid({str(self)!r})"


ZERO_UUID = Uuid(bytes(16))
"""Means "no id" on the wire."""


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION, with the reason, unless `name` is a valid topic name."""
    if not name:
        raise InvalidTopicException("the empty string is not a topic name")
    if name in (".", ".."):
        raise InvalidTopicException(f"'{name}' is not a topic name")
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        raise InvalidTopicException(
            f"a topic name has at most {TOPIC_NAME_LENGTH_MAX} characters, this one has {len(name)}"
        )
    if not _TOPIC_NAME.fullmatch(name):
        raise InvalidTopicException(
            f"topic name {name!r} has characters other than ASCII letters, digits, '.', '_' and '-'"
        )


_POWERS_OF_31 = [31**exponent & 0xFFFFFFFF for exponent in range(63, -1, -1)]
"""Powers of 31, the highest first: a name of thirty thousand characters is hashed in blocks."""


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: it picks the partition of a group or a transactional id."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    units = struct.unpack(f">{len(encoded) // 2}H", encoded)
    for start in range(0, len(units), len(_POWERS_OF_31)):
        block = units[start : start + len(_POWERS_OF_31)]
        powers = _POWERS_OF_31[-len(block) :]
        value = (value * 31 * powers[0] + sum(map(mul, block, powers))) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value
