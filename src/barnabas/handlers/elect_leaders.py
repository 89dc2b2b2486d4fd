"""ElectLeaders (43), v0-2. Gaps: none.

The controller elects, and the response waits until this broker's metadata names the new leaders.
"""

from __future__ import annotations

from barnabas.cluster.znodes.layout import PartitionState
from barnabas.controller.machines.partition_machine import Election
from barnabas.core.errors import (
    NONE,
    ElectionNotNeeded,
    InvalidRequest,
    KafkaError,
    RequestTimedOut,
)
from barnabas.core.ids import TopicPartition
from barnabas.core.steps import Sliced
from barnabas.handlers.shared.controller_only import Deadline, in_pieces
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from barnabas.requests.bounded_loops import each
from barnabas.requests.context import RequestContext
from barnabas.requests.errors import partition_code_and_message
from barnabas.requests.registry import Api

_PREFERRED, _UNCLEAN = 0, 1
VERSION_WITH_ERROR = 1
"""Since this version the response has an error of its own, apart from those of the partitions."""

Outcomes = dict[TopicPartition, PartitionState | KafkaError]
Errors = dict[str, list[tuple[int, KafkaError | None]]]
"""Partitions and their errors, by topic."""
"""New state of each partition, or the error that prevented the election."""


async def handle_elect_leaders(request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        raise InvalidRequest(f"election type {request.election_type} is not known")
    asked = None
    if request.topic_partitions is not None:
        asked = [
            TopicPartition(named.topic, p) for named in request.topic_partitions for p in named.partitions
        ]
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
        replica_election_results=await context.spread(
            _results(await context.spread(_by_topic(request, context, outcomes)))
        )
    )


def _by_topic(request: ElectLeadersRequest, context: RequestContext, outcomes: Outcomes) -> Sliced[Errors]:
    """Results by topic. A request for all partitions names only those whose election was needed."""
    by_topic: Errors = {}
    if request.topic_partitions is None:
        by_topic = {topic.name: [] for topic in context.broker.metadata.topics()}
        for (topic, partition), outcome in outcomes.items():
            if not isinstance(outcome, ElectionNotNeeded):
                by_topic.setdefault(topic, []).append((partition, _failure(outcome)))
            yield
        return by_topic
    for asked in request.topic_partitions:
        errors = by_topic.setdefault(asked.topic, [])
        for partition in asked.partitions:
            errors.append((partition, _failure(outcomes[TopicPartition(asked.topic, partition)])))
            yield
    return by_topic


def _failure(outcome: PartitionState | KafkaError) -> KafkaError | None:
    return outcome if isinstance(outcome, KafkaError) else None


async def _wait_for_leaders(
    outcomes: Outcomes,
    context: RequestContext,
    deadline: Deadline,
) -> None:
    """Wait until this broker's metadata names the elected leaders; the others get REQUEST_TIMED_OUT."""
    metadata = context.broker.metadata

    def unheard_of() -> list[TopicPartition]:
        return [
            led
            for led, outcome in outcomes.items()
            if isinstance(outcome, PartitionState)
            and (known := metadata.partition(*led)) is not None
            and known.leader_epoch < outcome.leader_epoch
        ]

    if not await context.broker.metadata_wait.until(lambda: not unheard_of(), deadline.left_ms()):
        for led in unheard_of():
            outcomes[led] = RequestTimedOut(f"this broker's metadata does not name the new leader of {led}")


def _refused(request: ElectLeadersRequest, error: KafkaError, version: int) -> Sliced[ElectLeadersResponse]:
    errors: Errors = {}
    for asked in request.topic_partitions or ():
        errors.setdefault(asked.topic, []).extend([(partition, error) for partition in asked.partitions])
        yield
    return ElectLeadersResponse(
        error_code=error.code if version >= VERSION_WITH_ERROR else NONE,
        replica_election_results=(yield from _results(errors)),
    )


def _results(errors: Errors) -> Sliced[list[ReplicaElectionResult]]:
    results = []
    for topic, partitions in errors.items():
        answers = yield from each(partitions, _partition_result)
        results.append(ReplicaElectionResult(topic=topic, partition_result=answers))
        yield
    return results


def _partition_result(outcome: tuple[int, KafkaError | None]) -> PartitionResult:
    partition, error = outcome
    code, message = partition_code_and_message(error)
    return PartitionResult(partition_id=partition, error_code=code, error_message=message)


ELECT_LEADERS = Api(ApiKey.ELECT_LEADERS, handle=handle_elect_leaders, refused=_refused)
