"""Writes transaction markers to the leaders of all partitions of a transaction.

Partitions led by this broker are written here; every other leader gets WriteTxnMarkers, one after the
other. A partition without a leader, or whose leader does not answer, is reported as an error, and the
coordinator retries it (`completion`). A partition that the coordination store reports as deleted needs no
marker any more.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial

from barnabas.cluster.metadata.cache import MetadataCache
from barnabas.coordinator.runtime.fan_in import Gathering
from barnabas.coordinator.runtime.peers import Peers, Start
from barnabas.coordinator.transaction.markers.local import LocalMarkers
from barnabas.coordinator.transaction.markers.outcome import MarkerErrors, TransactionMarker
from barnabas.core.errors import (
    BrokerNotAvailable,
    KafkaError,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    UnknownServerError,
    UnknownTopicOrPartition,
    error_for,
)
from barnabas.core.ids import NO_LEADER, BrokerId, TopicPartition
from barnabas.core.limits import MARKERS_UNWRITTEN_MAX
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

logger = logging.getLogger(__name__)


FindDeleted = Callable[[Collection[TopicPartition]], Awaitable[frozenset[TopicPartition]]]
"""Finds the partitions that do not exist any more."""

_MAY_BE_DELETED = (UnknownTopicOrPartition, LeaderNotAvailable, BrokerNotAvailable, NotLeaderOrFollower)
"""Errors of a deleted partition, and of many that exist."""


class ClusterMarkers:
    def __init__(
        self,
        broker_id: BrokerId,
        local: LocalMarkers,
        metadata: MetadataCache,
        peers: Peers | None,
        start: Start,
        find_deleted: FindDeleted,
    ) -> None:
        """`peers` is None on a single node."""
        self._broker_id = broker_id
        self._local = local
        self._metadata = metadata
        self._peers = peers
        self._start = start
        self._find_deleted = find_deleted

    def write(
        self,
        marker: TransactionMarker,
        partitions: Collection[TopicPartition],
        done: Callable[[MarkerErrors], None],
    ) -> None:
        """Write the marker to each leader's partitions; then call `done`, once."""
        by_leader, errors = self._by_leader(partitions)

        def written(answers: list[MarkerErrors]) -> None:
            for answer in answers:
                errors.update(answer)
            doubtful = [each for each, error in errors.items() if isinstance(error, _MAY_BE_DELETED)]
            if doubtful:
                self._start(self._leave_out_deleted(errors, doubtful, done))
            else:
                done(errors)

        gathering: Gathering[MarkerErrors] = Gathering(len(by_leader), written)
        for index, (leader, led) in enumerate(by_leader.items()):
            put = partial(gathering.put, index)
            if leader == self._broker_id:
                self._local.write(marker, led, put)
            else:
                self._start(self._send(leader, marker, led, put))

    async def _leave_out_deleted(
        self, errors: MarkerErrors, doubtful: Sequence[TopicPartition], done: Callable[[MarkerErrors], None]
    ) -> None:
        deleted = await self._find_deleted(doubtful)
        for each in sorted(deleted):
            logger.info("partition %s: deleted, so it needs no transaction marker", each)
        done({each: error for each, error in errors.items() if each not in deleted})

    def _by_leader(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[dict[int, list[TopicPartition]], dict[TopicPartition, KafkaError]]:
        by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        errors: dict[TopicPartition, KafkaError] = {}
        for each in sorted(partitions):
            known = self._metadata.partition(*each)
            if known is None:
                errors[each] = UnknownTopicOrPartition(f"partition {each} is unknown")
            elif known.leader == NO_LEADER:
                errors[each] = LeaderNotAvailable(f"{each} has no leader")
            else:
                by_leader[known.leader].append(each)
        return by_leader, errors

    async def _send(
        self,
        leader: int,
        marker: TransactionMarker,
        partitions: Sequence[TopicPartition],
        done: Callable[[MarkerErrors], None],
    ) -> None:
        """Send one request after the other to the leader, each with so many partitions."""
        errors: dict[TopicPartition, KafkaError] = {}
        for begin in range(0, len(partitions), MARKERS_UNWRITTEN_MAX):
            piece = partitions[begin : begin + MARKERS_UNWRITTEN_MAX]
            errors.update(await self._sent(leader, marker, piece))
        done(errors)

    async def _sent(
        self, leader: int, marker: TransactionMarker, partitions: Sequence[TopicPartition]
    ) -> MarkerErrors:
        request = WriteTxnMarkersRequest(markers=[_writable(marker, partitions)])
        try:
            if self._peers is None:
                raise BrokerNotAvailable(f"broker {leader} is not in the cluster now")
            answer = await self._peers.send(leader, request, WriteTxnMarkersResponse)
        except KafkaError as error:
            return dict.fromkeys(partitions, error)
        except Exception:
            # Without this answer the partitions would never be retried.
            logger.exception("WriteTxnMarkers to broker %d failed and is retried", leader)
            failed = UnknownServerError(f"WriteTxnMarkers to broker {leader} failed")
            return dict.fromkeys(partitions, failed)
        codes = {
            TopicPartition(topic.name, row.partition_index): row.error_code
            for result in answer.markers
            for topic in result.topics
            for row in topic.partitions
        }
        # A partition missing from the response has no marker for certain.
        return {
            each: error_for(code) if code else UnknownTopicOrPartition(f"no word of {each}")
            for each in partitions
            if (code := codes.get(each)) != 0
        }


def _writable(marker: TransactionMarker, partitions: Sequence[TopicPartition]) -> WritableTxnMarker:
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        by_topic[topic].append(partition)
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.is_commit,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=led) for name, led in by_topic.items()],
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )
