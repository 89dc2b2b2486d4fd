"""Lag of the coordinated groups, in records and in time, for the metrics page.

Apache Kafka leaves the lag to its clients. The coordinator knows all committed offsets, so it knows the lag
of groups without a member too. The lag in records is the high watermark minus the committed offset. The lag
in time is the age of the first record behind the committed offset: the largest timestamp of its batch.

Where this broker has a replica of the partition, its log answers when the page is rendered. For other
partitions the broker asks the leader for the end offset at an interval (`remote_end_offsets`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from barnabas.cluster.metadata.cache import MetadataCache
from barnabas.coordinator.group.offsets.records import is_of_another_topic, unpack
from barnabas.coordinator.group.offsets.remote_end_offsets import RemoteEndOffsets
from barnabas.coordinator.group.shard import GroupShard
from barnabas.coordinator.runtime.runtime import CoordinatorRuntime
from barnabas.core.clock import Clock
from barnabas.core.ids import TopicPartition
from barnabas.core.reporting.metrics import Labels, Metrics
from barnabas.core.steps import Sliced
from barnabas.replication.partition.partition import Partition
from barnabas.storage.log.time_search import timestamp_of

LABELS = ("consumergroup", "partition", "topic")

FindPartition = Callable[[TopicPartition], Partition | None]


class Commit(NamedTuple):
    """Committed offset of a group in one partition."""

    group: str
    topic_partition: TopicPartition
    offset: int

    @property
    def labels(self) -> Labels:
        topic, partition = self.topic_partition
        return tuple(zip(LABELS, (self.group, str(partition), topic), strict=True))


class GroupLags:
    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard],
        metadata: MetadataCache,
        find_partition: FindPartition,
        remote: RemoteEndOffsets,
        clock: Clock,
    ) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._find_partition = find_partition
        self._remote = remote
        self._clock = clock
        self._timestamps: dict[tuple[str, TopicPartition], tuple[int, int | None]] = {}
        """Offset and timestamp that were read last, by group: a group that stands still costs one read. Only
        the lagging groups of the last page are kept."""

    def register(self, metrics: Metrics) -> None:
        metrics.samples(
            "kafka_consumergroup_current_offset",
            "Committed offset of a group that is coordinated here.",
            LABELS,
            self.offsets,
        )
        metrics.samples(
            "kafka_consumergroup_lag",
            "Committed records that a group coordinated here has not read, by its committed offsets.",
            LABELS,
            self.lags,
        )
        metrics.samples(
            "kafka_consumergroup_lag_ms",
            "Age of the first record that a group coordinated here has not read; 0 without lag.",
            LABELS,
            self.lag_times,
        )

    def commits(self) -> Iterator[Commit]:
        for _, shard in self._runtime.active_shards():
            for group, topics in list(shard.offsets.committed.items()):
                for topic, partitions in list(topics.items()):
                    known = self._metadata.topic(topic)
                    if known is None:
                        continue
                    for number, packed in list(partitions.items()):
                        if not is_of_another_topic(packed, known.topic_id):
                            yield Commit(group, TopicPartition(topic, number), unpack(packed).offset)

    def remote_partitions(self, limit: int) -> Sliced[list[TopicPartition]]:
        """Up to `limit` partitions with committed offsets that this broker has no replica of, in slices: a
        coordinator may have a million commits, few of them remote."""
        found: dict[TopicPartition, None] = {}
        for each in self.commits():
            if self._find_partition(each.topic_partition) is None:
                found[each.topic_partition] = None
                if len(found) >= limit:
                    break
            yield
        return list(found)

    def offsets(self) -> Iterator[tuple[Labels, float]]:
        return ((each.labels, each.offset) for each in self.commits())

    def lags(self) -> Iterator[tuple[Labels, float]]:
        for each in self.commits():
            lag = self._lag(each)
            if lag is not None:
                yield each.labels, lag

    def lag_times(self) -> Iterator[tuple[Labels, float]]:
        now_ms = self._clock.now_ms()
        before, self._timestamps = self._timestamps, {}
        for each in self.commits():
            lag = self._lag(each)
            if lag is None:
                continue
            since_ms = self._written_ms(each, before) if lag else now_ms
            if since_ms is not None:
                yield each.labels, max(0, now_ms - since_ms)

    def _lag(self, commit: Commit) -> int | None:
        local = self._find_partition(commit.topic_partition)
        if local is not None:
            return max(0, local.log.high_watermark - commit.offset)
        end_offset = self._remote.end_offset(commit.topic_partition)
        return None if end_offset is None else max(0, end_offset - commit.offset)

    def _written_ms(
        self, commit: Commit, before: Mapping[tuple[str, TopicPartition], tuple[int, int | None]]
    ) -> int | None:
        local = self._find_partition(commit.topic_partition)
        if local is None:
            return self._remote.passed_ms(commit.topic_partition, commit.offset)
        key = commit.group, commit.topic_partition
        known = before.get(key)
        if known is None or known[0] != commit.offset:
            known = commit.offset, timestamp_of(local.log, max(commit.offset, local.log.log_start_offset))
        self._timestamps[key] = known
        return known[1]

    def forget_topic(self, topic: str, *_: object) -> None:
        for each in [each for each in self._timestamps if each[1].topic == topic]:
            del self._timestamps[each]
