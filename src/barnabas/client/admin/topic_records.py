"""Records of a topic: offsets and sizes of its partitions, and DeleteRecords.

Each leader answers for its own partitions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.client.admin.offset_reset import offsets_at
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.steps import Steps, ask, raise_for
from barnabas.core.ids import TopicPartition
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from barnabas.protocol.offset_numbers import EARLIEST, LATEST

DELETE_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class PartitionSize:
    partition: int
    start_offset: int
    end_offset: int
    size_bytes: int


async def partition_sizes(cluster: ClusterClient, topic: str) -> list[PartitionSize]:
    """Sizes by partition. Compacted records count in the offsets, not in the size."""
    partitions = (await cluster.topic(topic)).partitions
    indexes = {each.index: TopicPartition(topic, each.index) for each in partitions}
    starts = await offsets_at(cluster, indexes.values(), EARLIEST)
    ends = await offsets_at(cluster, indexes.values(), LATEST)
    by_leader: defaultdict[int, list[int]] = defaultdict(list)
    for each in partitions:
        by_leader[each.leader_id].append(each.index)
    sizes: dict[int, int] = {}
    for leader, led in by_leader.items():
        request = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic, partitions=led)])
        answer = await cluster.run(ask(leader, request, DescribeLogDirsResponse))
        for directory in answer.results:
            for row in (row for each in directory.topics for row in each.partitions):
                if not row.is_future_key:
                    sizes[row.partition_index] = row.partition_size
    return [PartitionSize(index, starts[at], ends[at], sizes.get(index, 0)) for index, at in indexes.items()]


async def delete_records(cluster: ClusterClient, topic: str, before: Mapping[int, int]) -> dict[int, int]:
    """Delete the records before an offset in each partition; returns the new first offsets."""

    def attempt() -> Steps[dict[int, int]]:
        yield from cluster.state.topic(topic)
        by_leader: defaultdict[int, list[DeleteRecordsPartition]] = defaultdict(list)
        for index, offset in before.items():
            leader = cluster.state.leader_id(TopicPartition(topic, index))
            assert leader is not None
            by_leader[leader].append(DeleteRecordsPartition(partition_index=index, offset=offset))
        starts: dict[int, int] = {}
        for leader, rows in by_leader.items():
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=topic, partitions=rows)], timeout_ms=DELETE_TIMEOUT_MS
            )
            answer = yield from ask(leader, request, DeleteRecordsResponse)
            for at in answer.topics[0].partitions:
                subject = f"deleting from partition {at.partition_index} of {topic}"
                raise_for(at.error_code, None, subject, needs=f"DELETE on TOPIC {topic}")
                starts[at.partition_index] = at.low_watermark
        return starts

    return await cluster.run_with_retries(attempt, unknown_topic_timeout_ms=0)
