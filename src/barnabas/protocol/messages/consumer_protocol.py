"""What consumers say to each other inside JoinGroup and SyncGroup: subscriptions and assignments.

To the broker these bytes are opaque; tools that describe groups look inside, and so does the
coordinator when it lets clients of both group protocols into one group. They are preceded by
their version as an int16, and a reader takes versions newer than it knows for the newest it
knows: fields are only ever added at the end.

v1 of a subscription tells the owned partitions, v2 the generation in which they were owned,
v3 the rack.
"""

from __future__ import annotations

from barnabas.protocol.fields import array, binary, int32, string
from barnabas.protocol.schema import Message


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
