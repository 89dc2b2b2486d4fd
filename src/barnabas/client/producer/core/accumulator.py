"""Accumulator: one deque of batches for each partition, within the memory of `buffer.memory`.

`append` is the hot path. It adds a record to the last batch of its partition, and opens a batch where none
has room. A batch reserves memory once, so a record costs no accounting. The records of a batch are bounded by
`batch.size` before compression: the memory bound then holds for every codec.

A batch is ready when it is full, when it has lingered, when senders wait for memory, or on a flush. The
sender drains ready batches, and puts batches back whose attempt failed: those with sequence numbers stay in
the order of their numbers, at the front.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from barnabas.client.producer.core.batch import ProducerBatch
from barnabas.client.producer.core.buffer_memory import BufferMemory
from barnabas.core.clock import Clock
from barnabas.core.ids import TopicPartition
from barnabas.records.appender import RECORD_OVERHEAD_BYTES_MAX
from barnabas.records.batch import HEADER_BYTES
from barnabas.records.compression import Codec
from barnabas.records.record import Header
from barnabas.records.varint import Buffer


@dataclass(frozen=True, slots=True)
class AccumulatorOptions:
    batch_bytes: int = 16_384
    linger_ms: float = 5
    codec: Codec = Codec.NONE
    compression_level: int | None = None
    delivery_timeout_ms: float = 120_000


class Queue:
    """Batches of one partition, oldest first, and its state in the sender."""

    __slots__ = ("batches", "is_muted", "topic_partition")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.batches: deque[ProducerBatch] = deque()
        self.is_muted = False
        """True while nothing may be sent: one request in flight at a time keeps the order."""


class Accumulator:
    def __init__(self, options: AccumulatorOptions, memory: BufferMemory, clock: Clock) -> None:
        self.options = options
        self.memory = memory
        self._clock = clock
        self.queues: dict[str, list[Queue]] = {}
        """Queues by topic and partition number."""
        self.waiting: dict[Queue, None] = {}
        """Queues with batches to send, in the order in which they get their turn."""
        self.incomplete: dict[ProducerBatch, None] = {}
        """Batches without an outcome, in the order of their creation."""
        self._parts: dict[ProducerBatch, None] = {}
        """Parts of split batches, which are older than their place in `incomplete`."""
        self._flushes = 0

    # --- records in ---

    def queue(self, topic: str, partition: int) -> Queue:
        queues = self.queues.get(topic)
        if queues is None:
            queues = self.queues[topic] = []
        while len(queues) <= partition:
            queues.append(Queue(TopicPartition(topic, len(queues))))
        return queues[partition]

    def open_batch(self, queue: Queue, size_bytes: int) -> ProducerBatch | None:
        """Batch with room for a record of at most `size_bytes`; None where one must be opened."""
        if queue.batches:
            batch = queue.batches[-1]
            if not batch.is_closed:
                if HEADER_BYTES + len(batch.appender.payload) + size_bytes <= batch.reserved_bytes:
                    return batch
                batch.is_closed = True
        return None

    def batch_bytes_for(self, size_bytes: int) -> int:
        """Memory of a batch that a record of at most `size_bytes` opens."""
        return max(self.options.batch_bytes, HEADER_BYTES + size_bytes)

    def add_batch(self, queue: Queue, reserved_bytes: int, *, is_transactional: bool) -> ProducerBatch:
        """Open a batch in memory that is reserved already."""
        batch = ProducerBatch(queue.topic_partition, reserved_bytes, self._clock.monotonic_ms())
        batch.is_transactional = is_transactional
        queue.batches.append(batch)
        self.waiting.setdefault(queue)
        self.incomplete[batch] = None
        return batch

    def append(
        self,
        batch: ProducerBatch,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[Header],
        timestamp_ms: int,
    ) -> int:
        """Add a record to a batch with room; returns its position."""
        index = batch.appender.append(key, value, headers, timestamp_ms)
        if HEADER_BYTES + len(batch.appender.payload) + RECORD_OVERHEAD_BYTES_MAX >= batch.reserved_bytes:
            batch.is_closed = True
        return index

    def drop_empty(self, batch: ProducerBatch) -> None:
        """Drop a batch whose first record could not be encoded: a broker refuses a batch without records."""
        if not batch.record_count and self.remove(batch):
            self.finished(batch)

    # --- batches out ---

    def ready_at_ms(self, queue: Queue) -> float:
        """Time from which the first batch of a queue may be sent; infinite without one."""
        if not queue.batches or queue.is_muted:
            return math.inf
        first = queue.batches[0]
        if first.attempts:
            return first.retry_at_ms
        if first.is_closed or len(queue.batches) > 1 or self._flushes or self.memory.waiting:
            return -math.inf
        return first.created_ms + self.options.linger_ms

    def drain(self, queue: Queue) -> ProducerBatch:
        """Take the first batch of a queue. The queue goes to the end of the line."""
        batch = queue.batches.popleft()
        batch.is_closed = True
        del self.waiting[queue]
        if queue.batches:
            self.waiting[queue] = None
        return batch

    def put_back(self, batch: ProducerBatch) -> None:
        """Put a batch back that is to be sent again, in the order of the sequence numbers."""
        queue = self.queue(*batch.topic_partition)
        position = 0
        if batch.has_sequence:
            for position, other in enumerate(queue.batches):  # noqa: B007 - the position of the last
                if not other.has_sequence or _follows(other, batch):
                    break
            else:
                position = len(queue.batches)
        queue.batches.insert(position, batch)
        self.waiting.setdefault(queue)

    def replace_by_parts(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """Put the parts of a split batch into its place. They share its memory."""
        self.incomplete.pop(batch, None)
        left, batch.reserved_bytes = batch.reserved_bytes, 0
        for part in parts:
            part.reserved_bytes = left if part is parts[-1] else min(part.size_bytes, left)
            left -= part.reserved_bytes
            self.incomplete[part] = self._parts[part] = None
        if batch.has_sequence:
            for part in parts:
                self.put_back(part)
        else:
            for part in reversed(parts):
                self.put_back(part)

    def seal(self, batch: ProducerBatch) -> None:
        batch.seal(self.options.codec, self.options.compression_level)

    def finished(self, batch: ProducerBatch) -> None:
        """Free the memory of a batch that is done and not on the wire."""
        self.incomplete.pop(batch, None)
        self._parts.pop(batch, None)
        reserved_bytes, batch.reserved_bytes = batch.reserved_bytes, 0
        if reserved_bytes:
            self.memory.give_back(reserved_bytes)

    def remove(self, batch: ProducerBatch) -> bool:
        """Remove a batch from its queue; False when it was not there."""
        queue = self.queue(*batch.topic_partition)
        if batch not in queue.batches:
            return False
        queue.batches.remove(batch)
        if not queue.batches:
            self.waiting.pop(queue, None)
        return True

    def expired(self, now_ms: float) -> list[ProducerBatch]:
        """Batches past `delivery.timeout.ms`."""
        if now_ms < self.next_expiry_ms():
            return []
        # As `next_expiry_ms` adds: the other way round, rounding may leave a batch that is due for ever.
        timeout_ms = self.options.delivery_timeout_ms
        left = (batch for batch in self.incomplete if not batch.is_done)
        return [batch for batch in left if batch.created_ms + timeout_ms <= now_ms]

    def next_expiry_ms(self) -> float:
        """Time at which the oldest batch expires; infinite without one."""
        oldest_ms = min((part.created_ms for part in self._parts if not part.is_done), default=math.inf)
        for batch in self.incomplete:
            if not batch.is_done:
                oldest_ms = min(oldest_ms, batch.created_ms)
                break
        return oldest_ms + self.options.delivery_timeout_ms

    # --- flush ---

    def begin_flush(self) -> list[ProducerBatch]:
        """Make every batch ready; returns the batches to wait for. `end_flush` ends it."""
        self._flushes += 1
        return [batch for batch in self.incomplete if not batch.is_done]

    def end_flush(self) -> None:
        self._flushes -= 1


def _follows(other: ProducerBatch, batch: ProducerBatch) -> bool:
    """True when `other` has a later number. Numbers wrap, so a large distance means the reverse."""
    return (other.base_sequence - batch.base_sequence) & 0x7FFFFFFF < 0x40000000
