"""Topic and configuration requests.

Changes of topics go to the controller. A broker that has lost that role answers NOT_CONTROLLER, which is
retriable, and the next attempt looks the controller up again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.cluster_state import Topic
from barnabas.client.core.steps import Response, Steps, ask, raise_for
from barnabas.core.errors import ResourceNotFound, UnknownTopicOrPartition, UnsupportedVersion
from barnabas.protocol.config_numbers import ConfigOperation, ConfigSource, ResourceType
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics import (
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
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.protocol.schema.message import Message

ADMIN_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    value: str | None
    """None for an unset value, and for a secret."""
    source: str
    is_default: bool
    is_read_only: bool
    is_sensitive: bool


class TopicAdmin:
    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    async def list_topics(self) -> list[Topic]:
        """All topics, by name."""
        await self._cluster.run_with_retries(lambda: self._cluster.state.refresh(None))
        return [topic for _, topic in sorted(self._cluster.state.topics.items())]

    async def describe_topics(self, names: Sequence[str]) -> list[Topic]:
        """Describe topics from fresh metadata. A topic that does not exist raises an error."""
        answer = await self._cluster.run_with_retries(lambda: self._cluster.state.refresh(names))
        for row in answer.topics:
            message = _unless_unknown(row.error_code, None, row.name or "")
            raise_for(row.error_code, message, f"topic {row.name}", needs=f"DESCRIBE on TOPIC {row.name}")
        return [self._cluster.state.topics[name] for name in names]

    async def create_topic(
        self, name: str, *, partitions: int = -1, replication_factor: int = -1, configs: Mapping[str, str]
    ) -> None:
        """Create a topic. A count of -1 means the broker's default."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=ADMIN_TIMEOUT_MS)

        def attempt() -> Steps[None]:
            answer = yield from self._cluster.state.ask_controller(request, CreateTopicsResponse)
            raise_for(answer.topics[0].error_code, answer.topics[0].error_message, f"topic {name}")

        await self._cluster.run_with_retries(attempt)

    async def delete_topic(self, name: str) -> None:
        state = self._cluster.state
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=ADMIN_TIMEOUT_MS)
        by_name = DeleteTopicsRequest(topic_names=[name], timeout_ms=ADMIN_TIMEOUT_MS)

        def attempt() -> Steps[None]:
            try:
                answer = yield from state.ask_controller(request, DeleteTopicsResponse)
            except UnsupportedVersion:  # a broker without topic ids
                answer = yield from state.ask_controller(by_name, DeleteTopicsResponse)
            row = answer.responses[0]
            message = _unless_unknown(row.error_code, row.error_message, name)
            raise_for(row.error_code, message, f"topic {name}")

        await self._cluster.run_with_retries(attempt, unknown_topic_timeout_ms=0)

    async def add_partitions(self, name: str, count: int) -> None:
        """Increase the number of partitions to `count`."""
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=ADMIN_TIMEOUT_MS)

        def attempt() -> Steps[None]:
            answer = yield from self._cluster.state.ask_controller(request, CreatePartitionsResponse)
            row = answer.results[0]
            message = _unless_unknown(row.error_code, row.error_message, name)
            raise_for(row.error_code, message, f"topic {name}")

        await self._cluster.run_with_retries(attempt, unknown_topic_timeout_ms=0)

    async def describe_configs(
        self, kind: ResourceType, name: str, keys: Sequence[str] | None = None
    ) -> list[Setting]:
        """Describe the settings of a topic or a broker, by name: all of them, or those in `keys`."""
        resource = DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=None if keys is None else list(keys)
        )
        request = DescribeConfigsRequest(resources=[resource])

        def attempt() -> Steps[list[Setting]]:
            answer = yield from self._send_about(kind, name, request, DescribeConfigsResponse)
            result = answer.results[0]
            raise_for(result.error_code, result.error_message, _subject(kind, name))
            return [
                Setting(
                    name=row.name,
                    value=row.value,
                    source=_source(row.config_source),
                    is_default=row.is_default or row.config_source == ConfigSource.DEFAULT,
                    is_read_only=row.read_only,
                    is_sensitive=row.is_sensitive,
                )
                for row in sorted(result.configs, key=lambda row: row.name)
            ]

        return await self._cluster.run_with_retries(attempt, unknown_topic_timeout_ms=0)

    async def alter_configs(
        self, kind: ResourceType, name: str, *, changes: Mapping[str, str], removals: Sequence[str] = ()
    ) -> None:
        """Set and delete settings, all or none. A deleted setting returns to its default."""
        configs = [
            AlterableConfig(name=key, config_operation=ConfigOperation.SET, value=value)
            for key, value in changes.items()
        ]
        configs += [
            AlterableConfig(name=key, config_operation=ConfigOperation.DELETE, value=None) for key in removals
        ]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource])

        def attempt() -> Steps[None]:
            answer = yield from self._send_about(kind, name, request, IncrementalAlterConfigsResponse)
            row = answer.responses[0]
            raise_for(row.error_code, row.error_message, _subject(kind, name))

        await self._cluster.run_with_retries(attempt, unknown_topic_timeout_ms=0)

    def _send_about(
        self, kind: ResourceType, name: str, request: Message, response_class: type[Response]
    ) -> Steps[Response]:
        """Send a request about settings: to the broker that they belong to, else to the controller."""
        if kind is not ResourceType.BROKER or not name:
            return (yield from self._cluster.state.ask_controller(request, response_class))
        yield from self._cluster.state.refresh(())
        broker_id = int(name)
        if broker_id not in self._cluster.state.brokers:
            known = ", ".join(map(str, sorted(self._cluster.state.brokers)))
            raise ResourceNotFound(f"there is no broker {broker_id}; the cluster has {known}")
        return (yield from ask(broker_id, request, response_class))


def _unless_unknown(code: int, message: str | None, topic: str) -> str | None:
    return f"there is no topic {topic}" if code == UnknownTopicOrPartition.code else message


def _subject(kind: ResourceType, name: str) -> str:
    return f"{kind.name.lower()} {name}" if name else f"every {kind.name.lower()}"


def _source(number: int) -> str:
    try:
        return ConfigSource(number).name.lower().replace("_", "-")
    except ValueError:
        return "unknown"
