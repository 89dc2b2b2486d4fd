"""Writes transaction markers to the partitions that this broker leads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from barnabas.coordinator.producer import ProducerIdAndEpoch
from barnabas.coordinator.runtime.fan_in import Gathering
from barnabas.coordinator.runtime.log import CoordinatorLog
from barnabas.coordinator.runtime.runtime import CoordinatorRuntime
from barnabas.coordinator.transaction.markers.outcome import MarkerErrors, TransactionMarker
from barnabas.coordinator.transaction.state.settings import EPOCH_BUMP_VERSION
from barnabas.core.clock import Clock
from barnabas.core.errors import (
    InvalidProducerEpoch,
    KafkaError,
    UnknownServerError,
)
from barnabas.core.ids import ACKS_ALL, TopicPartition
from barnabas.records.builder import build_end_transaction_marker
from barnabas.records.record import EndTransactionMarker
from barnabas.replication.partition.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.storage.producers.append_checks import AppendOrigin

logger = logging.getLogger(__name__)

MARKER_TIMEOUT_MS = 5_000.0
"""Time for a marker to be replicated before it is sent again."""


class LocalMarkers:
    """Markers for the partitions that this broker leads.

    Those of the offsets topic go through the group coordinator's runtime, whose staged offsets they complete.
    """

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
        """Append the marker to each partition; call `done`, once, when all of them are replicated."""
        wanted = list(partitions)
        gathering: Gathering[KafkaError | None] = Gathering(
            len(wanted),
            lambda errors: done({each: error for each, error in zip(wanted, errors, strict=True) if error}),
        )
        for index, topic_partition in enumerate(wanted):
            self._write_one(marker, topic_partition, partial(gathering.put, index))

    def _write_one(
        self,
        marker: TransactionMarker,
        topic_partition: TopicPartition,
        finish: Callable[[KafkaError | None], None],
    ) -> None:
        try:
            partition = self._replicas.partition(*topic_partition)
            _check_not_late(marker, partition)
            if topic_partition.topic == self._offsets.topic:
                self._offsets.complete_transaction(
                    topic_partition.partition,
                    ProducerIdAndEpoch(marker.producer_id, marker.producer_epoch),
                    EndTransactionMarker(marker.is_commit, marker.coordinator_epoch),
                    finish,
                    finish,
                )
                return
            end_offset = self._append(marker, partition)
        except KafkaError as error:
            finish(error)
            return
        except Exception:
            logger.exception("partition %s: writing a transaction marker failed", topic_partition)
            finish(UnknownServerError("the broker met an unexpected error"))
            return
        self._log.await_replication(
            topic_partition,
            partition.leadership.leader_epoch,
            end_offset,
            MARKER_TIMEOUT_MS,
            finish,
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
    """Refuse a late marker. From version 2 on a marker has a higher epoch than all records of its
    transaction. A transaction that is open under the marker's own epoch is a later one. Its first records may
    be on their way to the disk."""
    partition.log.settle()
    if marker.transaction_version >= EPOCH_BUMP_VERSION and partition.log.producers.has_ongoing_transaction(
        marker.producer_id, marker.producer_epoch
    ):
        raise InvalidProducerEpoch(
            f"the marker of epoch {marker.producer_epoch} comes after the next transaction of producer "
            f"{marker.producer_id} has begun in {partition.topic_partition}"
        )
