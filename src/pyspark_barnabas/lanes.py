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
        """Acknowledgements come in the order of the partition's sequence numbers."""
        stretches = self.stretches.setdefault(batch.place, [])
        if stretches and stretches[-1].base_offset >= 0 and stretches[-1].end == base_offset:
            base_offset, before = stretches.pop()
            stretches.append(Stretch(base_offset, before + batch.record_count))
        else:
            stretches.append(Stretch(base_offset, batch.record_count))


class Lane:
    def __init__(self, producer: Producer, sender: BatchSender) -> None:
        self.producer = producer
        self.sender = sender
        self.sequences: dict[TopicPartition, int] = {}
        """How many records each partition got."""

    def rest(self) -> None:
        """A flush is over, and nobody knows when the next one comes."""
