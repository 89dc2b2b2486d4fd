"""Makes the topics that a pipeline writes to, with the broker's own defaults, where they are missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.client.admin import Admin
from barnabas.client.steps import ClusterUnreachable
from barnabas.core.endpoints import Endpoint
from barnabas.core.errors import KafkaError, TopicAlreadyExists
from barnabas.pipelines.spark.reach import client_of, run_apart
from barnabas.pipelines.spark.run import Unavailable
from barnabas.pipelines.spec.client_settings import plain_names


def ensure_topics(
    options: Mapping[str, str], names: Iterable[str], configs: Mapping[str, str] | None = None
) -> None:
    """By the connector's `options`: whoever runs the pipeline may make the topics, or they are there."""
    try:
        run_apart(_ensure(options, list(names), configs or {}))
    except ClusterUnreachable as error:
        raise Unavailable(f"no broker can be reached: {error}") from None
    except KafkaError as error:
        raise Unavailable(f"a topic cannot be made: {error.message}") from None


async def _ensure(options: Mapping[str, str], names: list[str], configs: Mapping[str, str]) -> None:
    settings = plain_names({name: text for name, text in options.items() if name.startswith("kafka.")})
    addresses = [Endpoint.parse(part) for part in settings["bootstrap.servers"].split(",")]
    async with client_of(addresses, settings) as cluster:
        answer = await cluster.refresh(names)
        missing = [row.name for row in answer.topics if row.error_code and row.name]
        for name in missing:
            try:
                await Admin(cluster).create_topic(
                    name, partitions=1 if configs else -1, configs=dict(configs)
                )
            except TopicAlreadyExists:
                continue
            await cluster.topic(name, auto_create=False, unknown_timeout_ms=5_000)
