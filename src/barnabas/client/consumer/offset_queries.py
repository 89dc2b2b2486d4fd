"""Questions of the application about offsets: beginning, end, by time. Retried until a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.consumer.core.reset_strategy import ResetStrategy
from barnabas.client.consumer.position_updates import PositionUpdates
from barnabas.client.core.offsets import OffsetAndTime
from barnabas.core.errors import KafkaError
from barnabas.core.ids import NO_OFFSET, TopicPartition


class OffsetQueries:
    def __init__(self, cluster: ClusterClient, updates: PositionUpdates) -> None:
        self._cluster = cluster
        self._updates = updates

    async def bounds(
        self, partitions: Iterable[TopicPartition], at: ResetStrategy, timeout_ms: float
    ) -> dict[TopicPartition, int]:
        wanted = {TopicPartition(*each): at.timestamp for each in partitions}
        found = await self._ask(wanted, timeout_ms)
        return {each: offset for each, (offset, _, _) in found.items()}

    async def at_times(
        self, times: Mapping[TopicPartition, int], timeout_ms: float
    ) -> dict[TopicPartition, OffsetAndTime | None]:
        found = await self._ask({TopicPartition(*at): ms for at, ms in times.items()}, timeout_ms)
        return {
            at: None if offset == NO_OFFSET else OffsetAndTime(offset, timestamp_ms)
            for at, (offset, _, timestamp_ms) in found.items()
        }

    async def _ask(
        self, wanted: Mapping[TopicPartition, int], timeout_ms: float
    ) -> dict[TopicPartition, tuple[int, int, int]]:
        metadata = self._cluster.metadata
        retries = self._cluster.state.retries(timeout_ms)
        unknown = {at.topic for at in wanted} - metadata.topics.keys()
        for topic in unknown:
            metadata.want(topic, self._cluster.clock.monotonic_ms() + 2 * timeout_ms)
        if unknown:
            await self._cluster.updates.until(
                lambda: all(topic in metadata.topics or topic in metadata.errors for topic in unknown),
                timeout_ms,
                ", ".join(sorted(unknown)),
            )
        found: dict[TopicPartition, tuple[int, int, int]] = {}
        while left := {at: ms for at, ms in wanted.items() if at not in found}:
            failure: Exception | None = None
            for at, outcome in (await self._updates.list_offsets(left)).items():
                if isinstance(outcome, Exception):
                    failure = outcome
                else:
                    found[at] = outcome
            if failure is not None:
                if not isinstance(failure, KafkaError):
                    raise failure
                pause_ms = retries.next_pause_ms(failure)
                self._cluster.updates.request()
                await asyncio.sleep(pause_ms / 1_000)
        return found
