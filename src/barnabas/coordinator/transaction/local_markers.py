"""Markers for the partitions that this broker leads, and which of the others need none any more."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Any

from barnabas.coordinator.log import CoordinatorLog
from barnabas.coordinator.runtime import CoordinatorRuntime, Producer
from barnabas.coordinator.transaction.markers import MarkerErrors, MarkerWriter, TransactionMarker
from barnabas.coordinator.transaction.settings import EPOCH_BUMP_VERSION
from barnabas.core.clock import Clock
from barnabas.core.errors import (
    BrokerNotAvailable,
    InvalidProducerEpoch,
    KafkaError,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import ACKS_ALL, TopicPartition
from barnabas.records.builder import build_end_transaction_marker
from barnabas.records.record import EndTransactionMarker
from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.storage.producers.producer_state import AppendOrigin

logger = logging.getLogger(__name__)

FindDeleted = Callable[[Collection[TopicPartition], Callable[[frozenset[TopicPartition]], None]], None]
"""Calls back with those of the partitions that do not exist any more."""

MARKER_TIMEOUT_MS = 5_000.0
"""How long a marker may take to be replicated before it is sent again."""


class LocalMarkers:
    """Writes markers to the partitions that this broker leads.

    Those of the offsets topic go through the group coordinator's runtime, whose staged offsets they
    complete."""

    def __init__(self, replicas: ReplicaManager, offsets: CoordinatorRuntime[Any], clock: Clock) -> None:
        self._replicas = replicas
        self._offsets = offsets
        self._clock = clock
        self._log = CoordinatorLog(replicas)

    def write(
        self,
        marker: TransactionMarker,
        partitions: Collection[TopicPartition],
        done: Callable[[MarkerErrors], None],
    ) -> None:
        errors: dict[TopicPartition, KafkaError] = {}
        left = len(partitions)
        if not left:
            done(errors)

        def finish(topic_partition: TopicPartition, error: KafkaError | None) -> None:
            nonlocal left
            if error is not None:
                errors[topic_partition] = error
            left -= 1
            if not left:
                done(errors)

        for topic_partition in list(partitions):
            self._write_one(marker, topic_partition, finish)

    def _write_one(
        self,
        marker: TransactionMarker,
        topic_partition: TopicPartition,
        finish: Callable[[TopicPartition, KafkaError | None], None],
    ) -> None:
        try:
            partition = self._replicas.partition(*topic_partition)
            _check_not_late(marker, partition)
            if topic_partition.topic == self._offsets.topic:
                self._offsets.complete_transaction(
                    topic_partition.partition,
                    Producer(marker.producer_id, marker.producer_epoch),
                    EndTransactionMarker(marker.is_commit, marker.coordinator_epoch),
                    lambda _: finish(topic_partition, None),
                    lambda error: finish(topic_partition, error),
                )
                return
            end_offset = self._append(marker, partition)
        except KafkaError as error:
            finish(topic_partition, error)
            return
        except Exception:
            logger.exception("a marker could not be written to %s", topic_partition)
            finish(topic_partition, UnknownServerError("the broker met an unexpected error"))
            return
        self._log.await_replication(
            topic_partition,
            partition.leadership.leader_epoch,
            end_offset,
            MARKER_TIMEOUT_MS,
            lambda error: finish(topic_partition, error),
        )
        self._replicas.delayed.wake(topic_partition)

    def _append(self, marker: TransactionMarker, partition: Partition) -> int:
        batch = build_end_transaction_marker(
            EndTransactionMarker(marker.is_commit, marker.coordinator_epoch),
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp=self._clock.now_ms(),
        )
        info = partition.append(memoryview(batch), ACKS_ALL, AppendOrigin.COORDINATOR)
        return info.last_offset + 1


def _check_not_late(marker: TransactionMarker, partition: Partition) -> None:
    """From version 2 on a marker has a higher epoch than all records of its transaction; one that is open
    under the marker's own epoch is a later one."""
    if marker.transaction_version >= EPOCH_BUMP_VERSION and partition.log.has_ongoing_transaction(
        marker.producer_id, marker.producer_epoch
    ):
        raise InvalidProducerEpoch(
            f"the marker of epoch {marker.producer_epoch} comes after the next transaction of producer "
            f"{marker.producer_id} has begun in {partition.topic_partition}"
        )


_MAY_BE_GONE = (UnknownTopicOrPartition, LeaderNotAvailable, BrokerNotAvailable, NotLeaderOrFollower)
"""What is heard of a partition that does not exist any more, and of many that do."""


class CoordinatorMarkers:
    """The coordinator's way to partitions: one whose topic is gone needs no marker any more."""

    def __init__(self, markers: MarkerWriter, find_deleted: FindDeleted) -> None:
        self._markers = markers
        self._find_deleted = find_deleted

    def write(
        self,
        marker: TransactionMarker,
        partitions: Collection[TopicPartition],
        done: Callable[[MarkerErrors], None],
    ) -> None:
        self._markers.write(marker, partitions, lambda errors: self._sort_out(errors, done))

    def _sort_out(self, errors: MarkerErrors, done: Callable[[MarkerErrors], None]) -> None:
        doubtful = [each for each, error in errors.items() if isinstance(error, _MAY_BE_GONE)]
        if not doubtful:
            done(errors)
            return

        def found(deleted: frozenset[TopicPartition]) -> None:
            for each in sorted(deleted):
                logger.info("%s is deleted and needs no marker", each)
            done({each: error for each, error in errors.items() if each not in deleted})

        self._find_deleted(doubtful, found)
