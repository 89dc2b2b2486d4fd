"""Staging lane: an attempt that may not write into the batch's transaction writes beside it.

Its rows go to their partitions under the attempt's own transactional id, and each flush is aborted as soon as
it is acknowledged. So they are in the log at known offsets, and no read_committed reader sees them. The
driver copies them from there if this attempt counts.

A killed attempt leaves one flush open, which blocks read_committed readers until the short timeout. As one
transaction, it would block them for as long as the task had run.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from barnabas.client.core import transaction_steps as transactions
from barnabas.core.ids import TopicPartition
from pyspark_barnabas.produce.encode import Producer
from pyspark_barnabas.produce.lanes import Lane, Written
from pyspark_barnabas.produce.producer import BatchSender
from pyspark_barnabas.shared.cluster import Cluster
from pyspark_barnabas.shared.cluster_config import ClusterConfig

FLUSH_TIMEOUT_MS_MAX: Final = 60_000
"""Timeout of one flush's transaction; a shorter timeout of the batch's transaction wins."""


class Staging(Lane):
    """Lane with its own connections: a sender consumes the responses of a connection in turn."""

    def __init__(self, config: ClusterConfig, transactional_id: str, timeout_ms: int) -> None:
        self._cluster = cluster = Cluster(config)
        timeout_ms = min(FLUSH_TIMEOUT_MS_MAX, timeout_ms)
        self._transaction = cluster.run(transactions.begin(cluster.state, transactional_id, timeout_ms))
        self._open: set[TopicPartition] = set()
        producer_id, epoch = self._transaction.producer_id, self._transaction.epoch
        self.written = Written(producer_id, epoch)
        sender = BatchSender(cluster, transactional_id=transactional_id, acknowledged=self.written.note)
        super().__init__(Producer(producer_id, epoch, is_transactional=True), sender)

    def prepare(self, topic_partitions: Collection[TopicPartition]) -> None:
        wanted = set(topic_partitions) - self._open
        self._cluster.run(transactions.add_partitions(self._cluster.state, self._transaction, wanted))
        self._open |= wanted

    def rest(self) -> None:
        self.sender.flush()
        if self._open:
            self._cluster.run(transactions.end(self._cluster.state, self._transaction, commit=False))
            self._open.clear()

    def close(self) -> None:
        self._cluster.close()
