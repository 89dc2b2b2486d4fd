"""Where one attempt at a task writes: into the batch's transaction, or beside it.

An attempt that owns its partitions (`claims`) writes straight into the transaction. From the first
partition on that it does not own, it writes beside it (`staging`). What it has written either way, it
tells the driver, in the order in which it was written.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.client.transaction_steps import Transaction
from barnabas.core.ids import TopicPartition
from pyspark_barnabas.claims import Claims
from pyspark_barnabas.cluster import Cluster
from pyspark_barnabas.encode import Producer
from pyspark_barnabas.lanes import Lane, Written
from pyspark_barnabas.producer import BatchSender
from pyspark_barnabas.staging import Staging


class Attempt:
    def __init__(self, cluster: Cluster, transaction: Transaction, *, task: int, attempt: int) -> None:
        self._config = cluster.config
        self._timeout_ms = transaction.timeout_ms
        self._staging_id = f"{transaction.transactional_id}.retry-{task}-{attempt}"
        self._claims = Claims(cluster, transaction, task=task, attempt=attempt)
        self.direct = Written(transaction.producer_id, transaction.epoch)
        self._direct = Lane(
            Producer(transaction.producer_id, transaction.epoch, is_transactional=True),
            BatchSender(
                cluster, transactional_id=transaction.transactional_id, acknowledged=self.direct.note
            ),
        )
        self._staging: Staging | None = None

    @property
    def staged(self) -> Written | None:
        return None if self._staging is None else self._staging.written

    def choose_lane(self, places: Sequence[TopicPartition]) -> Lane:
        if self._staging is None:
            if self._claims.claim(places):
                return self._direct
            self._staging = Staging(self._config, self._staging_id, self._timeout_ms)
        self._staging.prepare(places)
        return self._staging

    def close(self) -> None:
        if self._staging is not None:
            self._staging.close()
