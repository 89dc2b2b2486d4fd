"""Claims of partitions: at most one attempt at a task writes to each partition in the batch's transaction.

All attempts of a batch share the transaction's producer id and epoch, so a broker cannot distinguish them. It
takes a batch of the second attempt with the sequence numbers of the first for a retry: it acknowledges and
drops the batch. Therefore an attempt claims a partition before it writes to it.

Spark gives a task its attempt number, and any number but 0 is refused here at once. But a stage that runs
again numbers its tasks from 0 again, while tasks of its first run may still be active. Python does not learn
the run of the stage. A *splitter* separates two tasks that both have number 0. It takes two registers, x of
the task and y of the partition, and lets at most one task through, in any interleaving:

    x := me        InitProducerId of an id that all attempts at this task share: its epoch is my name
    y = set?       DescribeTransactions of the batch's id: if the partition is in it, I am not the first
    y := set       AddPartitionsToTxn
    x = me?        DescribeTransactions of the task's id: if the epoch is not mine, I am not alone

Proof: let A and B both pass, with A's name written before B's. A still read its own name, so A had set y
before B wrote its name. So B, which read y later, found it set: a contradiction.

A task that is alone passes. It may be that no task passes. Then the partition is in the transaction but in no
result, which the driver detects (`sink`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from barnabas.client.core import transaction_steps as transactions
from barnabas.client.core.transaction_steps import Transaction
from barnabas.core.errors import UnsupportedVersion
from barnabas.core.ids import TopicPartition
from pyspark_barnabas.shared.cluster import Cluster

NAME_TIMEOUT_MS_MAX: Final = 60_000
"""Timeout of a transactional id that never writes."""


class Claims:
    """Claims of one attempt at one task."""

    def __init__(self, cluster: Cluster, transaction: Transaction, *, task: int, attempt: int) -> None:
        self._cluster = cluster
        self._transaction = transaction
        self._name_id = f"{transaction.transactional_id}.task-{task}"
        self._may_ask = attempt == 0
        self._name: Transaction | None = None
        self._owned: set[TopicPartition] = set()

    def claim(self, topic_partitions: Collection[TopicPartition]) -> bool:
        """True if this attempt owns all of `topic_partitions`. A refusal is final."""
        wanted = set(topic_partitions) - self._owned
        if self._may_ask and wanted:
            self._may_ask = self._is_alone(wanted)
        if self._may_ask:
            self._owned |= wanted
        return self._may_ask

    def _is_alone(self, wanted: set[TopicPartition]) -> bool:
        cluster, transaction = self._cluster, self._transaction
        try:
            if self._name is None:
                timeout_ms = min(NAME_TIMEOUT_MS_MAX, transaction.timeout_ms)
                self._name = cluster.run(transactions.begin(cluster.state, self._name_id, timeout_ms))
            if wanted & cluster.run(transactions.open_partitions(cluster.state, transaction)):
                return False
            cluster.run(transactions.add_partitions(cluster.state, transaction, wanted))
            return cluster.run(transactions.is_current(cluster.state, self._name))
        except UnsupportedVersion:
            # A broker without DescribeTransactions cannot separate the attempts.
            return False
