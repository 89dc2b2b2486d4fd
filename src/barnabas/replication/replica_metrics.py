"""The metrics by which an operator sees how replication is doing."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.core.ids import TopicPartition
from barnabas.core.metrics import Metrics
from barnabas.replication.follower.fetcher_manager import FetcherManager
from barnabas.replication.partition import Partition
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
            "Log directories that failed.",
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
