"""Lane: a producer id and epoch, its sequence numbers by partition, and the offsets of its batches.

The row writer chooses the lane before each flush. A lane that records its stretches knows which offsets hold
its batches, so that the driver can read them back (`copy_attempts`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.core.ids import TopicPartition
from pyspark_barnabas.produce.encode import Producer
from pyspark_barnabas.produce.producer import BatchSender, Outgoing


class Stretch(NamedTuple):
    """Contiguous offsets with batches of one lane only. The base offset is -1 when the broker did not return
    it."""

    base_offset: int
    record_count: int

    @property
    def end(self) -> int:
        return self.base_offset + self.record_count


@dataclass
class Written:
    """Batches of one lane in the log; sent to the driver."""

    producer_id: int
    epoch: int
    stretches: dict[TopicPartition, list[Stretch]] = field(default_factory=dict)

    def note(self, batch: Outgoing, base_offset: int) -> None:
        """Record the offsets of a batch, in the order of the partition's sequence numbers, which is the
        log's.

        A batch may be appended although its answer was an error. It is then acknowledged when it is sent
        again, after its successors.
        """
        stretches = self.stretches.setdefault(batch.topic_partition, [])
        at = len(stretches)
        while at and 0 <= base_offset < stretches[at - 1].base_offset:
            at -= 1
        if at and stretches[at - 1].base_offset >= 0 and stretches[at - 1].end == base_offset:
            begin, before = stretches[at - 1]
            stretches[at - 1] = Stretch(begin, before + batch.record_count)
        else:
            stretches.insert(at, Stretch(base_offset, batch.record_count))


class Lane:
    def __init__(self, producer: Producer, sender: BatchSender) -> None:
        self.producer = producer
        self.sender = sender
        self.sequences: dict[TopicPartition, int] = {}
        """Record count of each partition, which is its next sequence number."""

    def rest(self) -> None:
        """End of a flush; the next flush may come much later."""
