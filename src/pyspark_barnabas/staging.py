"""Where an attempt writes that must not write into the batch's transaction.

Its rows go to their partitions under a transactional id of its own, and each flush is aborted as soon
as it is acknowledged. So they are in the log, at offsets that the attempt knows, and no reader of
committed data ever sees them there; the driver copies them from there if this attempt is the one
that counts. An attempt that is killed leaves one flush open, which holds readers of committed data up
until the short timeout; were it all one transaction, that would be for as long as the task had taken.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from barnabas.client import transaction_steps as transactions
from barnabas.core.ids import TopicPartition
from pyspark_barnabas.cluster import Cluster
from pyspark_barnabas.cluster_config import ClusterConfig
from pyspark_barnabas.encode import Producer
from pyspark_barnabas.lanes import Lane, Written
from pyspark_barnabas.producer import BatchSender

FLUSH_TIMEOUT_MS_MAX: Final = 60_000
"""Of the transaction of one flush; where the batch's own is shorter, brokers may not allow more."""


class Staging(Lane):
    """On connections of its own: a sender takes the answers of a connection in turn."""

    def __init__(self, config: ClusterConfig, transactional_id: str, timeout_ms: int) -> None:
        self._cluster = cluster = Cluster(config)
        timeout_ms = min(FLUSH_TIMEOUT_MS_MAX, timeout_ms)
        self._transaction = cluster.run(transactions.begin(cluster.state, transactional_id, timeout_ms))
        self._open: set[TopicPartition] = set()
        producer_id, epoch = self._transaction.producer_id, self._transaction.epoch
        self.written = Written(producer_id, epoch)
        sender = BatchSender(cluster, transactional_id=transactional_id, acknowledged=self.written.note)
        super().__init__(Producer(producer_id, epoch, is_transactional=True), sender)

    def prepare(self, places: Collection[TopicPartition]) -> None:
        wanted = set(places) - self._open
        self._cluster.run(transactions.add_partitions(self._cluster.state, self._transaction, wanted))
        self._open |= wanted

    def rest(self) -> None:
        self.sender.flush()
        if self._open:
            self._cluster.run(transactions.end(self._cluster.state, self._transaction, commit=False))
            self._open.clear()

    def close(self) -> None:
        self._cluster.close()
