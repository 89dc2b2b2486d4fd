"""Offset resets: one target for each strategy, and never outside of the log."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.scripted_broker import ScriptedBroker, scripted_broker

from barnabas.client.admin.offset_reset import OffsetReset, ResetTo, target_offset, target_offsets
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.core.clock import SystemClock
from barnabas.core.ids import TopicPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.offset_numbers import EARLIEST, LATEST

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@pytest.mark.parametrize(
    ("reset", "committed", "since", "target"),
    [
        (OffsetReset(ResetTo.EARLIEST), 50, -1, 10),
        (OffsetReset(ResetTo.LATEST), 50, -1, 90),
        (OffsetReset(ResetTo.OFFSET, 30), 50, -1, 30),
        (OffsetReset(ResetTo.OFFSET, 0), 50, -1, 10),
        (OffsetReset(ResetTo.OFFSET, 91), 50, -1, 90),
        (OffsetReset(ResetTo.OFFSET, -5), 50, -1, 10),
        (OffsetReset(ResetTo.TIMESTAMP, 1_000), 50, 33, 33),
        (OffsetReset(ResetTo.SHIFT, 7), 50, -1, 57),
        (OffsetReset(ResetTo.SHIFT, -7), 50, -1, 43),
        (OffsetReset(ResetTo.SHIFT, 100), 50, -1, 90),
        (OffsetReset(ResetTo.SHIFT, -100), 50, -1, 10),
        (OffsetReset(ResetTo.SHIFT, 5), 0, -1, 10),
    ],
)
def test_each_strategy_has_its_target(reset: OffsetReset, committed: int, since: int, target: int) -> None:
    assert target_offset(reset, first=10, end=90, committed=committed, since=since) == target


def test_a_timestamp_after_the_last_record_means_the_end() -> None:
    assert target_offset(OffsetReset(ResetTo.TIMESTAMP, 1_000), first=10, end=90, since=-1) == 90


def test_a_shift_without_a_committed_offset_starts_at_the_first() -> None:
    assert target_offset(OffsetReset(ResetTo.SHIFT, 3), first=10, end=90) == 13
    assert target_offset(OffsetReset(ResetTo.SHIFT, 3), first=10, end=90, committed=0) == 10


@given(
    st.sampled_from(ResetTo),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 40),
    st.none() | st.integers(0, 1 << 62),
    st.integers(-1, 1 << 62),
)
def test_a_target_lies_within_the_log(
    to: ResetTo, number: int, first: int, records: int, committed: int | None, since: int
) -> None:
    end = first + records
    target = target_offset(OffsetReset(to, number), first=first, end=end, committed=committed, since=since)
    assert first <= target <= end


LOGS = {
    A0: {EARLIEST: 5, LATEST: 20, 7_000: 12},
    A1: {EARLIEST: 0, LATEST: 3},
    B0: {EARLIEST: 100, LATEST: 100},
}
"""Offsets by timestamp."""


def of_logs(broker: ScriptedBroker) -> None:
    def metadata(request: MetadataRequest, _version: int) -> MetadataResponse:
        node = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=broker.port)
        topics = [
            MetadataResponseTopic(
                name=row.name,
                partitions=[
                    MetadataResponsePartition(partition_index=each.partition, leader_id=1, replica_nodes=[1])
                    for each in LOGS
                    if each.topic == row.name
                ],
            )
            for row in request.topics or ()
        ]
        return MetadataResponse(brokers=[node], topics=topics)

    def list_offsets(request: ListOffsetsRequest, _version: int) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=row.partition_index,
                            offset=LOGS[TopicPartition(topic.name, row.partition_index)].get(
                                row.timestamp, -1
                            ),
                        )
                        for row in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    broker.script |= {ApiKey.METADATA: metadata, ApiKey.LIST_OFFSETS: list_offsets}


@pytest.mark.parametrize(
    ("reset", "targets"),
    [
        (OffsetReset(ResetTo.EARLIEST), {A0: 5, A1: 0, B0: 100}),
        (OffsetReset(ResetTo.LATEST), {A0: 20, A1: 3, B0: 100}),
        (OffsetReset(ResetTo.TIMESTAMP, 7_000), {A0: 12, A1: 3, B0: 100}),
        (OffsetReset(ResetTo.SHIFT, 2), {A0: 10, A1: 2, B0: 100}),
    ],
)
async def test_the_bounds_come_from_the_leaders_of_several_topics(
    reset: OffsetReset, targets: dict[TopicPartition, int]
) -> None:
    async with scripted_broker(
        {ApiKey.METADATA: lambda *_: b"", ApiKey.LIST_OFFSETS: lambda *_: b""}
    ) as broker:
        of_logs(broker)
        client = ClusterClient([broker.address], clock=SystemClock(), randomness=random.Random(1))
        async with client as cluster:
            assert await target_offsets(cluster, reset, [A0, A1, B0], {A0: 8}) == targets
