"""A lane: one producer's identity, its numbering by partition, and where its batches ended up.

Whoever writes rows asks for the lane before each flush. A lane that keeps count of its stretches can
tell later which offsets hold its batches, so that somebody else may read them back (`copying`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.core.ids import TopicPartition
from pyspark_barnabas.encode import Producer
from pyspark_barnabas.producer import BatchSender, Outgoing


class Stretch(NamedTuple):
    """Offsets that hold batches of one lane only, without a gap; -1 when the broker did not say where."""

    base_offset: int
    record_count: int

    @property
    def end(self) -> int:
        return self.base_offset + self.record_count


@dataclass
class Written:
    """What one lane has in the log; it travels to the driver."""

    producer_id: int
    epoch: int
    stretches: dict[TopicPartition, list[Stretch]] = field(default_factory=dict)

    def note(self, batch: Outgoing, base_offset: int) -> None:
        """Kept in the order of the log, which is that of the partition's sequence numbers: a batch that was
        written though its answer was an error is acknowledged when it is sent again, after its successors."""
        stretches = self.stretches.setdefault(batch.place, [])
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
        """How many records each partition got."""

    def rest(self) -> None:
        """A flush is over, and nobody knows when the next one comes."""
