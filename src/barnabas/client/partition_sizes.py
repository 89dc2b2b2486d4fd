"""What lies in the partitions of a topic: their first and next offsets, and their size on disk."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from barnabas.client.cluster_client import ClusterClient
from barnabas.client.consumer import list_offsets
from barnabas.client.steps import ask
from barnabas.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from barnabas.protocol.offset_numbers import EARLIEST, LATEST


@dataclass(frozen=True, slots=True)
class PartitionSize:
    partition: int
    start_offset: int
    end_offset: int
    size_bytes: int


async def partition_sizes(cluster: ClusterClient, topic: str) -> list[PartitionSize]:
    """By partition; what compaction removed is within the offsets, and not in the size."""
    partitions = (await cluster.topic(topic)).partitions
    indexes = [each.index for each in partitions]
    starts = await list_offsets(cluster, topic, indexes, EARLIEST)
    ends = await list_offsets(cluster, topic, indexes, LATEST)
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
    return [PartitionSize(index, starts[index], ends[index], sizes.get(index, 0)) for index in indexes]
