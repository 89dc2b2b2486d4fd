"""Requests that wait for partitions: for safety, for bytes, or for deletion everywhere.

Three purgatories, watched by partition. The events that can end the waiting (an append, a rising high
watermark, a moved log start, a lost leadership) are reported here by key.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.config.broker_config import BrokerConfig
from barnabas.core.ids import TopicPartition
from barnabas.core.metrics import Metrics
from barnabas.purgatory.purgatory import Purgatory
from barnabas.purgatory.timer import Timer
from barnabas.replication.leader.delayed_produce import DelayedProduce
from barnabas.replication.leader.fetch_session import PartitionSubscriptions
from barnabas.replication.replica_table import ReplicaTable

Defer = Callable[[Callable[[], None]], object]


class DelayedRequests:
    def __init__(
        self, table: ReplicaTable, timer: Timer, metrics: Metrics, settings: BrokerConfig, defer: Defer
    ) -> None:
        """`defer` runs something when the present turn of the loop is over."""
        self._table = table
        self._defer = defer
        self._to_wake: dict[TopicPartition, None] = {}
        self.produces = Purgatory(
            "Produce", timer, settings.producer_purgatory_purge_interval_requests, metrics
        )
        self.fetches = Purgatory("Fetch", timer, settings.fetch_purgatory_purge_interval_requests, metrics)
        self.deletions = Purgatory(
            "DeleteRecords", timer, settings.delete_records_purgatory_purge_interval_requests, metrics
        )
        self.subscriptions = PartitionSubscriptions()

    def wake(self, key: TopicPartition) -> None:
        """Records were appended: readers that wait for them may go on, and so may producers
        whose earlier records are below the high watermark now."""
        self.complete_fetches(key)
        partition = self._table.find(key)
        if partition is None or partition.has_new_high_watermark:
            self._complete_produces(key)

    def wake_soon(self, key: TopicPartition) -> None:
        """The same when the turn of the loop is over: what other requests append meanwhile is read
        together with this."""
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
        """Records came, or something else that all readers want to hear."""
        fetches = self.fetches
        for session in self.subscriptions.mark_changed(key):
            fetches.check_and_complete(session)
        fetches.check_and_complete(key)

    def complete_committed(self, key: TopicPartition) -> None:
        """A watermark moved: who waits for that may go on. Followers wait for records."""
        self._complete_produces(key)
        self.subscriptions.mark_for_next_answer(key)
        self.fetches.check_and_complete(key)
        self.deletions.check_and_complete(key)

    def complete_all(self, key: TopicPartition) -> None:
        """The leader, the ISR or the disk changed: whoever waits for the partition looks again."""
        self._complete_produces(key)
        self.complete_fetches(key)
        self.deletions.check_and_complete(key)

    def _complete_produces(self, key: TopicPartition) -> None:
        partition = self._table.find(key)
        if partition is not None:
            partition.high_watermark_checked()
        self.produces.check_and_complete(key)

    def answer_waiting(self) -> None:
        """No more requests are read: fetches get what there is, and what followers would have to
        fetch is not acknowledged any more. Who waits for our own disk may go on waiting."""
        self.fetches.complete_all()
        self.produces.complete_all(lambda each: isinstance(each, DelayedProduce) and each.waits_for_followers)
        self.deletions.complete_all()
