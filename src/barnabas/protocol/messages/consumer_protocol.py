"""Subscriptions and assignments that consumers exchange inside JoinGroup and SyncGroup.

These bytes are opaque to the broker. Tools that describe groups decode them, and so does the coordinator when
it admits clients of both protocols into one group. They are preceded by their version as an int16. A reader
decodes versions newer than it knows as the newest it knows: fields are only ever added at the end.

v1 of a subscription adds the owned partitions, v2 the generation in which they were owned, v3 the rack.
"""

from __future__ import annotations

from barnabas.protocol.schema.fields import array, binary, int32, string
from barnabas.protocol.schema.message import Message


class TopicPartition(Message):
    topic: str = string()
    partitions: list[int] = array(int32)


class ConsumerProtocolSubscription(Message, versions="0-3"):
    topics: list[str] = array(string)
    user_data: bytes | None = binary(nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)


class ConsumerProtocolAssignment(Message, versions="0-3"):
    assigned_partitions: list[TopicPartition] = array(TopicPartition)
    user_data: bytes | None = binary(nullable="0+", default=None)
