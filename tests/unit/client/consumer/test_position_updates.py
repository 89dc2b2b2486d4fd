"""Positions from several leaders, one of which stands still."""

from __future__ import annotations

import asyncio
import random

from tests.support.scripted_broker import SILENCE, Answer, scripted_broker
from tests.support.waiting import PATIENCE_S

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.consumer.core.positions import Positions
from barnabas.client.consumer.core.reset_strategy import TO_EARLIEST
from barnabas.client.consumer.position_updates import PositionUpdates
from barnabas.client.core.metadata import Leader, Partition, Topic
from barnabas.core.clock import SystemClock
from barnabas.core.ids import ZERO_UUID, TopicPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)


def begins_at(offset: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=each.partition_index, offset=offset)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def test_a_leader_that_stands_still_holds_up_its_own_partitions_alone() -> None:
    asked = asyncio.Event()

    def silent(request: ListOffsetsRequest, version: int) -> Answer:
        asked.set()
        return SILENCE

    quick = {ApiKey.LIST_OFFSETS: lambda request, version: begins_at(7, request), ApiKey.METADATA: silent}
    slow = {ApiKey.LIST_OFFSETS: silent, ApiKey.METADATA: silent}
    async with scripted_broker(quick) as first, scripted_broker(slow) as second, asyncio.timeout(PATIENCE_S):
        cluster = ClusterClient([first.address], clock=SystemClock(), randomness=random.Random(1))
        rows = tuple(Partition(index, index + 1, 0, (), (), (), 0) for index in range(2))
        cluster.metadata.brokers = {1: first.address, 2: second.address}
        cluster.metadata.topics["orders"] = Topic("orders", ZERO_UUID, False, rows)
        positions, changed = Positions(), asyncio.Event()
        updates = PositionUpdates(
            cluster,
            positions,
            None,
            reset_to=TO_EARLIEST,
            isolation=0,
            retry_ms=10,
            timeout_ms=60_000,
            on_update=changed.set,
            on_failure=lambda error: None,
        )
        at, held_up = (TopicPartition("orders", index) for index in range(2))
        positions.add((at, held_up))
        updates.start()

        async def has_position(wanted: TopicPartition) -> None:
            while not positions.of(wanted).has_position:
                changed.clear()
                await changed.wait()

        await asked.wait()
        await has_position(at)
        assert positions.of(at).position == 7
        assert not positions.of(held_up).has_position
        positions.of(at).reset(TO_EARLIEST)
        updates.wake()
        await has_position(at)
        # Another leader is asked, although the earlier question has no answer yet.
        assert cluster.metadata.update_leader(held_up, Leader(1, 1))
        updates.wake()
        await has_position(held_up)
        assert len(second.asked(ListOffsetsRequest)) == 1, "a question is asked once"
        await updates.stop()
        await cluster.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}
