"""Metrics of a producer, under Kafka's names."""

from __future__ import annotations

from barnabas.client.producer.core.batch import ProducerBatch
from barnabas.client.producer.core.buffer_memory import BufferMemory
from barnabas.core.reporting.metrics import Counter, Metrics


class SenderMetrics:
    def __init__(self, metrics: Metrics, memory: BufferMemory) -> None:
        counter = metrics.counter
        self._sent = counter("producer_record_send_total", "Records that were acknowledged.")
        self._bytes = counter("producer_outgoing_byte_total", "Bytes of batches that were sent.")
        self._batches = counter("producer_batch_total", "Batches that were sent, retries included.")
        self._retries = counter("producer_record_retry_total", "Records that were sent again.")
        self._errors = counter("producer_record_error_total", "Records that failed.")
        self._splits = counter("producer_batch_split_total", "Batches that were too large and split.")
        self._throttle_ms = counter("producer_produce_throttle_time_ms_total", "Time of throttling.")
        self._latency = metrics.histogram("producer_request_latency_ms", "Time from request to answer.")
        self._queue_time = metrics.histogram(
            "producer_record_queue_time_ms", "Time of a batch from its first record to its first request."
        )
        self.by_topic: dict[str, Counter] = {}
        self._metrics = metrics
        metrics.gauge(
            "producer_buffer_available_bytes",
            "Memory that no batch has reserved.",
            lambda: memory.available_bytes,
        )
        metrics.gauge("producer_waiting_senders", "Calls that wait for memory.", lambda: memory.waiting)

    def sent(self, batch: ProducerBatch, now_ms: float) -> None:
        self._batches.value += 1
        self._bytes.value += batch.size_bytes
        if not batch.attempts:
            self._queue_time.observe(now_ms - batch.created_ms)

    def answered(self, latency_ms: float, throttle_ms: int) -> None:
        self._latency.observe(latency_ms)
        self._throttle_ms.value += throttle_ms

    def acknowledged(self, batch: ProducerBatch) -> None:
        count = batch.record_count
        self._sent.value += count
        topic = batch.topic_partition.topic
        counter = self.by_topic.get(topic)
        if counter is None:
            counter = self.by_topic[topic] = self._metrics.counter(
                "producer_topic_record_send_total", "Acknowledged records of a topic.", topic=topic
            )
        counter.value += count

    def retried(self, batch: ProducerBatch) -> None:
        self._retries.value += batch.record_count

    def failed(self, batch: ProducerBatch) -> None:
        self._errors.value += batch.record_count

    def split(self) -> None:
        self._splits.value += 1
