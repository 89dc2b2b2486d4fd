"""A decision becomes part of the log and of the state: its records are appended, then replayed.

State is ahead of replication, so an answer waits for the *last* write of its shard, even if it wrote nothing
itself: nobody is told what could still be lost. With one in-sync replica an append is replicated when it
returns, and the answer leaves at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.coordinator.batches import as_batches
from barnabas.coordinator.decision import Decision
from barnabas.coordinator.log import CoordinatorLog
from barnabas.coordinator.shard_context import NO_PRODUCER, Producer, RuntimeSettings, ShardContext
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


class ReplayFailed(Exception):
    """The records are written, but the state does not show them: the shard has to be loaded again."""


class ShardWriter:
    def __init__(self, log: CoordinatorLog, clock: Clock, settings: RuntimeSettings) -> None:
        self._log = log
        self._clock = clock
        self._settings = settings

    def write(self, context: ShardContext[Any], decision: Decision[Any], producer: Producer) -> None:
        bytes_max = None if decision.is_atomic else self._log.batch_bytes_max(context.topic_partition)
        now_ms = self._clock.now_ms()
        for records, batch in as_batches(
            decision.records, lambda: self._new_batch(producer), now_ms, bytes_max
        ):
            if decision.room_bytes:
                self._check_room(context, len(batch) + decision.room_bytes)
            end_offset = self._log.append(context.topic_partition, context.leader_epoch, batch)
            context.wrote(end_offset)
            try:
                replay = context.shard.replay
                for offset, record in enumerate(records, end_offset - len(records)):
                    replay(record, offset, producer.id)
            except Exception as error:
                raise ReplayFailed from error

    def write_marker(
        self, context: ShardContext[Any], producer: Producer, marker: EndTransactionMarker
    ) -> None:
        """End the producer's transaction here."""
        batch = build_end_transaction_marker(
            marker, producer_id=producer.id, producer_epoch=producer.epoch, timestamp=self._clock.now_ms()
        )
        context.wrote(self._log.append(context.topic_partition, context.leader_epoch, batch))
        try:
            context.shard.replay_marker(producer.id, producer.epoch, is_commit=marker.is_commit)
        except Exception as error:
            raise ReplayFailed from error

    def await_replication(
        self, context: ShardContext[Any], done: Callable[[KafkaError | None], None]
    ) -> None:
        """Call `done` when everything that the shard has written is replicated, or is not in time."""
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

    def _new_batch(self, producer: Producer) -> BatchBuilder:
        return BatchBuilder(
            codec=self._settings.codec,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            is_transactional=producer is not NO_PRODUCER,
        )


def as_coordinator_error(error: KafkaError) -> KafkaError:
    """What a failed append means to a client of the coordinator."""
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
