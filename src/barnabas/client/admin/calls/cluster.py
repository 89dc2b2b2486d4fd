"""Calls about the cluster and its brokers: DescribeCluster, features, log directories, config resources."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from barnabas.client.core.cluster_state import ClusterState
from barnabas.client.core.steps import ANY_BROKER, Steps, ask, raise_for
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import KafkaError, error_for
from barnabas.core.ids import TopicPartition
from barnabas.protocol.config_numbers import ResourceType
from barnabas.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from barnabas.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    broker_id: int
    address: Endpoint
    rack: str | None
    is_fenced: bool


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerDescription, ...]


@dataclass(frozen=True, slots=True)
class ReplicaInLogDir:
    size_bytes: int
    offset_lag: int
    is_future: bool
    """True for a copy that moves between directories."""


@dataclass(frozen=True, slots=True)
class LogDir:
    path: str
    error: KafkaError | None
    total_bytes: int
    usable_bytes: int
    replicas: Mapping[TopicPartition, ReplicaInLogDir]


def describe_cluster(*, include_fenced: bool) -> Steps[ClusterDescription]:
    request = DescribeClusterRequest(include_fenced_brokers=include_fenced)
    answer = yield from ask(ANY_BROKER, request, DescribeClusterResponse)
    raise_for(answer.error_code, answer.error_message, "the cluster")
    return ClusterDescription(
        answer.cluster_id,
        answer.controller_id,
        tuple(
            BrokerDescription(row.broker_id, Endpoint(row.host, row.port), row.rack, row.is_fenced)
            for row in sorted(answer.brokers, key=lambda row: row.broker_id)
        ),
    )


def describe_log_dirs(
    state: ClusterState, brokers: Sequence[int] | None
) -> Steps[dict[int, dict[str, LogDir]]]:
    """Log directories by broker and path, of these brokers or of all."""
    yield from state.refresh(())
    found: dict[int, dict[str, LogDir]] = {}
    for broker_id in sorted(state.brokers) if brokers is None else brokers:
        answer = yield from ask(broker_id, DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        raise_for(answer.error_code, None, f"log directories of broker {broker_id}")
        found[broker_id] = {
            row.log_dir: LogDir(
                row.log_dir,
                error_for(row.error_code, row.log_dir) if row.error_code else None,
                row.total_bytes,
                row.usable_bytes,
                {
                    TopicPartition(topic.name, each.partition_index): ReplicaInLogDir(
                        each.partition_size, each.offset_lag, each.is_future_key
                    )
                    for topic in row.topics
                    for each in topic.partitions
                },
            )
            for row in answer.results
        }
    return found


def alter_replica_log_dirs(
    broker_id: int, moves: Mapping[TopicPartition, str]
) -> Steps[dict[TopicPartition, KafkaError | None]]:
    """Move replicas of a broker to other directories; returns the error of each, or None."""
    by_path: defaultdict[str, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for at, path in moves.items():
        by_path[path][at.topic].append(at.partition)
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path,
                topics=[
                    AlterReplicaLogDirTopic(name=name, partitions=numbers) for name, numbers in topics.items()
                ],
            )
            for path, topics in by_path.items()
        ]
    )
    answer = yield from ask(broker_id, request, AlterReplicaLogDirsResponse)
    return {
        TopicPartition(topic.topic_name, row.partition_index): error_for(row.error_code, topic.topic_name)
        if row.error_code
        else None
        for topic in answer.results
        for row in topic.partitions
    }


def list_config_resources(kinds: Sequence[ResourceType]) -> Steps[list[tuple[ResourceType, str]]]:
    """Resources that have settings of their own."""
    request = ListConfigResourcesRequest(resource_types=[int(kind) for kind in kinds])
    answer = yield from ask(ANY_BROKER, request, ListConfigResourcesResponse)
    raise_for(answer.error_code, None, "resources with settings")
    return sorted((ResourceType(row.resource_type), row.resource_name) for row in answer.config_resources)


def replace_configs(
    state: ClusterState, kind: ResourceType, name: str, configs: Mapping[str, str], *, validate_only: bool
) -> Steps[None]:
    """AlterConfigs: these settings, and no others (Kafka's older form)."""
    rows = [AlterableConfig(name=key, value=value) for key, value in configs.items()]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
    request = AlterConfigsRequest(resources=[resource], validate_only=validate_only)
    answer = yield from state.ask_controller(request, AlterConfigsResponse)
    row = answer.responses[0]
    raise_for(row.error_code, row.error_message, f"{kind.name.lower()} {name}")
