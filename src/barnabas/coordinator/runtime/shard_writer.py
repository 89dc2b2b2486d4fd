"""Shard writer: appends the records of a decision, then replays them into the state.

State is ahead of replication. So a response waits for the *last* write of its shard, even if its own request
wrote nothing. No client sees state that could still be lost. With one in-sync replica an append is replicated
when it returns, and the response leaves at once.

A decision is one batch, so that a replay sees all of it or nothing. Records that stand each for themselves
are divided into as many batches as the partition's `max.message.bytes` asks. The deletion of a topic, and the
expiry or deletion of a large group, must not fail because there is much to remove.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from barnabas.coordinator.producer import NO_PRODUCER, ProducerIdAndEpoch
from barnabas.coordinator.runtime.decision import CoordinatorRecord, Decision
from barnabas.coordinator.runtime.log import CoordinatorLog
from barnabas.coordinator.runtime.shard_context import RuntimeSettings, ShardContext
from barnabas.core.clock import Clock
from barnabas.core.errors import (
    CoordinatorNotAvailable,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from barnabas.records.builder import BatchBuilder, build_end_transaction_marker
from barnabas.records.record import EndTransactionMarker

RECORD_OVERHEAD_BYTES_MAX = 40
"""Bytes of a record without its key and value: lengths, deltas and flags, all at their longest."""


class ReplayFailed(Exception):
    """The records are written, but the state lacks them: the shard has to be loaded again."""


class ShardWriter:
    def __init__(self, log: CoordinatorLog, clock: Clock, settings: RuntimeSettings) -> None:
        self._log = log
        self._clock = clock
        self._settings = settings

    def write(
        self, context: ShardContext[Any], decision: Decision[Any], producer: ProducerIdAndEpoch
    ) -> None:
        bytes_max = None if decision.is_atomic else self._log.batch_bytes_max(context.topic_partition)
        now_ms = self._clock.now_ms()
        for records, batch in _as_batches(
            decision.records, lambda: self._new_batch(producer), now_ms, bytes_max
        ):
            if decision.room_bytes:
                self._check_room(context, len(batch) + decision.room_bytes)
            end_offset = self._log.append(context.topic_partition, context.leader_epoch, batch)
            context.wrote(end_offset)
            try:
                replay = context.shard.replay
                for offset, record in enumerate(records, end_offset - len(records)):
                    replay(record, offset, producer.producer_id)
            except Exception as error:
                raise ReplayFailed from error

    def write_marker(
        self, context: ShardContext[Any], producer: ProducerIdAndEpoch, marker: EndTransactionMarker
    ) -> None:
        """Append and replay the marker that ends a producer's transaction."""
        batch = build_end_transaction_marker(
            marker,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            timestamp=self._clock.now_ms(),
        )
        context.wrote(self._log.append(context.topic_partition, context.leader_epoch, batch))
        try:
            context.shard.replay_marker(
                producer.producer_id, producer.producer_epoch, is_commit=marker.is_commit
            )
        except Exception as error:
            raise ReplayFailed from error

    def await_replication(
        self, context: ShardContext[Any], done: Callable[[KafkaError | None], None]
    ) -> None:
        """Call `done` once everything that the shard has written is replicated, or at the timeout."""
        self._log.await_replication(
            context.topic_partition,
            context.leader_epoch,
            context.written_to,
            self._settings.write_timeout_ms,
            done,
        )

    def wake(self, context: ShardContext[Any]) -> None:
        self._log.wake(context.topic_partition)

    def _check_room(self, context: ShardContext[Any], wanted_bytes: int) -> None:
        bytes_max = self._log.batch_bytes_max(context.topic_partition)
        if wanted_bytes > bytes_max:
            raise MessageTooLarge(
                f"{wanted_bytes} bytes are more than max.message.bytes of {context.topic_partition.topic}, "
                f"{bytes_max}"
            )

    def _new_batch(self, producer: ProducerIdAndEpoch) -> BatchBuilder:
        return BatchBuilder(
            codec=self._settings.codec,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            is_transactional=producer is not NO_PRODUCER,
        )


def _as_batches(
    records: Sequence[CoordinatorRecord],
    new_batch: Callable[[], BatchBuilder],
    now_ms: int,
    bytes_max: int | None,
) -> Iterator[tuple[Sequence[CoordinatorRecord], bytearray]]:
    """Each batch with its records: one, or with `bytes_max` several that are no larger. A larger record is
    alone in its batch."""
    builder, start = new_batch(), 0
    for index, record in enumerate(records):
        key, value = record.encode()
        if bytes_max is not None and index > start:
            size = len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES_MAX
            if builder.inflated_size_bytes + size > bytes_max:
                yield records[start:index], builder.build()
                builder, start = new_batch(), index
        builder.append(key, value, (), now_ms)
    yield records[start:], builder.build()


def as_coordinator_error(error: KafkaError) -> KafkaError:
    """Error of a failed append, as a client of the coordinator knows it."""
    match error:
        case (
            UnknownTopicOrPartition()
            | NotEnoughReplicas()
            | NotEnoughReplicasAfterAppend()
            | RequestTimedOut()
        ):
            return CoordinatorNotAvailable(error.message)
        case NotLeaderOrFollower() | KafkaStorageError():
            return NotCoordinator(error.message)
        case _:
            return error
