"""Creation of missing output topics, with the broker's defaults, and their message size limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.client.admin.topics_and_configs import TopicAdmin
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import KafkaError, TopicAlreadyExists, UnknownTopicOrPartition
from barnabas.pipelines.spark.context.connectivity_checks import client_of, run_apart
from barnabas.pipelines.spark.context.run_context import Away, Unavailable
from barnabas.pipelines.spec.options.client_settings import plain_names
from barnabas.protocol.config_numbers import ResourceType

BYTES_MAX = "max.message.bytes"
CLEANUP_POLICY = "cleanup.policy"
MESSAGE_BYTES_MAX = 1_048_588
"""Kafka's default of `max.message.bytes`."""


def ensure_topics(
    options: Mapping[str, str],
    names: Iterable[str],
    configs: Mapping[str, str] | None = None,
    *,
    partitions: int = -1,
) -> None:
    """Create missing topics through the connector's `options`. The client needs the right to create them."""
    try:
        run_apart(_ensure(options, list(names), configs or {}, partitions))
    except ClusterUnreachable as error:
        raise Away(f"no broker can be reached: {error}") from None
    except KafkaError as error:
        kind = Away if error.retriable else Unavailable
        raise kind(f"a topic cannot be created: {error.message}") from None


def message_bytes_max(options: Mapping[str, str], names: Iterable[str]) -> dict[str, int]:
    """`max.message.bytes` of each existing topic; Kafka's default where the broker does not return it."""
    found = topic_setting(options, names, BYTES_MAX)
    return {name: int(value) if value else MESSAGE_BYTES_MAX for name, value in found.items()}


def topic_setting(options: Mapping[str, str], names: Iterable[str], setting: str) -> dict[str, str]:
    """A setting of each existing topic; empty where the broker does not return it."""
    found: dict[str, str] = {}
    try:
        run_apart(_ask_setting(options, list(names), setting, found))
    except ClusterUnreachable as error:
        raise Away(f"no broker can be reached: {error}") from None
    return found


async def _ask_setting(
    options: Mapping[str, str], names: list[str], setting: str, found: dict[str, str]
) -> None:
    async with opened_cluster(options) as cluster:
        for name in names:
            try:
                settings = await TopicAdmin(cluster).describe_configs(ResourceType.TOPIC, name, [setting])
            except UnknownTopicOrPartition:
                continue
            except KafkaError:
                settings = []
            values = [each.value for each in settings if each.name == setting and each.value]
            found[name] = str(values[0]) if values else ""


def opened_cluster(options: Mapping[str, str]) -> ClusterClient:
    """Client by the connector's `options`; open it with `async with`."""
    settings = plain_names({name: text for name, text in options.items() if name.startswith("kafka.")})
    addresses = [Endpoint.parse(part) for part in settings["bootstrap.servers"].split(",")]
    return client_of(addresses, settings)


async def _ensure(
    options: Mapping[str, str], names: list[str], configs: Mapping[str, str], partitions: int
) -> None:
    async with opened_cluster(options) as cluster:
        answer = await cluster.refresh(names)
        missing = [row.name for row in answer.topics if row.error_code and row.name]
        for name in missing:
            try:
                await TopicAdmin(cluster).create_topic(name, partitions=partitions, configs=dict(configs))
            except TopicAlreadyExists:
                continue
            await cluster.topic(name, auto_create=False, unknown_timeout_ms=5_000)
