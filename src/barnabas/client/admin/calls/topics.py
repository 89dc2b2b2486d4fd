"""CreateTopics, DeleteTopics and CreatePartitions for several topics in one request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from barnabas.client.admin.calls.per_resource import each_row
from barnabas.client.core.cluster_state import ClusterState
from barnabas.client.core.steps import ClusterUnreachable, Pause, Steps, ask, raise_for
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import (
    KafkaError,
    NetworkException,
    RequestTimedOut,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    error_for,
)
from barnabas.core.ids import ZERO_UUID, Uuid
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

BY_THE_BROKER = -1
KNOWN_TIMEOUT_MS = 5_000
"""Longest wait until every broker knows a new topic."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    name: str
    partitions: int = BY_THE_BROKER
    replication_factor: int = BY_THE_BROKER
    configs: Mapping[str, str] = field(default_factory=dict)
    assignment: Mapping[int, Sequence[int]] | None = None
    """Replicas by partition, instead of the two numbers."""


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    name: str
    topic_id: Uuid
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True)
class NewPartitions:
    total: int
    """Number of partitions afterwards."""
    assignment: Sequence[Sequence[int]] | None = None
    """Replicas of each new partition."""


def create_topics(
    state: ClusterState, topics: Sequence[NewTopic], timeout_ms: int, *, validate_only: bool
) -> Steps[dict[str, CreatedTopic]]:
    def attempt(left: Mapping[str, NewTopic]) -> Steps[Mapping[str, CreatedTopic | KafkaError]]:
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in left.values()],
            timeout_ms=timeout_ms,
            validate_only=validate_only,
        )
        answer = yield from state.ask_controller(request, CreateTopicsResponse)
        return {
            row.name: error_for(row.error_code, row.error_message or f"topic {row.name}")
            if row.error_code
            else CreatedTopic(row.name, row.topic_id or ZERO_UUID, row.num_partitions, row.replication_factor)
            for row in answer.topics
        }

    return (yield from each_row(state, {topic.name: topic for topic in topics}, attempt))


def wait_until_known(state: ClusterState, name: str, timeout_ms: int = KNOWN_TIMEOUT_MS) -> Steps[None]:
    """Return when the metadata of every broker has the topic and a leader for each of its partitions.

    The controller answers CreateTopics before the other brokers have its UpdateMetadata. A broker that does
    not answer, or that hides the topic from this user, is left out. A broker that was asked first may not
    know one that has just started, so every answer adds the brokers that it names.
    """
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    retries = state.retries(timeout_ms)
    yield from state.refresh(())
    asked: set[int] = set()
    while unasked := state.brokers.keys() - asked:
        broker_id = min(unasked)
        asked.add(broker_id)
        while retries.left_ms > 0:
            try:
                answer = yield from ask(broker_id, request, MetadataResponse, timeout_ms=retries.left_ms)
                for row in answer.brokers:
                    state.brokers.setdefault(row.node_id, Endpoint(row.host, row.port))
                for topic in answer.topics:
                    for code in (topic.error_code, *(each.error_code for each in topic.partitions)):
                        raise_for(code, None, f"topic {name}")
                break
            except (ClusterUnreachable, NetworkException, RequestTimedOut):
                break
            except KafkaError as error:
                try:
                    pause = Pause(retries.next_pause_ms(error), error, retries.left_ms)
                except KafkaError:
                    break
            yield pause


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions if topic.assignment is None else BY_THE_BROKER,
        replication_factor=topic.replication_factor if topic.assignment is None else BY_THE_BROKER,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in (topic.assignment or {}).items()
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in topic.configs.items()],
    )


def delete_topics(state: ClusterState, names: Sequence[str], timeout_ms: int) -> Steps[dict[str, None]]:
    def attempt(left: Mapping[str, None]) -> Steps[Mapping[str, KafkaError | None]]:
        try:
            request = DeleteTopicsRequest(
                topics=[DeleteTopicState(name=name) for name in left], timeout_ms=timeout_ms
            )
            answer = yield from state.ask_controller(request, DeleteTopicsResponse)
        except UnsupportedVersion:  # a broker without topic ids
            request = DeleteTopicsRequest(topic_names=list(left), timeout_ms=timeout_ms)
            answer = yield from state.ask_controller(request, DeleteTopicsResponse)
        return {
            row.name or "": _topic_error(row.error_code, row.error_message, row.name or "")
            for row in answer.responses
        }

    return (yield from each_row(state, dict.fromkeys(names), attempt))


def create_partitions(
    state: ClusterState,
    counts: Mapping[str, int | NewPartitions],
    timeout_ms: int,
    *,
    validate_only: bool,
) -> Steps[dict[str, None]]:
    wanted = {
        name: NewPartitions(count) if isinstance(count, int) else count for name, count in counts.items()
    }

    def attempt(left: Mapping[str, NewPartitions]) -> Steps[Mapping[str, KafkaError | None]]:
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(
                    name=name,
                    count=new.total,
                    assignments=None
                    if new.assignment is None
                    else [CreatePartitionsAssignment(broker_ids=list(each)) for each in new.assignment],
                )
                for name, new in left.items()
            ],
            timeout_ms=timeout_ms,
            validate_only=validate_only,
        )
        answer = yield from state.ask_controller(request, CreatePartitionsResponse)
        return {row.name: _topic_error(row.error_code, row.error_message, row.name) for row in answer.results}

    return (yield from each_row(state, wanted, attempt))


def _topic_error(code: int, message: str | None, topic: str) -> KafkaError | None:
    if not code:
        return None
    if code == UnknownTopicOrPartition.code:
        return error_for(code, f"there is no topic {topic}")
    return error_for(code, message or f"topic {topic}")
