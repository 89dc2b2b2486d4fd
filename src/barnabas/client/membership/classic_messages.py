"""Bytes that members of a classic group exchange through the coordinator: subscriptions and assignments.

They begin with their version as an int16. A reader decodes a newer version as the newest that it knows:
fields are only ever added at the end.

The sticky assignor is eager: its members own nothing when they join. So they repeat their last assignment
and its generation in the user data, in the form of Kafka's `StickyAssignor`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from barnabas.client.membership.assignors import MemberSubscription
from barnabas.core.ids import TopicPartition
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from barnabas.protocol.messages.consumer_protocol import TopicPartition as Rows

VERSION: Final = 3
_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")


def encode_subscription(
    topics: list[str],
    owned: Iterable[TopicPartition],
    generation: int,
    rack: str | None,
    user_data: bytes | None,
) -> bytes:
    subscription = ConsumerProtocolSubscription(
        topics=topics,
        user_data=user_data,
        owned_partitions=_rows(owned),
        generation_id=generation,
        rack_id=rack,
    )
    return _SHORT.pack(VERSION) + subscription.encode(VERSION)


def decode_subscription(metadata: bytes, instance_id: str | None, assignor: str) -> MemberSubscription:
    """Subscription of a member. MalformedMessage when the bytes are none."""
    decoded, _ = ConsumerProtocolSubscription.decode(metadata, _version(metadata), _SHORT.size)
    owned = _partitions(decoded.owned_partitions)
    generation = decoded.generation_id
    if assignor == "sticky" and not owned and decoded.user_data:
        owned, generation = decode_sticky(decoded.user_data)
    return MemberSubscription(tuple(decoded.topics), instance_id, owned, generation)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    assignment = ConsumerProtocolAssignment(assigned_partitions=_rows(partitions))
    return _SHORT.pack(VERSION) + assignment.encode(VERSION)


def decode_assignment(assignment: bytes) -> frozenset[TopicPartition]:
    """Partitions of this member; none where the leader sent nothing for it."""
    if not assignment:
        return frozenset()
    decoded, _ = ConsumerProtocolAssignment.decode(assignment, _version(assignment), _SHORT.size)
    return frozenset(_partitions(decoded.assigned_partitions))


def encode_sticky(partitions: Iterable[TopicPartition], generation: int) -> bytes:
    """User data of Kafka's `StickyAssignor`, version 1: the last assignment and its generation."""
    out = bytearray()
    rows = _rows(partitions)
    out += _INT.pack(len(rows))
    for row in rows:
        name = row.topic.encode()
        out += _SHORT.pack(len(name)) + name + _INT.pack(len(row.partitions))
        for number in row.partitions:
            out += _INT.pack(number)
    return bytes(out + _INT.pack(generation))


def decode_sticky(data: bytes) -> tuple[tuple[TopicPartition, ...], int]:
    """The last assignment and its generation. A member whose bytes are damaged owned nothing."""
    owned: list[TopicPartition] = []
    try:
        (topics,) = _INT.unpack_from(data, 0)
        position = _INT.size
        for _ in range(topics):
            (length,) = _SHORT.unpack_from(data, position)
            position += _SHORT.size
            topic = data[position : position + length].decode()
            position += length
            (count,) = _INT.unpack_from(data, position)
            position += _INT.size
            for _ in range(count):
                (number,) = _INT.unpack_from(data, position)
                position += _INT.size
                owned.append(TopicPartition(topic, number))
        generation = _INT.unpack_from(data, position)[0] if position + 4 <= len(data) else -1
    except (struct.error, UnicodeDecodeError):
        return (), -1
    return tuple(owned), generation


def _version(data: bytes) -> int:
    if len(data) < _SHORT.size:
        raise MalformedMessage("a member's metadata has no version")
    version: int = _SHORT.unpack_from(data)[0]
    if version < 0:
        raise MalformedMessage(f"a member's metadata has version {version}")
    return min(version, VERSION)


def _rows(partitions: Iterable[TopicPartition]) -> list[Rows]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return [Rows(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()]


def _partitions(rows: Iterable[Rows]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(row.topic, number) for row in rows for number in row.partitions)
