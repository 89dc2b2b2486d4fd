"""ElectLeaders (43), v0-2. Gaps: none.

The controller elects, and the answer waits until this broker has heard of the new leaders.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.cluster.znodes import PartitionState
from barnabas.controller.partition_machine import Election
from barnabas.core.errors import (
    NONE,
    ElectionNotNeeded,
    InvalidRequest,
    KafkaError,
    RequestTimedOut,
)
from barnabas.core.ids import TopicPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.controllers import Deadline, in_pieces
from barnabas.requests.failures import code_and_message
from barnabas.requests.registry import Api

_PREFERRED, _UNCLEAN = 0, 1
VERSION_WITH_ERROR = 1
"""Since then an answer has an error of its own, besides those of the partitions."""

Outcomes = dict[TopicPartition, PartitionState | KafkaError]
"""The new state of each partition, or why there is none."""


async def handle_elect_leaders(request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        raise InvalidRequest(f"election type {request.election_type} is not known")
    asked = None
    if request.topic_partitions is not None:
        asked = [TopicPartition(each.topic, p) for each in request.topic_partitions for p in each.partitions]
    election = Election.PREFERRED if request.election_type == _PREFERRED else Election.OFFLINE_UNCLEAN
    deadline = Deadline(context, request.timeout_ms)
    controller = context.broker.controller
    if asked is None:
        outcomes = await controller.elect_leaders(election, None)
    else:
        outcomes = {}
        for some in in_pieces(asked):
            outcomes.update(await controller.elect_leaders(election, some))
    await _wait_for_leaders(outcomes, context, deadline)
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=topic, partition_result=_results(errors))
            for topic, errors in _by_topic(request, context, outcomes).items()
        ]
    )


def _by_topic(
    request: ElectLeadersRequest, context: RequestContext, outcomes: Outcomes
) -> dict[str, list[tuple[int, KafkaError | None]]]:
    """What is answered of each topic: of all partitions only those are named whose election was needed."""
    by_topic: dict[str, list[tuple[int, KafkaError | None]]] = {}
    if request.topic_partitions is None:
        by_topic = {topic.name: [] for topic in context.broker.metadata.topics()}
        for (topic, partition), outcome in outcomes.items():
            if not isinstance(outcome, ElectionNotNeeded):
                by_topic.setdefault(topic, []).append((partition, _failure(outcome)))
        return by_topic
    for each in request.topic_partitions:
        by_topic.setdefault(each.topic, []).extend(
            (partition, _failure(outcomes[TopicPartition(each.topic, partition)]))
            for partition in each.partitions
        )
    return by_topic


def _failure(outcome: PartitionState | KafkaError) -> KafkaError | None:
    return outcome if isinstance(outcome, KafkaError) else None


async def _wait_for_leaders(
    outcomes: Outcomes,
    context: RequestContext,
    deadline: Deadline,
) -> None:
    """Until this broker knows the elected leaders; those that it does not hear of time out."""
    metadata = context.broker.metadata

    def unheard_of() -> list[TopicPartition]:
        return [
            each
            for each, outcome in outcomes.items()
            if isinstance(outcome, PartitionState)
            and (known := metadata.partition(*each)) is not None
            and known.leader_epoch < outcome.leader_epoch
        ]

    if not await context.broker.metadata_wait.until(lambda: not unheard_of(), deadline.left_ms()):
        for each in unheard_of():
            outcomes[each] = RequestTimedOut(f"this broker has not heard of the new leader of {each}")


def _refused(request: ElectLeadersRequest, error: KafkaError, version: int) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=error.code if version >= VERSION_WITH_ERROR else NONE,
        replica_election_results=[
            ReplicaElectionResult(
                topic=each.topic, partition_result=_results([(p, error) for p in each.partitions])
            )
            for each in request.topic_partitions or []
        ],
    )


def _results(errors: Iterable[tuple[int, KafkaError | None]]) -> list[PartitionResult]:
    coded = [(p, *code_and_message(error)) for p, error in errors]
    return [
        PartitionResult(partition_id=p, error_code=code, error_message=message) for p, code, message in coded
    ]


ELECT_LEADERS = Api(ApiKey.ELECT_LEADERS, handle=handle_elect_leaders, refused=_refused)
