"""ListOffsets (2): find offsets by timestamp, or the special ones (-1 latest, -2 earliest,
-3 max timestamp).

v0 asks for a number of segment boundaries and gets a list of offsets; v1 asks for and gets one. v2 has
isolation levels, v4 leader epochs; v6 is flexible; v7 adds the max timestamp, v8 and v9 the tiers of remote
storage, v10 a timeout.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.schema.fields import array, int8, int16, int32, int64, string
from barnabas.protocol.schema.message import Message


class ListOffsetsPartition(Message):
    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    # Milliseconds, or -1 latest, -2 earliest, -3 max timestamp, -4 earliest local.
    timestamp: int = int64()
    max_num_offsets: int = int32("0", default=1)


class ListOffsetsTopic(Message):
    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


class ListOffsetsRequest(Message, api=ApiKey.LIST_OFFSETS):
    # A broker id for followers, -1 for consumers.
    replica_id: int = int32()
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32("10+", ignorable=True)


class ListOffsetsPartitionResponse(Message):
    partition_index: int = int32()
    error_code: int = int16()
    old_style_offsets: list[int] = array(int64, "0")
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


class ListOffsetsTopicResponse(Message):
    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


class ListOffsetsResponse(Message, api=ApiKey.LIST_OFFSETS):
    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
