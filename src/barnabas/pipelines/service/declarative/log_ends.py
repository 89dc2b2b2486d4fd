"""Begins and ends of the logs in the service's own cluster, from which lags are computed."""

from __future__ import annotations

from typing import Protocol

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.core.ids import TopicPartition
from barnabas.protocol.offset_numbers import READ_COMMITTED


class LogEnds(Protocol):
    """Offsets at which the partitions of a topic begin (EARLIEST) and end (LATEST), and its id."""

    async def offsets(self, topic: str, timestamp: int) -> dict[TopicPartition, int]: ...
    async def topic_id(self, topic: str) -> str: ...


class ClusterLogEnds:
    """Log ends as a consumer with `read_committed` sees them."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    async def topic_id(self, topic: str) -> str:
        return str((await self._cluster.topic(topic, auto_create=False)).topic_id)

    async def offsets(self, topic: str, timestamp: int) -> dict[TopicPartition, int]:
        count = len((await self._cluster.topic(topic, auto_create=False)).partitions)
        wanted = {TopicPartition(topic, partition): timestamp for partition in range(count)}
        return await self._cluster.run_with_retries(
            lambda: self._cluster.state.list_offsets(wanted, isolation=READ_COMMITTED)
        )
