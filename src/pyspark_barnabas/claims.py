"""Which attempt at a task may write into the batch's transaction: at most one to each partition.

All attempts of a batch share the transaction's producer id and epoch, so a broker cannot tell them
apart: a batch of the second attempt whose sequence numbers are those of the first's is taken for a
retry, acknowledged and dropped. Therefore a partition must be claimed before it is written to.

Spark tells a task the number of its attempt, and any number but 0 is refused here without a question.
But a stage that is run again numbers its tasks from 0 again, while those of its first run may still be
at work, and Python is not told which run it belongs to. Two tasks that each believe to be the first
are told apart by a *splitter*, which takes two registers, x of the task and y of the partition, and
lets at most one through, however they interleave:

    x := me        InitProducerId of an id that all attempts at this task share: its epoch is my name
    y = set?       DescribeTransactions of the batch's: if the partition is in it, I am not the first
    y := set       AddPartitionsToTxn
    x = me?        DescribeTransactions of the task's: if the epoch is another's, I am not alone

Were A and B both let through, with A's name written before B's: A still read its own name, so A had
set y before B wrote its name, so B, which asked for y later, found it set.

One who is alone is let through. It may be that nobody is; then the partition is in the transaction
though no result says so, which the driver sees (`sink`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from barnabas.client import transaction_steps as transactions
from barnabas.client.transaction_steps import Transaction
from barnabas.core.errors import UnsupportedVersion
from barnabas.core.ids import TopicPartition
from pyspark_barnabas.cluster import Cluster

NAME_TIMEOUT_MS_MAX: Final = 60_000
"""Of an id under which nothing is ever written."""


class Claims:
    """Of one attempt at one task."""

    def __init__(self, cluster: Cluster, transaction: Transaction, *, task: int, attempt: int) -> None:
        self._cluster = cluster
        self._transaction = transaction
        self._name_id = f"{transaction.transactional_id}.task-{task}"
        self._may_ask = attempt == 0
        self._name: Transaction | None = None
        self._owned: set[TopicPartition] = set()

    def claim(self, places: Collection[TopicPartition]) -> bool:
        """Whether all of `places` are this attempt's own; once it is refused, it stays so."""
        wanted = set(places) - self._owned
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
            # A broker that does not describe transactions cannot tell who is alone.
            return False
