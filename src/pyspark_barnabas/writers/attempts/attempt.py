"""Lane of one attempt at a task: inside the batch's transaction, or staged beside it.

An attempt that owns its partitions (`claims`) writes into the transaction. From the first partition that it
does not own, it writes beside the transaction (`staging`). It reports both to the driver, in the order of
writing.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.client.core.transaction_steps import Transaction
from barnabas.core.ids import TopicPartition
from pyspark_barnabas.produce.encode import Producer
from pyspark_barnabas.produce.lanes import Lane, Written
from pyspark_barnabas.produce.producer import BatchSender
from pyspark_barnabas.shared.cluster import Cluster
from pyspark_barnabas.writers.attempts.claims import Claims
from pyspark_barnabas.writers.attempts.staging import Staging


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

    def choose_lane(self, topic_partitions: Sequence[TopicPartition]) -> Lane:
        if self._staging is None:
            if self._claims.claim(topic_partitions):
                return self._direct
            self._staging = Staging(self._config, self._staging_id, self._timeout_ms)
        self._staging.prepare(topic_partitions)
        return self._staging

    def close(self) -> None:
        if self._staging is not None:
            self._staging.close()
