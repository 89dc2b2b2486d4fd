"""Requests that wait for partitions: for safety, for bytes, or for deletion everywhere.

Three purgatories, watched by partition. The events that can end the waiting (an append, a rising high
watermark, a moved log start, a lost leadership) are reported here by key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.core.ids import BrokerId, TopicPartition
from barnabas.core.metrics import Metrics
from barnabas.purgatory.purgatory import Purgatory
from barnabas.purgatory.timer import Timer
from barnabas.replication.leader.delayed_delete_records import DelayedDeleteRecords, PendingDeletion
from barnabas.replication.leader.delayed_produce import DelayedProduce, PendingAck
from barnabas.replication.leader.fetch_news import NewsBoard
from barnabas.replication.replica_table import ReplicaTable
from barnabas.replication.settings import ReplicationSettings


def _at_once(work: Callable[[], None]) -> None:
    work()


class WaitingReplicas(ReplicaTable):
    def __init__(
        self, broker_id: BrokerId, timer: Timer, metrics: Metrics, settings: ReplicationSettings
    ) -> None:
        super().__init__(broker_id, metrics)
        self.defer: Callable[[Callable[[], None]], object] = _at_once
        """Runs something when the present turn of the loop is over."""
        self._to_wake: dict[TopicPartition, None] = {}
        self.settings = settings
        self.produce_purgatory = Purgatory(
            "Produce", timer, settings.producer_purgatory_purge_interval_requests, metrics
        )
        self.fetch_purgatory = Purgatory(
            "Fetch", timer, settings.fetch_purgatory_purge_interval_requests, metrics
        )
        self.delete_records_purgatory = Purgatory(
            "DeleteRecords", timer, settings.delete_records_purgatory_purge_interval_requests, metrics
        )
        self.board = NewsBoard()

    def await_acks(
        self,
        timeout_ms: float,
        required_acks: int,
        pending: Sequence[PendingAck],
        respond: Callable[[], None],
    ) -> None:
        """Call `respond` when every append of `pending` is as safe as was asked for, or time is up."""
        operation = DelayedProduce(timeout_ms, required_acks, pending, respond)
        keys = [ack.partition.topic_partition for ack in pending]
        self.produce_purgatory.try_complete_else_watch(operation, keys)

    def delete_records(
        self,
        timeout_ms: float,
        pending: Sequence[PendingDeletion],
        respond: Callable[[], None],
    ) -> None:
        """Call `respond` when every replica has forgotten the records, or time is up."""
        operation = DelayedDeleteRecords(timeout_ms, pending, respond)
        keys = [deletion.partition.topic_partition for deletion in pending]
        for key in keys:
            self.board.mark(key)  # the followers must hear where the log starts now
        self.delete_records_purgatory.try_complete_else_watch(operation, keys)

    def wake(self, key: TopicPartition) -> None:
        """Records were appended: readers that wait for them may go on, and so may producers
        whose earlier records are below the high watermark now."""
        self._complete_fetch(key)
        partition = self._partitions.get(key)
        if partition is None or partition.told_high_watermark != partition.log.high_watermark:
            self._complete_produce(key)

    def wake_soon(self, key: TopicPartition) -> None:
        """The same when the turn of the loop is over: what other requests append meanwhile is read
        together with this."""
        if not self._to_wake:
            self._to_wake[key] = None
            self.defer(self._wake_all)
        else:
            self._to_wake[key] = None

    def _wake_all(self) -> None:
        keys, self._to_wake = self._to_wake, {}
        for key in keys:
            self.wake(key)

    def _complete_produce(self, key: TopicPartition) -> None:
        partition = self._partitions.get(key)
        if partition is not None:
            partition.told_high_watermark = partition.log.high_watermark
        self.produce_purgatory.check_and_complete(key)

    def _complete_fetch(self, key: TopicPartition) -> None:
        purgatory = self.fetch_purgatory
        for session in self.board.mark(key):
            purgatory.check_and_complete(session)
        purgatory.check_and_complete(key)

    def _complete_committed(self, key: TopicPartition) -> None:
        """A watermark moved: who waits for that may go on. Followers wait for records."""
        self._complete_produce(key)
        self.board.note(key)
        self.fetch_purgatory.check_and_complete(key)
        self.delete_records_purgatory.check_and_complete(key)

    def _complete_all(self, key: TopicPartition) -> None:
        self._complete_produce(key)
        self._complete_fetch(key)
        self.delete_records_purgatory.check_and_complete(key)
