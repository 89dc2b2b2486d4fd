"""A topic's oldest records, deleted over the wire: each leader is asked for its partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from barnabas.client.cluster_client import ClusterClient
from barnabas.client.steps import Steps, ask, raise_for
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

DELETE_TIMEOUT_MS = 30_000


async def delete_records(cluster: ClusterClient, topic: str, before: Mapping[int, int]) -> dict[int, int]:
    """Delete what lies before an offset in each partition; returns their new first offsets."""

    def attempt() -> Steps[dict[int, int]]:
        found = yield from cluster.state.topic(topic)
        by_leader: defaultdict[int, list[DeleteRecordsPartition]] = defaultdict(list)
        for index, offset in before.items():
            row = DeleteRecordsPartition(partition_index=index, offset=offset)
            by_leader[found.partitions[index].leader_id].append(row)
        starts: dict[int, int] = {}
        for leader, rows in by_leader.items():
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=topic, partitions=rows)], timeout_ms=DELETE_TIMEOUT_MS
            )
            answer = yield from ask(leader, request, DeleteRecordsResponse)
            for at in answer.topics[0].partitions:
                raise_for(at.error_code, None, f"deleting from partition {at.partition_index} of {topic}")
                starts[at.partition_index] = at.low_watermark
        return starts

    return await cluster.run_with_retries(attempt)
