"""ElectLeaders (43), v0-2. Gaps: on one node there is nobody else to elect.

A partition has one replica. If it lives it leads, so no election is needed; if its log directory
is offline, nobody can lead.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.core.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidRequest,
    KafkaError,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import NO_LEADER, TopicPartition
from barnabas.handlers.context import RequestContext
from barnabas.handlers.registry import Api
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

_PREFERRED, _UNCLEAN = 0, 1


def handle_elect_leaders(request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        return _refused(request, InvalidRequest(f"election type {request.election_type} is not known"))
    metadata = context.broker.metadata
    asked: dict[str, list[int]] = {}
    if request.topic_partitions is None:
        asked = {topic.name: [p.partition for p in topic.partitions] for topic in metadata.topics()}
    else:
        for each in request.topic_partitions:
            asked.setdefault(each.topic, []).extend(each.partitions)
    results = []
    for topic, partitions in asked.items():
        errors = [(p, _elect(TopicPartition(topic, p), request.election_type, context)) for p in partitions]
        if request.topic_partitions is None:
            # Of all partitions only those are named whose election was needed.
            errors = [(p, error) for p, error in errors if not isinstance(error, ElectionNotNeeded)]
        results.append(ReplicaElectionResult(topic=topic, partition_result=_results(errors)))
    return ElectLeadersResponse(replica_election_results=results)


def _refused(request: ElectLeadersRequest, error: KafkaError) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=error.code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=each.topic, partition_result=_results([(p, error) for p in each.partitions])
            )
            for each in request.topic_partitions or []
        ],
    )


def _results(errors: Iterable[tuple[int, KafkaError]]) -> list[PartitionResult]:
    return [
        PartitionResult(partition_id=p, error_code=error.code, error_message=error.message)
        for p, error in errors
    ]


def _elect(topic_partition: TopicPartition, election_type: int, context: RequestContext) -> KafkaError:
    partition = context.broker.metadata.partition(*topic_partition)
    if partition is None:
        return UnknownTopicOrPartition(f"there is no partition {topic_partition}")
    if partition.leader != NO_LEADER:
        return ElectionNotNeeded(f"{topic_partition} is led by its only replica")
    if election_type == _PREFERRED:
        return PreferredLeaderNotAvailable(f"the replica of {topic_partition} is offline")
    return EligibleLeadersNotAvailable(f"the replica of {topic_partition} is offline")


ELECT_LEADERS = Api(ApiKey.ELECT_LEADERS, versions=range(3), handle=handle_elect_leaders)
