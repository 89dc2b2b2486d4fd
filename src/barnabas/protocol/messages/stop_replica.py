"""StopReplica (5): the controller stops, and possibly deletes, replicas of a broker. Between brokers
only.

v0 lists partitions one by one, v1-2 by topic, v3 with a leader epoch and a deletion flag for each. v2 is
flexible.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.schema.fields import array, boolean, int16, int32, int64, string
from barnabas.protocol.schema.message import Message


class StopReplicaPartitionV0(Message):
    topic_name: str = string()
    partition_index: int = int32()


class StopReplicaTopicV1(Message):
    name: str = string()
    partition_indexes: list[int] = array(int32)


class StopReplicaPartitionState(Message):
    partition_index: int = int32()
    # -1: no epoch known; -2: the topic is being deleted.
    leader_epoch: int = int32(default=-1)
    delete_partition: bool = boolean()


class StopReplicaTopicState(Message):
    topic_name: str = string()
    partition_states: list[StopReplicaPartitionState] = array(StopReplicaPartitionState)


class StopReplicaRequest(Message, api=ApiKey.STOP_REPLICA):
    controller_id: int = int32()
    is_kraft_controller: bool = boolean("4+")
    controller_epoch: int = int32()
    broker_epoch: int = int64("1+", default=-1, ignorable=True)
    delete_partitions: bool = boolean("0-2")
    ungrouped_partitions: list[StopReplicaPartitionV0] = array(StopReplicaPartitionV0, "0")
    topics: list[StopReplicaTopicV1] = array(StopReplicaTopicV1, "1-2")
    topic_states: list[StopReplicaTopicState] = array(StopReplicaTopicState, "3+")


class StopReplicaPartitionError(Message):
    topic_name: str = string()
    partition_index: int = int32()
    error_code: int = int16()


class StopReplicaResponse(Message, api=ApiKey.STOP_REPLICA):
    error_code: int = int16()
    partition_errors: list[StopReplicaPartitionError] = array(StopReplicaPartitionError)
