"""Metrics of a topic: messages and bytes in, bytes out, and failures."""

from __future__ import annotations

from barnabas.core.reporting.metrics import Metrics


class TopicMetrics:
    """Counters of one topic, shared by all its partitions."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetch",
        "failed_produce",
        "fetch_conversions",
        "messages_in",
        "produce_conversions",
        "replication_bytes_in",
        "replication_bytes_out",
        "total_fetch",
        "total_produce",
    )

    def __init__(self, metrics: Metrics, topic: str) -> None:
        self.messages_in = metrics.counter("kafka_messages_in_total", "Records appended.", topic=topic)
        self.bytes_in = metrics.counter("kafka_bytes_in_total", "Bytes of records appended.", topic=topic)
        self.bytes_out = metrics.counter("kafka_bytes_out_total", "Bytes of records fetched.", topic=topic)
        self.bytes_rejected = metrics.counter(
            "kafka_bytes_rejected_total", "Bytes of records refused for their size.", topic=topic
        )
        self.total_produce = metrics.counter(
            "kafka_total_produce_requests_total", "Partitions of produce requests.", topic=topic
        )
        self.total_fetch = metrics.counter(
            "kafka_total_fetch_requests_total",
            "Partitions of fetch requests, of consumers and followers.",
            topic=topic,
        )
        self.replication_bytes_in = metrics.counter(
            "kafka_replication_bytes_in_total", "Bytes of records that replicas here copied from leaders."
        )
        self.replication_bytes_out = metrics.counter(
            "kafka_replication_bytes_out_total", "Bytes of records that followers fetched from here."
        )
        self.failed_produce = metrics.counter(
            "kafka_failed_produce_requests_total", "Partitions of produce requests refused.", topic=topic
        )
        self.failed_fetch = metrics.counter(
            "kafka_failed_fetch_requests_total", "Partitions of fetch requests refused.", topic=topic
        )
        self.produce_conversions = metrics.counter(
            "kafka_produce_message_conversions_total", "Message sets of old producers converted.", topic=topic
        )
        self.fetch_conversions = metrics.counter(
            "kafka_fetch_message_conversions_total",
            "Fetch responses converted for old consumers.",
            topic=topic,
        )
