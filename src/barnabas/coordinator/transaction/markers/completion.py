"""Completion of prepared transactions: writes markers to every partition, then the Complete record.

Markers are written once the Prepare record is replicated, never before: a marker cannot be taken back. Failed
partitions (without a leader, or an offsets partition that is being loaded) are retried until they succeed. A
marker written twice does no harm: nothing new can begin under the transactional id before the Complete
record. So a new coordinator simply starts over.

A producer receives the response to its commit when the Prepare record is safe, and may begin its next
transaction before the markers are written. Such a request waits here for a moment, instead of being retried
by the client.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from barnabas.coordinator.runtime.decision import Answers, Decision, Waiter, deliver
from barnabas.coordinator.runtime.timers import ShardTimers
from barnabas.coordinator.transaction.markers.cluster import ClusterMarkers
from barnabas.coordinator.transaction.markers.outcome import MarkerErrors, TransactionMarker
from barnabas.coordinator.transaction.state.metadata import TransactionMetadata
from barnabas.coordinator.transaction.state.states import PREPARE_COMMIT, PREPARED
from barnabas.core.backoff import Backoff
from barnabas.core.errors import InvalidProducerEpoch, TransactionCoordinatorFenced
from barnabas.core.ids import TopicPartition
from barnabas.core.reporting.log_text import cut
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger

MARKER_BACKOFF = Backoff(first_ms=20.0, max_ms=2_000.0)
"""Pauses before markers that failed are written again."""
WAIT_MS_MAX = 100.0
"""Longest wait of the next transaction for the previous one, before its producer has to retry."""


class Completions:
    """Prepared transactions of one shard until their completion."""

    __slots__ = ("_complete", "_find", "_limited_log", "_markers", "_timers", "_waiting", "_writing")

    def __init__(
        self,
        markers: ClusterMarkers,
        timers: ShardTimers,
        find: Callable[[str], TransactionMetadata | None],
        complete: Callable[[str], Decision[None]],
        limited_log: RateLimitedLogger,
    ) -> None:
        self._markers = markers
        self._timers = timers
        self._find = find
        self._complete = complete
        self._limited_log = limited_log
        self._writing: dict[str, TransactionMetadata] = {}
        self._waiting: dict[str, list[Waiter[None]]] = {}

    def start(self, transactional_id: str) -> None:
        """Write the markers: the Prepare record is replicated."""
        metadata = self._find(transactional_id)
        if metadata is None or metadata.state not in PREPARED:
            return
        if self._writing.get(transactional_id) is metadata:
            return
        self._writing[transactional_id] = metadata
        self._write(metadata, set(metadata.partitions), MARKER_BACKOFF.first_ms)

    def start_later(self, transactional_id: str, delay_ms: float = MARKER_BACKOFF.first_ms) -> None:
        """Check later whether the transaction is prepared, and whether that is replicated."""
        self._timers.schedule(
            ("complete", transactional_id), delay_ms, lambda: self._when_replicated(transactional_id)
        )

    def _when_replicated(self, transactional_id: str) -> Decision[None]:
        return Decision(later_answers=[self.when_prepared(transactional_id, MARKER_BACKOFF.max_ms)])

    def when_prepared(
        self, transactional_id: str, retry_ms: float = MARKER_BACKOFF.first_ms
    ) -> tuple[Waiter[Any], Any]:
        """Waiter that starts once the Prepare record is replicated; after a timeout it checks again."""
        again = partial(self.start_later, transactional_id, retry_ms)
        return Waiter(self.start, lambda _: again()), transactional_id

    def wait(self, transactional_id: str, waiter: Waiter[None]) -> None:
        """Answer `waiter` when the transaction is complete, or when that takes too long."""
        self._waiting.setdefault(transactional_id, []).append(waiter)
        key = ("wait", transactional_id)
        if not self._timers.is_scheduled(key):
            self._timers.schedule(
                key, WAIT_MS_MAX, lambda: Decision(answers=self._waited_for(transactional_id))
            )

    def close(self) -> Answers:
        """Responses to all waiting requests."""
        self._writing.clear()
        return [
            answer for transactional_id in [*self._waiting] for answer in self._waited_for(transactional_id)
        ]

    def _waited_for(self, transactional_id: str) -> Answers:
        self._timers.cancel(("wait", transactional_id))
        return [(waiter, None) for waiter in self._waiting.pop(transactional_id, ())]

    def _write(self, metadata: TransactionMetadata, partitions: set[TopicPartition], retry_ms: float) -> None:
        marker = TransactionMarker(
            metadata.producer_id,
            metadata.producer_epoch,
            self._timers.leader_epoch,
            metadata.state is PREPARE_COMMIT,
            metadata.client_transaction_version,
        )
        self._markers.write(marker, partitions, lambda errors: self._written(metadata, errors, retry_ms))

    def _written(self, metadata: TransactionMetadata, errors: MarkerErrors, retry_ms: float) -> None:
        transactional_id = metadata.transactional_id
        if self._writing.get(transactional_id) is not metadata:
            return
        left: set[TopicPartition] = set()
        for topic_partition, error in errors.items():
            if isinstance(error, TransactionCoordinatorFenced):
                self._limited_log.warn(
                    "fenced",
                    "transactional id %s: another coordinator has taken over: %s",
                    cut(transactional_id),
                    cut(error.message),
                )
                del self._writing[transactional_id]
                return
            if isinstance(error, InvalidProducerEpoch):
                self._limited_log.warn(
                    "ended",
                    "transactional id %s: its transaction has already ended in partition %s: %s",
                    cut(transactional_id),
                    topic_partition,
                    cut(error.message),
                )
                continue
            left.add(topic_partition)
        if left:
            following_ms = MARKER_BACKOFF.following_ms(retry_ms)
            self._timers.schedule(
                ("markers", transactional_id),
                retry_ms,
                lambda: self._write_again(metadata, left, following_ms),
            )
        else:
            del self._writing[transactional_id]
            self._timers.run(
                lambda: self._complete(transactional_id),
                lambda: self.start_later(transactional_id, MARKER_BACKOFF.max_ms),
            )
            present = self._find(transactional_id)
            if present is None or present.state not in PREPARED:
                deliver(self._waited_for(transactional_id))

    def _write_again(
        self, metadata: TransactionMetadata, left: set[TopicPartition], retry_ms: float
    ) -> Decision[None]:
        if self._writing.get(metadata.transactional_id) is metadata:
            self._write(metadata, left, retry_ms)
        return Decision()
