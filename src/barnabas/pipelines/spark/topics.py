"""Makes the topics that a pipeline writes to, with the broker's own defaults, where they are missing."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

from barnabas.client.admin import Admin
from barnabas.client.cluster_client import ClusterClient
from barnabas.client.steps import ClusterUnreachable
from barnabas.core.clock import SystemClock
from barnabas.core.endpoints import Endpoint
from barnabas.core.errors import KafkaError, TopicAlreadyExists
from barnabas.pipelines.spark.reach import run_apart
from barnabas.pipelines.spark.run import Unavailable


def ensure_topics(
    options: Mapping[str, str], names: Iterable[str], configs: Mapping[str, str] | None = None
) -> None:
    """A cluster that wants TLS or passwords is left alone: there, topics are made beforehand."""
    if options.get("kafka.security.protocol", "PLAINTEXT") != "PLAINTEXT":
        return
    try:
        run_apart(_ensure(options["kafka.bootstrap.servers"], list(names), configs or {}))
    except ClusterUnreachable as error:
        raise Unavailable(f"no broker can be reached: {error}") from None
    except KafkaError as error:
        raise Unavailable(f"a topic cannot be made: {error.message}") from None


async def _ensure(bootstrap: str, names: list[str], configs: Mapping[str, str]) -> None:
    addresses = [Endpoint.parse(part) for part in bootstrap.split(",")]
    cluster = ClusterClient(addresses, clock=SystemClock(), randomness=random.SystemRandom())
    async with cluster:
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
