"""Writes transaction markers to the partitions that this broker leads.

A marker is a small append, and a transaction may have thousands of partitions. So a turn of the loop writes a
few of them, and only so many wait for replication at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from barnabas.coordinator.producer import ProducerIdAndEpoch
from barnabas.coordinator.runtime.fan_in import Gathering, Window
from barnabas.coordinator.runtime.log import CoordinatorLog
from barnabas.coordinator.runtime.peers import Start
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
from barnabas.core.limits import MARKERS_PER_TURN_MAX, MARKERS_UNWRITTEN_MAX
from barnabas.core.waiting import turn_over
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

    def __init__(
        self, replicas: ReplicaManager, offsets: CoordinatorRuntime[Any], clock: Clock, start: Start
    ) -> None:
        self._replicas = replicas
        self._offsets = offsets
        self._clock = clock
        self._start = start
        self._log = CoordinatorLog(replicas)

    def write(
        self,
        marker: TransactionMarker,
        partitions: Collection[TopicPartition],
        done: Callable[[MarkerErrors], None],
    ) -> None:
        """Append the marker to each partition; call `done`, once, when all of them are replicated."""
        wanted = list(partitions)
        if len(wanted) > MARKERS_PER_TURN_MAX:
            self._start(self._write_in_turns(marker, wanted, done))
        else:
            self._write_now(marker, wanted, done)

    async def _write_in_turns(
        self,
        marker: TransactionMarker,
        wanted: Sequence[TopicPartition],
        done: Callable[[MarkerErrors], None],
    ) -> None:
        window: Window[MarkerErrors] = Window(MARKERS_UNWRITTEN_MAX // MARKERS_PER_TURN_MAX)
        for begin in range(0, len(wanted), MARKERS_PER_TURN_MAX):
            piece = wanted[begin : begin + MARKERS_PER_TURN_MAX]
            await window.begin(partial(self._write_now, marker, piece))
            await turn_over()
        errors: dict[TopicPartition, KafkaError] = {}
        for each in await window.parts():
            errors.update(each)
        done(errors)

    def _write_now(
        self,
        marker: TransactionMarker,
        wanted: Sequence[TopicPartition],
        done: Callable[[MarkerErrors], None],
    ) -> None:
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
        done: Callable[[KafkaError | None], None],
    ) -> None:
        try:
            partition = self._replicas.partition(*topic_partition)
            _check_not_late(marker, partition)
            if topic_partition.topic == self._offsets.topic:
                self._offsets.complete_transaction(
                    topic_partition.partition,
                    ProducerIdAndEpoch(marker.producer_id, marker.producer_epoch),
                    EndTransactionMarker(marker.is_commit, marker.coordinator_epoch),
                    done,
                    done,
                )
                return
            end_offset = self._append(marker, partition)
        except KafkaError as error:
            done(error)
            return
        except Exception:
            logger.exception("partition %s: writing a transaction marker failed", topic_partition)
            done(UnknownServerError("the broker met an unexpected error"))
            return
        self._log.await_replication(
            topic_partition,
            partition.leadership.leader_epoch,
            end_offset,
            MARKER_TIMEOUT_MS,
            done,
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
