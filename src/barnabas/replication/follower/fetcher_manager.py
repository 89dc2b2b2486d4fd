"""Replica fetchers of a broker: `num.replica.fetchers` per source broker, partitions spread by hash."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from barnabas.core.ids import NO_LEADER, BrokerId, TopicPartition, java_hash
from barnabas.replication.partition.partition import Partition

if TYPE_CHECKING:  # a broker without followed partitions starts without fetchers
    from barnabas.replication.follower.fetcher_driver import FetcherDriver


class FetcherManager:
    def __init__(
        self, make_fetcher: Callable[[BrokerId], FetcherDriver], fetchers_per_broker: Callable[[], int]
    ) -> None:
        self._make_fetcher = make_fetcher
        self._fetchers_per_broker = fetchers_per_broker
        self._fetchers: dict[tuple[BrokerId, int], FetcherDriver] = {}
        self._by_partition: dict[TopicPartition, FetcherDriver] = {}

    def follow(self, partition: Partition) -> None:
        """Fetch the partition from its current leader."""
        topic_partition, leader_id = partition.topic_partition, partition.leadership.leader_id
        self.unfollow(topic_partition)
        if leader_id == NO_LEADER:
            return
        number = self._number(topic_partition)
        fetcher = self._fetchers.get((leader_id, number))
        if fetcher is None:
            fetcher = self._fetchers[leader_id, number] = self._make_fetcher(leader_id)
        self._by_partition[topic_partition] = fetcher
        fetcher.follow(partition)

    def unfollow(self, topic_partition: TopicPartition) -> None:
        driver = self._by_partition.pop(topic_partition, None)
        if driver is not None:
            driver.fetcher.unfollow(topic_partition)

    def flushed(self, topic_partition: TopicPartition) -> None:
        driver = self._by_partition.get(topic_partition)
        if driver is not None:
            driver.flushed(topic_partition)

    def close_idle(self) -> None:
        """Close fetchers without partitions."""
        for key, driver in list(self._fetchers.items()):
            if not len(driver.fetcher):
                del self._fetchers[key]
                driver.close()

    @property
    def max_lag(self) -> int:
        return max((driver.fetcher.max_lag for driver in self._fetchers.values()), default=0)

    def lags(self) -> Iterator[tuple[BrokerId, TopicPartition, int]]:
        """Source broker and lag of each followed partition."""
        for (source, _), driver in list(self._fetchers.items()):
            for key, lag in driver.fetcher.lags():
                yield source, key, lag

    @property
    def failed_partitions(self) -> int:
        return sum(driver.fetcher.failed_count for driver in self._fetchers.values())

    def close(self) -> None:
        fetchers, self._fetchers = list(self._fetchers.values()), {}
        self._by_partition.clear()
        for driver in fetchers:
            driver.close()

    def _number(self, topic_partition: TopicPartition) -> int:
        topic, partition = topic_partition
        return (31 * java_hash(topic) + partition) % self._fetchers_per_broker()
