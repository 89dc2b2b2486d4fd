"""What a topic has seen: messages and bytes in, bytes out, and what failed."""

from __future__ import annotations

from barnabas.core.metrics import Metrics


class TopicMetrics:
    """The counters of one topic; every partition of it holds on to the same ones."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetch",
        "failed_produce",
        "fetch_conversions",
        "messages_in",
        "produce_conversions",
    )

    def __init__(self, metrics: Metrics, topic: str) -> None:
        self.messages_in = metrics.counter("kafka_messages_in_total", "Records appended.", topic=topic)
        self.bytes_in = metrics.counter("kafka_bytes_in_total", "Bytes of records appended.", topic=topic)
        self.bytes_out = metrics.counter("kafka_bytes_out_total", "Bytes of records fetched.", topic=topic)
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
            "kafka_fetch_message_conversions_total", "Answers converted for old consumers.", topic=topic
        )
