"""Offsets of consumers that are older than the group coordinator."""

from __future__ import annotations

import pytest

from barnabas.administration.topic_rules import TopicSpec
from barnabas.core.errors import InvalidGroupId, OffsetMetadataTooLarge, UnknownTopicOrPartition
from barnabas.handlers.offset_commit import OFFSET_COMMIT
from barnabas.handlers.offset_fetch import OFFSET_FETCH
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.unit.handlers.support import Broker


def commit(group: str, partition: int, offset: int, metadata: str = "") -> OffsetCommitRequest:
    asked = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
    return OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name="orders", partitions=[asked])]
    )


async def error_of_commit(broker: Broker, request: OffsetCommitRequest) -> int:
    response = await broker.ask(OFFSET_COMMIT, request, 0)
    return int(response.topics[0].partitions[0].error_code)


async def fetched(broker: Broker, group: str, partition: int) -> tuple[int, int]:
    topic = OffsetFetchRequestTopic(name="orders", partition_indexes=[partition])
    response = await broker.ask(OFFSET_FETCH, OffsetFetchRequest(group_id=group, topics=[topic]), 0)
    answer = response.topics[0].partitions[0]
    return answer.committed_offset, answer.error_code


async def test_version_0_keeps_offsets_in_the_coordination_store(broker: Broker) -> None:
    await broker.topics.create_topic(TopicSpec("orders", num_partitions=2))
    assert await error_of_commit(broker, commit("shop", 1, 42)) == 0
    assert await error_of_commit(broker, commit("shop", 1, 43)) == 0
    data, _ = await broker.znodes.get("/consumers/shop/offsets/orders/1")
    assert data == b"43"
    assert await fetched(broker, "shop", 1) == (43, 0)


async def test_a_partition_that_is_named_twice_is_written_once(broker: Broker) -> None:
    await broker.topics.create_topic(TopicSpec("orders", num_partitions=2))
    request = commit("shop", 1, 1)
    request.topics[0].partitions = [
        OffsetCommitRequestPartition(partition_index=1, committed_offset=offset, committed_metadata="")
        for offset in range(50)
    ]
    response = await broker.ask(OFFSET_COMMIT, request, 0)
    assert [each.partition_index for each in response.topics[0].partitions] == [1]
    data, stat = await broker.znodes.get("/consumers/shop/offsets/orders/1")
    assert (data, stat.version) == (b"49", 0)


async def test_an_offset_that_was_never_committed_is_an_unknown_partition(broker: Broker) -> None:
    await broker.topics.create_topic(TopicSpec("orders"))
    assert await fetched(broker, "shop", 0) == (-1, UnknownTopicOrPartition.code)
    assert await fetched(broker, "shop", 9) == (-1, UnknownTopicOrPartition.code)


@pytest.mark.parametrize("group", ["", "a/b", "..", ".", "\0", "a\0b"])
async def test_a_group_that_cannot_be_a_path_is_refused(broker: Broker, group: str) -> None:
    await broker.topics.create_topic(TopicSpec("orders"))
    assert await error_of_commit(broker, commit(group, 0, 1)) == InvalidGroupId.code
    assert await fetched(broker, group, 0) == (-1, InvalidGroupId.code)


async def test_metadata_is_limited(broker: Broker) -> None:
    await broker.topics.create_topic(TopicSpec("orders"))
    assert await error_of_commit(broker, commit("g", 0, 1, "x" * 5_000)) == OffsetMetadataTooLarge.code
    assert await error_of_commit(broker, commit("g", 9, 1)) == UnknownTopicOrPartition.code
