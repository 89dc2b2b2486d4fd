"""Metrics of the controller; all are 0 on the other brokers."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.controller.term import Term
from barnabas.core.reporting.metrics import Metrics


def register_controller_metrics(metrics: Metrics, present_term: Callable[[], Term | None]) -> None:
    def gauge(name: str, doc: str, read: Callable[[Term], float]) -> None:
        def value() -> float:
            term = present_term()
            return 0 if term is None else read(term)

        metrics.gauge(name, doc, value)

    gauge(
        "kafka_controller_active_controller_count",
        "1 on the active controller, 0 on the other brokers.",
        lambda _: 1,
    )
    gauge(
        "kafka_controller_offline_partitions_count",
        "Partitions without a leader.",
        lambda term: term.context.offline_partition_count(),
    )
    gauge(
        "kafka_controller_preferred_replica_imbalance_count",
        "Partitions that are not led by their preferred replica.",
        lambda term: term.context.preferred_replica_imbalance_count(),
    )
    gauge(
        "kafka_controller_global_topic_count",
        "Topics of the cluster.",
        lambda term: len(term.context.assignments),
    )
    gauge(
        "kafka_controller_global_partition_count",
        "Partitions of the cluster.",
        lambda term: len(term.context.leadership),
    )
    gauge(
        "kafka_controller_topics_to_delete_count",
        "Topics that are being deleted.",
        lambda term: len(term.context.topics_to_be_deleted),
    )
    gauge(
        "kafka_controller_topics_ineligible_to_delete_count",
        "Topics whose deletion waits, because a replica is offline or a reassignment is in progress.",
        lambda term: len(term.context.topics_ineligible_for_deletion),
    )
    gauge("kafka_controller_active_broker_count", "Live brokers.", lambda term: len(term.context.brokers))
