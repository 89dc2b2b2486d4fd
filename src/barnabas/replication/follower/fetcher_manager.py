"""Which fetcher follows which partition: `num.replica.fetchers` for each source broker, by hash."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas.core.ids import NO_LEADER, BrokerId, TopicPartition, java_hash
from barnabas.replication.follower.replica_fetcher import ReplicaFetcher
from barnabas.replication.partition import Partition


class FetcherManager:
    def __init__(
        self, make_fetcher: Callable[[BrokerId], ReplicaFetcher], fetchers_per_broker: Callable[[], int]
    ) -> None:
        self._make_fetcher = make_fetcher
        self._fetchers_per_broker = fetchers_per_broker
        self._fetchers: dict[tuple[BrokerId, int], ReplicaFetcher] = {}
        self._home: dict[TopicPartition, ReplicaFetcher] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def follow(self, partition: Partition) -> None:
        """Fetch the partition from the leader that it has now."""
        topic_partition = partition.topic_partition
        self.unfollow(topic_partition)
        if partition.leadership.leader_id == NO_LEADER:
            return
        number = self._number(topic_partition)
        fetcher = self._fetchers.get((partition.leadership.leader_id, number))
        if fetcher is None:
            fetcher = self._make_fetcher(partition.leadership.leader_id)
            self._fetchers[partition.leadership.leader_id, number] = fetcher
        self._home[topic_partition] = fetcher
        fetcher.follow(partition)

    def unfollow(self, topic_partition: TopicPartition) -> None:
        fetcher = self._home.pop(topic_partition, None)
        if fetcher is not None:
            fetcher.unfollow(topic_partition)

    def flushed(self, topic_partition: TopicPartition) -> None:
        fetcher = self._home.get(topic_partition)
        if fetcher is not None:
            fetcher.flushed(topic_partition)

    def close_idle(self) -> None:
        """End the fetchers that have nothing left to follow."""
        for key, fetcher in list(self._fetchers.items()):
            if not len(fetcher):
                del self._fetchers[key]
                task = asyncio.get_running_loop().create_task(fetcher.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    @property
    def max_lag(self) -> int:
        return max((fetcher.max_lag for fetcher in self._fetchers.values()), default=0)

    @property
    def failed_partitions(self) -> int:
        return sum(fetcher.failed_count for fetcher in self._fetchers.values())

    async def close(self) -> None:
        fetchers, self._fetchers = list(self._fetchers.values()), {}
        self._home.clear()
        await asyncio.gather(*(fetcher.close() for fetcher in fetchers), *self._closing)

    def _number(self, topic_partition: TopicPartition) -> int:
        topic, partition = topic_partition
        return (31 * java_hash(topic) + partition) % self._fetchers_per_broker()
