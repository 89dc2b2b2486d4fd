"""Purgatories of a broker: produce, fetch and DeleteRecords requests that wait for partitions.

The three purgatories are watched by partition. Events that can end a wait are reported here by key: an
append, a higher high watermark, a moved log start, a lost leadership.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.config.broker_config import BrokerConfig
from barnabas.core.ids import TopicPartition
from barnabas.core.reporting.metrics import Metrics
from barnabas.purgatory.purgatory import Purgatory
from barnabas.purgatory.timer import Timer
from barnabas.replication.leader.delayed_produce import DelayedProduce
from barnabas.replication.leader.fetch_session import PartitionSubscriptions
from barnabas.replication.partition.replica_table import ReplicaTable

Defer = Callable[[Callable[[], None]], object]


class DelayedRequests:
    def __init__(
        self, table: ReplicaTable, timer: Timer, metrics: Metrics, config: BrokerConfig, defer: Defer
    ) -> None:
        """`defer` runs a function at the end of the current turn of the loop."""
        self._table = table
        self._defer = defer
        self._to_wake: dict[TopicPartition, None] = {}
        self.produces = Purgatory(
            "Produce", timer, metrics, config.producer_purgatory_purge_interval_requests
        )
        self.fetches = Purgatory("Fetch", timer, metrics, config.fetch_purgatory_purge_interval_requests)
        self.deletions = Purgatory(
            "DeleteRecords", timer, metrics, config.delete_records_purgatory_purge_interval_requests
        )
        self.subscriptions = PartitionSubscriptions()

    def wake(self, key: TopicPartition) -> None:
        """Complete fetches that wait for appended records, and produces whose records are below the high
        watermark now."""
        self.complete_fetches(key)
        partition = self._table.find(key)
        if partition is None or partition.has_new_high_watermark:
            self._complete_produces(key)

    def wake_soon(self, key: TopicPartition) -> None:
        """`wake` at the end of the turn of the loop: records that other requests append meanwhile are read
        together with these."""
        if not self._to_wake:
            self._to_wake[key] = None
            self._defer(self._wake_all)
        else:
            self._to_wake[key] = None

    def _wake_all(self) -> None:
        keys, self._to_wake = self._to_wake, {}
        for key in keys:
            self.wake(key)

    def complete_fetches(self, key: TopicPartition) -> None:
        """Complete fetches after new records, or after another change that every reader needs."""
        fetches = self.fetches
        for session in self.subscriptions.mark_changed(key):
            fetches.check_and_complete(session)
        fetches.check_and_complete(key)

    def complete_committed(self, key: TopicPartition) -> None:
        """Complete the requests that wait for a watermark. Followers wait for records instead."""
        self._complete_produces(key)
        self.subscriptions.mark_for_next_answer(key)
        self.fetches.check_and_complete(key)
        self.deletions.check_and_complete(key)

    def complete_all(self, key: TopicPartition) -> None:
        """Check every request of the partition: its leader, its ISR or its disk changed."""
        self._complete_produces(key)
        self.complete_fetches(key)
        self.deletions.check_and_complete(key)

    def _complete_produces(self, key: TopicPartition) -> None:
        partition = self._table.find(key)
        if partition is not None:
            partition.high_watermark_checked()
        self.produces.check_and_complete(key)

    def answer_waiting(self) -> None:
        """Answer waiting requests at shutdown, when no more requests are read. Fetches get the records there
        are; produces that wait for followers are not acknowledged. Requests that wait for the local disk go
        on waiting."""
        self.fetches.complete_all()
        self.produces.complete_all(lambda each: isinstance(each, DelayedProduce) and each.waits_for_followers)
        self.deletions.complete_all()
