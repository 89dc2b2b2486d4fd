"""Leader elections on request: of the preferred replica, or unclean."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from enum import IntEnum

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.steps import Steps, raise_for
from barnabas.core.errors import NONE, ElectionNotNeeded
from barnabas.core.ids import TopicPartition
from barnabas.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)


class ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


async def elect_leaders(
    cluster: ClusterClient, kind: ElectionType, partitions: Iterable[TopicPartition] | None
) -> dict[TopicPartition, int]:
    """Elect leaders; returns an error code for each requested partition, 0 where a leader was elected.

    None requests every partition. The result then omits partitions that need no election.
    """
    wanted = None
    if partitions is not None:
        by_topic: defaultdict[str, list[int]] = defaultdict(list)
        for topic, partition in partitions:
            by_topic[topic].append(partition)
        wanted = [TopicPartitions(topic=name, partitions=numbers) for name, numbers in by_topic.items()]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=wanted)

    def attempt() -> Steps[dict[TopicPartition, int]]:
        answer = yield from cluster.state.ask_controller(request, ElectLeadersResponse)
        raise_for(answer.error_code, None, "electing leaders", needs="ALTER on CLUSTER kafka-cluster")
        return {
            TopicPartition(result.topic, row.partition_id): row.error_code
            for result in answer.replica_election_results
            for row in result.partition_result
            if partitions is not None or row.error_code != ElectionNotNeeded.code
        }

    return await cluster.run_with_retries(attempt, unknown_topic_timeout_ms=0)


def is_elected(code: int) -> bool:
    return code in (NONE, ElectionNotNeeded.code)
