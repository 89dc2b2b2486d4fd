"""From Prepare to Complete: tell every partition of a transaction how it ended.

Telling starts when the Prepare record is replicated, never before: a marker cannot be taken back. What
cannot be told now (a partition without a leader, an offsets partition that is being loaded) is told again
later, until it is. A marker that is written twice does no harm, since nothing new can begin under the
transactional id before the Complete record; so a coordinator that takes over simply starts from the top.

A producer is told of its commit when the decision is safe, and may begin its next transaction while the last
is still on its way. Such a request waits here for a moment, instead of being sent back to try again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from barnabas.coordinator.decision import Answers, Decision, Waiter, deliver
from barnabas.coordinator.timers import ShardTimers
from barnabas.coordinator.transaction.cluster_markers import ClusterMarkers
from barnabas.coordinator.transaction.markers import MarkerErrors, TransactionMarker
from barnabas.coordinator.transaction.metadata import TransactionMetadata
from barnabas.coordinator.transaction.states import PREPARE_COMMIT, PREPARED
from barnabas.core.complaints import Complaints
from barnabas.core.errors import InvalidProducerEpoch, TransactionCoordinatorFenced
from barnabas.core.ids import TopicPartition
from barnabas.core.log_text import cut

RETRY_MS_MIN = 20.0
RETRY_MS_MAX = 2_000.0
WAIT_MS_MAX = 100.0
"""How long the next transaction waits for the last one, before its producer has to ask again."""


class Completions:
    """The prepared transactions of one shard on their way."""

    __slots__ = ("_complaints", "_complete", "_find", "_markers", "_telling", "_timers", "_waiting")

    def __init__(
        self,
        markers: ClusterMarkers,
        timers: ShardTimers,
        find: Callable[[str], TransactionMetadata | None],
        complete: Callable[[str], Decision[None]],
        complaints: Complaints,
    ) -> None:
        self._markers = markers
        self._timers = timers
        self._find = find
        self._complete = complete
        self._complaints = complaints
        self._telling: dict[str, TransactionMetadata] = {}
        self._waiting: dict[str, list[Waiter[None]]] = {}

    def start(self, transactional_id: str) -> None:
        """The Prepare record is replicated."""
        metadata = self._find(transactional_id)
        if metadata is None or metadata.state not in PREPARED:
            return
        if self._telling.get(transactional_id) is metadata:
            return
        self._telling[transactional_id] = metadata
        self._tell(metadata, set(metadata.partitions), RETRY_MS_MIN)

    def start_later(self, transactional_id: str, delay_ms: float = RETRY_MS_MIN) -> None:
        """Look again whether the transaction is prepared, and whether that is replicated."""
        self._timers.schedule(
            ("complete", transactional_id), delay_ms, lambda: self._when_replicated(transactional_id)
        )

    def _when_replicated(self, transactional_id: str) -> Decision[None]:
        return Decision(later_answers=[self.when_prepared(transactional_id, RETRY_MS_MAX)])

    def when_prepared(self, transactional_id: str, retry_ms: float = RETRY_MS_MIN) -> tuple[Waiter[Any], Any]:
        """Start once the Prepare record is replicated; if it is not in time, look again after a pause."""
        again = partial(self.start_later, transactional_id, retry_ms)
        return Waiter(self.start, lambda _: again()), transactional_id

    def wait(self, transactional_id: str, waiter: Waiter[None]) -> None:
        """It is answered when the transaction is complete, or when that takes too long."""
        self._waiting.setdefault(transactional_id, []).append(waiter)
        key = ("wait", transactional_id)
        if not self._timers.is_scheduled(key):
            self._timers.schedule(
                key, WAIT_MS_MAX, lambda: Decision(answers=self._waited_for(transactional_id))
            )

    def close(self) -> Answers:
        """To all who still wait."""
        self._telling.clear()
        return [
            answer for transactional_id in [*self._waiting] for answer in self._waited_for(transactional_id)
        ]

    def _waited_for(self, transactional_id: str) -> Answers:
        self._timers.cancel(("wait", transactional_id))
        return [(waiter, None) for waiter in self._waiting.pop(transactional_id, ())]

    def _tell(self, metadata: TransactionMetadata, partitions: set[TopicPartition], retry_ms: float) -> None:
        marker = TransactionMarker(
            metadata.producer_id,
            metadata.producer_epoch,
            self._timers.leader_epoch,
            metadata.state is PREPARE_COMMIT,
            metadata.client_transaction_version,
        )
        self._markers.write(marker, partitions, lambda errors: self._told(metadata, errors, retry_ms))

    def _told(self, metadata: TransactionMetadata, errors: MarkerErrors, retry_ms: float) -> None:
        transactional_id = metadata.transactional_id
        if self._telling.get(transactional_id) is not metadata:
            return
        left: set[TopicPartition] = set()
        for topic_partition, error in errors.items():
            if isinstance(error, TransactionCoordinatorFenced):
                self._complaints.warn(
                    "fenced", "%s is coordinated elsewhere: %s", cut(transactional_id), cut(error.message)
                )
                del self._telling[transactional_id]
                return
            if isinstance(error, InvalidProducerEpoch):
                self._complaints.warn(
                    "ended",
                    "%s has ended in %s before: %s",
                    cut(transactional_id),
                    topic_partition,
                    cut(error.message),
                )
                continue
            left.add(topic_partition)
        if left:
            following_ms = min(retry_ms * 2, RETRY_MS_MAX)
            self._timers.schedule(
                ("markers", transactional_id),
                retry_ms,
                lambda: self._tell_again(metadata, left, following_ms),
            )
        else:
            del self._telling[transactional_id]
            self._timers.run(
                lambda: self._complete(transactional_id),
                lambda: self.start_later(transactional_id, RETRY_MS_MAX),
            )
            present = self._find(transactional_id)
            if present is None or present.state not in PREPARED:
                deliver(self._waited_for(transactional_id))

    def _tell_again(
        self, metadata: TransactionMetadata, left: set[TopicPartition], retry_ms: float
    ) -> Decision[None]:
        if self._telling.get(metadata.transactional_id) is metadata:
            self._tell(metadata, left, retry_ms)
        return Decision()
