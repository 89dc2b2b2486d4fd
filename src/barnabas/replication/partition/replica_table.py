"""Partitions of this broker by name, with the metrics of their topics."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.config.log_config import LogConfig
from barnabas.core.errors import KafkaStorageError, UnknownTopicOrPartition
from barnabas.core.ids import TopicPartition
from barnabas.core.reporting.metrics import Metrics
from barnabas.replication.partition.partition import Partition
from barnabas.replication.partition.topic_metrics import TopicMetrics


class ReplicaTable:
    def __init__(self, metrics: Metrics, check_absent: Callable[[TopicPartition], None]) -> None:
        """`check_absent` raises if a partition is missing for a special reason, such as a damaged log."""
        self._metrics = metrics
        self._check_absent = check_absent
        self.partitions: dict[TopicPartition, Partition] = {}
        self._topic_metrics: dict[str, TopicMetrics] = {}

    def partition(self, topic: str, index: int) -> Partition:
        # A plain tuple is equal to the TopicPartition that is the key, and cheaper to make.
        found: Partition | None = self.partitions.get((topic, index))  # type: ignore[call-overload]
        if found is None:
            self._check_absent(TopicPartition(topic, index))
            raise UnknownTopicOrPartition(f"this broker has no partition {topic}-{index}")
        if found.log.log_directory.failure is not None:
            raise KafkaStorageError(f"the log directory of {topic}-{index} is offline")
        return found

    def find(self, topic_partition: TopicPartition) -> Partition | None:
        """The partition in any condition, also in an offline directory."""
        return self.partitions.get(topic_partition)

    def update_log_config(self, topic: str, config: LogConfig) -> None:
        for topic_partition, partition in self.partitions.items():
            if topic_partition.topic == topic:
                partition.log.update_config(config)

    def metrics_of(self, topic: str) -> TopicMetrics:
        """Counters of a topic that has a partition here."""
        found = self._topic_metrics.get(topic)
        if found is None:
            found = self._topic_metrics[topic] = TopicMetrics(self._metrics, topic)
        return found

    def count_failed_produce(self, topic: str, rejected_bytes: int) -> None:
        known = self._topic_metrics.get(topic)
        if known is not None:
            known.failed_produce.value += 1
            known.total_produce.value += 1
            known.bytes_rejected.value += rejected_bytes

    def count_failed_fetch(self, topic: str) -> None:
        known = self._topic_metrics.get(topic)
        if known is not None:
            known.failed_fetch.value += 1

    def forget_topic(self, topic: str) -> None:
        """Drop the metrics of a deleted topic."""
        self._topic_metrics.pop(topic, None)
        self._metrics.forget(topic=topic)
