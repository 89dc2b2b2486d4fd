"""Replay of a partition into a shard, in steps so small that the loop stays free.

`load_steps` is a generator: each step is a little work, and the driver stops when the time for one turn is
used up. The shard gets transactional batches in log order, with their producer's id. It keeps them aside
until the marker that commits or aborts them.

No record costs a partition. A record that cannot be decoded or replayed is a step of its own, `SetAside`. The
driver counts and logs it, and loading goes on with the next one. A batch that is broken as a whole is set
aside from the first record that cannot be found in it. Disk errors are different: they end the load, which is
retried.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from barnabas.coordinator.runtime.decision import Answers, CoordinatorRecord
from barnabas.coordinator.runtime.log import CoordinatorLog
from barnabas.core.ids import TopicPartition
from barnabas.records.batch import RecordBatch, iterate_whole_batches
from barnabas.records.record import end_transaction_marker, iterate_records

BATCHES_PER_STEP = 32


class SetAside(NamedTuple):
    """Record that could not be replayed, and the reason."""

    offset: int
    error: Exception


LoadStep = SetAside | None
"""Record that is left out, or None for a pause."""


class Shard(Protocol):
    """State that one partition is replayed into."""

    def load_batch(self, batch: RecordBatch) -> Iterator[LoadStep]:
        """Replay the records of a data batch, with a pause now and then."""
        ...

    def replay(self, record: CoordinatorRecord, offset: int, producer_id: int) -> None:
        """Apply one appended record to the state."""
        ...

    def replay_marker(self, producer_id: int, producer_epoch: int, *, is_commit: bool) -> None:
        """End a transaction that wrote to this partition."""
        ...

    def loaded(self) -> None:
        """Start timers: everything is replayed."""
        ...

    def unloaded(self) -> Answers:
        """Responses to waiting requests, now that the partition is led elsewhere."""
        ...


def load_steps(
    log: CoordinatorLog, topic_partition: TopicPartition, shard: Shard, buffer_bytes: int
) -> Iterator[LoadStep]:
    """Replay everything that the partition holds now."""
    offset = log.start_offset(topic_partition)
    end_offset = log.end_offset(topic_partition)
    while offset < end_offset:
        chunk = log.read(topic_partition, offset, buffer_bytes)
        yield None
        following = offset
        for count, batch in enumerate(iterate_whole_batches(chunk)):
            following = batch.next_offset
            try:
                if batch.is_control:
                    replay_control_batch(shard, batch)
                elif batch.record_count:
                    yield from shard.load_batch(batch)
            except Exception as error:  # noqa: BLE001 - the driver counts and logs it
                yield SetAside(batch.base_offset, error)
            if not count % BATCHES_PER_STEP:
                yield None
        if following <= offset:
            # Compaction may have left nothing up to the end.
            return
        offset = following


def replay_control_batch(shard: Shard, batch: RecordBatch) -> None:
    for record in iterate_records(batch):
        marker = end_transaction_marker(record)
        if marker is not None:
            shard.replay_marker(batch.producer_id, batch.producer_epoch, is_commit=marker.is_commit)
