"""A topic that comes back under the name of a deleted one has no offsets, however many there were."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from barnabas.core.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
    UnknownTopicOrPartition,
)
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.support.in_process import InProcessBroker, in_process_broker

TOPIC = "orders"
PARTITIONS = 60
BY_NAME_COMMIT, BY_NAME_FETCH = 8, 8
NOT_YET = {CoordinatorLoadInProgress.code, CoordinatorNotAvailable.code, NotCoordinator.code}
SETTINGS: dict[str, Any] = {"offsets.topic.num.partitions": 1, "message.max.bytes": 1_000}
"""A batch holds no more than a fourth of the tombstones."""


async def commit(broker: InProcessBroker, group: str) -> None:
    for first in range(0, PARTITIONS, 5):
        request = OffsetCommitRequest(
            group_id=group,
            topics=[
                OffsetCommitRequestTopic(
                    name=TOPIC,
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=each, committed_offset=100 + each)
                        for each in range(first, first + 5)
                    ],
                )
            ],
        )
        while True:
            answer = await broker.ask(request, OffsetCommitResponse, BY_NAME_COMMIT)
            codes = {each.error_code for each in answer.topics[0].partitions}
            if not codes & NOT_YET:
                break
            await asyncio.sleep(0.05)
        assert codes == {0}


async def committed(broker: InProcessBroker, group: str) -> set[int]:
    wanted = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(range(PARTITIONS)))
    answer = await broker.ask(
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[wanted])]),
        OffsetFetchResponse,
        BY_NAME_FETCH,
    )
    return {each.committed_offset for each in answer.groups[0].topics[0].partitions}


async def with_offsets(broker: InProcessBroker, *groups: str) -> None:
    assert await broker.create_topic(TOPIC, PARTITIONS) == 0
    await broker.ask(FindCoordinatorRequest(key="g"), FindCoordinatorResponse, 3)
    for group in groups:
        await commit(broker, group)
        assert len(await committed(broker, group)) == PARTITIONS


def test_many_offsets_of_a_deleted_topic_do_not_apply_to_its_successor(tmp_path: Path) -> None:
    async def run() -> None:
        async with in_process_broker(tmp_path, **SETTINGS) as broker:
            await with_offsets(broker, "g", "h")
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=30_000)
            answer = await broker.ask(request, DeleteTopicsResponse)
            assert answer.responses[0].error_code == 0
            assert await broker.create_topic(TOPIC, PARTITIONS) == 0
            assert await committed(broker, "g") == {-1}
            assert await committed(broker, "h") == {-1}

    asyncio.run(run())


def test_a_group_with_many_offsets_can_be_deleted(tmp_path: Path) -> None:
    async def run() -> None:
        async with in_process_broker(tmp_path, **SETTINGS) as broker:
            await with_offsets(broker, "g")
            answer = await broker.ask(DeleteGroupsRequest(groups_names=["g"]), DeleteGroupsResponse)
            assert answer.results[0].error_code == 0
            assert await committed(broker, "g") == {-1}

    asyncio.run(run())


def test_an_offset_of_a_partition_that_does_not_exist_cannot_be_deleted(tmp_path: Path) -> None:
    async def run() -> None:
        async with in_process_broker(tmp_path, **SETTINGS) as broker:
            await with_offsets(broker, "g")
            rows = [OffsetDeleteRequestPartition(partition_index=each) for each in (0, PARTITIONS, -1)]
            request = OffsetDeleteRequest(
                group_id="g", topics=[OffsetDeleteRequestTopic(name=TOPIC, partitions=rows)]
            )
            (topic,) = (await broker.ask(request, OffsetDeleteResponse)).topics
            unknown = UnknownTopicOrPartition.code
            assert {each.partition_index: each.error_code for each in topic.partitions} == {
                0: 0,
                PARTITIONS: unknown,
                -1: unknown,
            }

    asyncio.run(run())
