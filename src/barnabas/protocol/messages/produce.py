"""Produce (0): append record batches to partitions.

v0-2 carry message sets of magic 0 and 1, v3 and later only v2 batches and the transactional id. v7 allows
zstd; v8 responses name the faulty records; v9 is flexible; v10 responses may name the new leader; v12 adds a
partition to its transaction implicitly (KIP-890); v13 has topic ids instead of names. With acks=0 there is no
response.
"""

from __future__ import annotations

from barnabas.core.ids import Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.schema.declarations import RecordsField
from barnabas.protocol.schema.fields import array, int16, int32, int64, records, string, struct, uuid
from barnabas.protocol.schema.message import Message


class PartitionProduceData(Message):
    index: int = int32()
    records: RecordsField = records(nullable="0+")


class TopicProduceData(Message):
    name: str = string("0-12", ignorable=True)
    topic_id: Uuid = uuid("13+", ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Message, api=ApiKey.PRODUCE):
    transactional_id: str | None = string("3+", nullable="3+", default=None)
    # 0: no response; 1: the leader has it; -1: every in-sync replica has it.
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Message):
    batch_index: int = int32()
    batch_index_error_message: str | None = string(nullable="8+", default=None)


class LeaderIdAndEpoch(Message):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class PartitionProduceResponse(Message):
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    # -1 when the topic keeps the producer's timestamps.
    log_append_time_ms: int = int64("2+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+", ignorable=True)
    error_message: str | None = string("8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, "10+", tag=0)


class TopicProduceResponse(Message):
    name: str = string("0-12", ignorable=True)
    topic_id: Uuid = uuid("13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class NodeEndpoint(Message):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="10+", default=None)


class ProduceResponse(Message, api=ApiKey.PRODUCE):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32("1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)
