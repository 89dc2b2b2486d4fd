"""Sequence numbers of one partition: the next one, the last acknowledged one, and batches without an answer.

A broker accepts the batches of a producer in the order of their sequence numbers, and recognises those that
it has already. `outstanding` holds the batches that have a number and no outcome yet, in the order of their
numbers. They are on the wire, or wait for a retry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.client.producer.core.batch import ProducerBatch
from barnabas.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

NONE_ACKED: Final = -1
SEQUENCE_MASK: Final = 0x7FFFFFFF
HALF: Final = 0x40000000
"""Numbers wrap: one that is less than half of them ahead is later."""


class PartitionSequences:
    __slots__ = ("last_acked", "last_acked_offset", "next", "outstanding", "producer_epoch", "producer_id")

    def __init__(self) -> None:
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.next = 0
        self.last_acked = NONE_ACKED
        self.last_acked_offset = -1
        self.outstanding: list[ProducerBatch] = []

    @property
    def first_outstanding(self) -> int:
        """Sequence number that the broker must get next, or NO_SEQUENCE."""
        return self.outstanding[0].base_sequence if self.outstanding else NO_SEQUENCE

    def is_next_to_ack(self, sequence: int) -> bool:
        """True when every batch before this number is acknowledged."""
        return sequence == (self.last_acked + 1) & SEQUENCE_MASK

    def is_in_flight_elsewhere(self, broker_id: int) -> bool:
        """True when another broker, a previous leader, has not answered for a batch."""
        return any(batch.is_in_flight and batch.broker_id != broker_id for batch in self.outstanding)

    def number(self, batch: ProducerBatch) -> None:
        """Give a batch the next number."""
        batch.set_producer(self.producer_id, self.producer_epoch, self.next)
        self.next = (self.next + batch.record_count) & SEQUENCE_MASK
        self.outstanding.append(batch)

    def acknowledge(self, batch: ProducerBatch, base_offset: int) -> None:
        if not self.remove(batch) and (batch.producer_id, batch.producer_epoch) != (
            self.producer_id,
            self.producer_epoch,
        ):
            return  # an old answer: the partition has begun again since
        last = batch.last_sequence
        if self.last_acked == NONE_ACKED or (last - self.last_acked) & SEQUENCE_MASK < HALF:
            self.last_acked = last
        if base_offset >= 0:
            last_offset = base_offset + batch.record_count - 1
            self.last_acked_offset = max(self.last_acked_offset, last_offset)

    def remove(self, batch: ProducerBatch) -> bool:
        """Remove a batch; False when it was not outstanding."""
        if batch not in self.outstanding:
            return False
        self.outstanding.remove(batch)
        return True

    def has_before(self, batch: ProducerBatch) -> bool:
        """True when a batch with an earlier number has no outcome yet."""
        first = self.first_outstanding
        return first != NO_SEQUENCE and 0 < (batch.base_sequence - first) & SEQUENCE_MASK < HALF

    def doubt(self) -> list[ProducerBatch]:
        """Remove the batches that a lost request may still append. Those in flight depend on their answer."""
        lost = [batch for batch in self.outstanding if batch.was_lost]
        self.outstanding = [batch for batch in self.outstanding if not batch.was_lost]
        for batch in self.outstanding:
            batch.is_doubted = batch.is_in_flight
        return lost

    def begin_again(self, producer_id: int, epoch: int) -> None:
        """Number from 0 under another id or epoch, the outstanding batches included."""
        self.producer_id, self.producer_epoch = producer_id, epoch
        self.next = 0
        self.last_acked = NONE_ACKED
        self.last_acked_offset = -1
        outstanding, self.outstanding = self.outstanding, []
        for batch in outstanding:
            batch.sequence_was_reset = True
            self.number(batch)

    def replace_by_parts(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """Number the parts of a split batch as its records were."""
        position, sequence = self.outstanding.index(batch), batch.base_sequence
        self.outstanding[position : position + 1] = parts
        for part in parts:
            part.set_producer(batch.producer_id, batch.producer_epoch, sequence)
            sequence = (sequence + part.record_count) & SEQUENCE_MASK

    def close_gap(self, failed: ProducerBatch) -> None:
        """Renumber the batches behind one that failed for good, which the broker did not append."""
        self.next = (self.next - failed.record_count) & SEQUENCE_MASK
        for batch in self.outstanding:
            if (batch.base_sequence - failed.base_sequence) & SEQUENCE_MASK < HALF:
                sequence = (batch.base_sequence - failed.record_count) & SEQUENCE_MASK
                batch.set_producer(batch.producer_id, batch.producer_epoch, sequence)
                batch.sequence_was_reset = True
