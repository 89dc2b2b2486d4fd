"""Reading a partition back into a shard, in steps so small that the loop stays free.

`load_steps` is a generator: each step is a little work, and whoever drives it stops when the time for
one turn is used up. Batches of transactions are handed to the shard as they come, with their producer's
id; it is the shard that keeps them aside until the marker that commits or aborts them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from barnabas.coordinator.decision import Answers, CoordinatorRecord
from barnabas.coordinator.log import CoordinatorLog
from barnabas.core.ids import TopicPartition
from barnabas.records.batch import RecordBatch, iterate_whole_batches
from barnabas.records.record import end_transaction_marker, iterate_records

BATCHES_PER_STEP = 32


class Shard(Protocol):
    """The state that one partition is replayed into."""

    def load_batch(self, batch: RecordBatch) -> Iterator[None]:
        """Replay the records of a batch that is no control batch, with a pause now and then."""
        ...

    def replay(self, record: CoordinatorRecord, offset: int, producer_id: int) -> None:
        """Make one appended record part of the state."""
        ...

    def replay_marker(self, producer_id: int, producer_epoch: int, *, is_commit: bool) -> None:
        """A transaction that wrote here has ended."""
        ...

    def loaded(self) -> None:
        """Everything is replayed: start timers."""
        ...

    def unloaded(self) -> Answers:
        """The partition is led elsewhere: what whoever waits is told."""
        ...


def load_steps(
    log: CoordinatorLog, topic_partition: TopicPartition, shard: Shard, buffer_bytes: int
) -> Iterator[None]:
    """Replay everything that the partition holds now."""
    offset = log.start_offset(topic_partition)
    end_offset = log.end_offset(topic_partition)
    while offset < end_offset:
        chunk = log.read(topic_partition, offset, buffer_bytes)
        yield
        following = offset
        for count, batch in enumerate(iterate_whole_batches(chunk)):
            following = batch.next_offset
            if batch.is_control:
                replay_control_batch(shard, batch)
            elif batch.record_count:
                yield from shard.load_batch(batch)
            if not count % BATCHES_PER_STEP:
                yield
        if following <= offset:
            # Compaction may have left nothing up to the end.
            return
        offset = following


def replay_control_batch(shard: Shard, batch: RecordBatch) -> None:
    for record in iterate_records(batch):
        marker = end_transaction_marker(record)
        if marker is not None:
            shard.replay_marker(batch.producer_id, batch.producer_epoch, is_commit=marker.is_commit)
