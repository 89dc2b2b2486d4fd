"""Replica metrics: partitions, leaders, under-replicated partitions, logs and their directories, lag."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

from barnabas.core.ids import TopicPartition
from barnabas.core.reporting.metrics import Labels, Metrics
from barnabas.replication.follower.fetcher_manager import FetcherManager
from barnabas.replication.partition.partition import Partition
from barnabas.storage.files.environment import LogDirectory
from barnabas.storage.log.log import Log
from barnabas.storage.log_manager import LogManager


def register_replica_metrics(
    metrics: Metrics,
    partitions: Mapping[TopicPartition, Partition],
    log_manager: LogManager,
    fetchers: FetcherManager,
) -> None:
    def led() -> list[Partition]:
        return [each for each in partitions.values() if each.leadership.is_leader]

    for name, doc, read in (
        ("kafka_partitions", "Partitions on this broker.", lambda: len(partitions)),
        ("kafka_leaders", "Partitions led by this broker.", lambda: len(led())),
        (
            "kafka_under_replicated_partitions",
            "Partitions led here with replicas that are not in sync.",
            lambda: sum(len(each.leadership.isr) < len(each.leadership.replicas) for each in led()),
        ),
        (
            "kafka_under_min_isr_partitions",
            "Partitions led here with fewer in-sync replicas than min.insync.replicas.",
            lambda: sum(not each.has_enough_replicas for each in led()),
        ),
        (
            "kafka_at_min_isr_partitions",
            "Partitions led here with exactly min.insync.replicas in-sync replicas.",
            lambda: sum(len(each.leadership.isr) == each.effective_min_isr for each in led()),
        ),
        (
            "kafka_offline_replicas",
            "Replicas in log directories that failed, and those whose logs are damaged.",
            lambda: (
                len(log_manager.damaged)
                + sum(each.log.log_directory.failure is not None for each in partitions.values())
            ),
        ),
        (
            "kafka_offline_log_directories",
            "Offline log directories.",
            lambda: len(log_manager.offline_directories),
        ),
        (
            "kafka_reassigning_partitions",
            "Partitions led here that are being moved.",
            lambda: sum(
                bool(each.leadership.adding_replicas or each.leadership.removing_replicas) for each in led()
            ),
        ),
        (
            "kafka_replica_fetcher_max_lag",
            "The most records by which a replica here lags behind its leader.",
            lambda: fetchers.max_lag,
        ),
        (
            "kafka_replica_fetcher_failed_partitions",
            "Partitions that are not followed because of an error.",
            lambda: fetchers.failed_partitions,
        ),
    ):
        metrics.gauge(name, doc, read)
    _register_samples(metrics, log_manager, fetchers)


def _register_samples(metrics: Metrics, log_manager: LogManager, fetchers: FetcherManager) -> None:
    """Values of each partition, computed when the page is rendered."""

    def of_logs(read: Callable[[Log], int]) -> Callable[[], Iterator[tuple[Labels, float]]]:
        def collect() -> Iterator[tuple[Labels, float]]:
            for log in list(log_manager.logs()):
                yield _labels(log.topic_partition), read(log)

        return collect

    def lags() -> Iterator[tuple[Labels, float]]:
        for source, topic_partition, lag in fetchers.lags():
            topic, partition = topic_partition
            yield (("partition", str(partition)), ("source_broker", str(source)), ("topic", topic)), lag

    for name, doc, read in (
        ("kafka_log_size", "Bytes of the log.", lambda log: log.segments.size_bytes),
        ("kafka_log_num_log_segments", "Segments of the log.", lambda log: len(log.segments)),
        ("kafka_log_log_start_offset", "First offset of the log.", lambda log: log.log_start_offset),
        ("kafka_log_log_end_offset", "Offset of the next record.", lambda log: log.log_end_offset),
    ):
        metrics.samples(name, doc, ("partition", "topic"), of_logs(read))
    metrics.samples(
        "kafka_log_directory_offline",
        "1 for a log directory that is offline, 0 for the others.",
        ("log_directory",),
        lambda: (
            (_directory_labels(each), each.failure is not None) for each in list(log_manager.directories)
        ),
    )
    metrics.samples(
        "barnabas_log_directory_free_bytes",
        "Bytes that the broker may still write to the disk of a log directory.",
        ("log_directory",),
        lambda: _free_bytes(log_manager),
    )
    metrics.samples(
        "kafka_replica_fetcher_consumer_lag",
        "Committed records of the leader that the replica here lacks, by source broker.",
        ("partition", "source_broker", "topic"),
        lags,
    )


def _free_bytes(log_manager: LogManager) -> Iterator[tuple[Labels, float]]:
    for directory in list(log_manager.directories):
        if directory.failure is None:
            disk = os.statvfs(directory.path)
            yield _directory_labels(directory), disk.f_bavail * disk.f_frsize


def _directory_labels(directory: LogDirectory) -> Labels:
    return (("log_directory", directory.path),)


def _labels(topic_partition: TopicPartition) -> Labels:
    return (("partition", str(topic_partition.partition)), ("topic", topic_partition.topic))
