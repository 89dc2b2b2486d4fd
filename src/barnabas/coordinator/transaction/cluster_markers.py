"""Markers for the partitions of a transaction, wherever they are led.

What this broker leads it writes itself; for the rest each leader gets one WriteTxnMarkers. A
partition without a leader, or whose leader does not answer, is reported as an error, and the
coordinator tells it again later (`completion`), unless the coordination store says that it is deleted: then
it needs no marker any more.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial

from barnabas.cluster.metadata_cache import MetadataCache
from barnabas.coordinator.asking import Peers, Start
from barnabas.coordinator.gathering import Gathering
from barnabas.coordinator.transaction.local_markers import LocalMarkers
from barnabas.coordinator.transaction.markers import MarkerErrors, TransactionMarker
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
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

logger = logging.getLogger(__name__)


FindDeleted = Callable[[Collection[TopicPartition]], Awaitable[frozenset[TopicPartition]]]
"""Those of the partitions that do not exist any more."""

_MAY_BE_DELETED = (UnknownTopicOrPartition, LeaderNotAvailable, BrokerNotAvailable, NotLeaderOrFollower)
"""What is heard of a partition that does not exist any more, and of many that do."""


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
        """`peers` is None where there is no other broker."""
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
        """Tell each leader of its partitions; then call `done`, once."""
        by_leader, errors = self._by_leader(partitions)

        def told(answers: list[MarkerErrors]) -> None:
            for answer in answers:
                errors.update(answer)
            doubtful = [each for each, error in errors.items() if isinstance(error, _MAY_BE_DELETED)]
            if doubtful:
                self._start(self._leave_out_deleted(errors, doubtful, done))
            else:
                done(errors)

        gathering: Gathering[MarkerErrors] = Gathering(len(by_leader), told)
        for place, (leader, led) in enumerate(by_leader.items()):
            finish = partial(gathering.put, place)
            if leader == self._broker_id:
                self._local.write(marker, led, finish)
            else:
                self._start(self._send(leader, marker, led, finish))

    async def _leave_out_deleted(
        self, errors: MarkerErrors, doubtful: Sequence[TopicPartition], done: Callable[[MarkerErrors], None]
    ) -> None:
        deleted = await self._find_deleted(doubtful)
        for each in sorted(deleted):
            logger.info("%s is deleted and needs no marker", each)
        done({each: error for each, error in errors.items() if each not in deleted})

    def _by_leader(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[dict[int, list[TopicPartition]], dict[TopicPartition, KafkaError]]:
        by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        errors: dict[TopicPartition, KafkaError] = {}
        for each in sorted(partitions):
            known = self._metadata.partition(*each)
            if known is None:
                errors[each] = UnknownTopicOrPartition(f"nobody knows {each}")
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
        finish: Callable[[MarkerErrors], None],
    ) -> None:
        request = WriteTxnMarkersRequest(markers=[_writable(marker, partitions)])
        try:
            if self._peers is None:
                raise BrokerNotAvailable(f"broker {leader} is not in the cluster now")
            answer = await self._peers.send(leader, request, WriteTxnMarkersResponse)
        except KafkaError as error:
            finish(dict.fromkeys(partitions, error))
            return
        except Exception:
            # Without a word here nobody would tell the partitions again.
            logger.exception("telling broker %d of the end of a transaction failed", leader)
            finish(dict.fromkeys(partitions, UnknownServerError(f"broker {leader} could not be told")))
            return
        codes = {
            TopicPartition(topic.name, row.partition_index): row.error_code
            for result in answer.markers
            for topic in result.topics
            for row in topic.partitions
        }
        # A partition that the answer leaves out has no marker that we know of.
        finish(
            {
                each: error_for(code) if code else UnknownTopicOrPartition(f"no word of {each}")
                for each in partitions
                if (code := codes.get(each)) != 0
            }
        )


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
