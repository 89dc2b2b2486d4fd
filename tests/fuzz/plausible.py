"""Requests that a real client would send, with at most one field at an edge.

Requests of nothing but drawn values seldom get past the first check. These do: members join, offsets are
committed, records are produced, and what follows meets state that exists.
"""

from __future__ import annotations

from random import Random
from typing import Any

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.messages.sync_group import SyncGroupRequest
from tests.fuzz.pool import Pool
from tests.fuzz.values import Values
from tests.support import wire

SUBSCRIPTION = b"\0\1\0\0\0\1\0\6fuzz-a\xff\xff\xff\xff"
OWN_TOPICS, OWN_GROUPS = ("fuzz-a", "fuzz-b"), ("group-a", "group-b")


def draw_plausible(random: Random, pool: Pool) -> tuple[ApiKey, int, Any]:
    key, version, message = random.choice(DRAWN)(random, pool)
    fields = [field for field in message.__schema__.fields if version in field.versions]
    if random.random() < 0.5:
        chosen = random.choice(fields)
        setattr(message, chosen.name, Values(random, pool)._of_field(chosen, version, 1))
    return key, version, message


def _member(random: Random, pool: Pool) -> str:
    return pool.known("member_id", random) or ""


def _join(random: Random, pool: Pool) -> tuple[ApiKey, int, Any]:
    message = JoinGroupRequest(
        group_id=random.choice(OWN_GROUPS),
        session_timeout_ms=10_000,
        rebalance_timeout_ms=random.choice((10_000, 0, -2, -(2**31), 2**31 - 1)),
        member_id=random.choice(("", _member(random, pool))),
        group_instance_id=random.choice((None, "instance-1")),
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    )
    return ApiKey.JOIN_GROUP, 5, message


def _sync(random: Random, pool: Pool) -> tuple[ApiKey, int, Any]:
    message = SyncGroupRequest(
        group_id=random.choice(OWN_GROUPS),
        generation_id=pool.known("generation_id", random) or 1,
        member_id=_member(random, pool),
    )
    return ApiKey.SYNC_GROUP, 3, message


def _commit(random: Random, pool: Pool) -> tuple[ApiKey, int, Any]:
    partition = OffsetCommitRequestPartition(
        partition_index=random.randrange(2), committed_offset=random.randrange(100), committed_metadata="note"
    )
    topic = OffsetCommitRequestTopic(name=random.choice(OWN_TOPICS), partitions=[partition])
    message = OffsetCommitRequest(
        group_id=random.choice((*OWN_GROUPS, "group-c")), generation_id_or_member_epoch=-1, topics=[topic]
    )
    return ApiKey.OFFSET_COMMIT, 5, message


def _produce(random: Random, pool: Pool) -> tuple[ApiKey, int, Any]:
    data = PartitionProduceData(index=random.randrange(2), records=wire.batch([b"v" * random.randrange(200)]))
    topic = TopicProduceData(name=random.choice(OWN_TOPICS), partition_data=[data])
    return ApiKey.PRODUCE, 7, ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[topic])


def _heartbeat(random: Random, pool: Pool) -> tuple[ApiKey, int, Any]:
    message = ConsumerGroupHeartbeatRequest(
        group_id="group-d",
        member_id=_member(random, pool) or "m" * 22,
        member_epoch=pool.known("member_epoch", random) or 0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=list(OWN_TOPICS),
        topic_partitions=[],
    )
    return ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, message


def _producer(random: Random, pool: Pool) -> tuple[ApiKey, int, Any]:
    message = InitProducerIdRequest(
        transactional_id=random.choice((None, "txn-a", "txn-b")), transaction_timeout_ms=10_000
    )
    return ApiKey.INIT_PRODUCER_ID, 1, message


DRAWN = (_join, _join, _sync, _commit, _produce, _heartbeat, _producer)
