"""Exactly-once writer for topics: one transaction per micro-batch.

**The path of a batch.** Spark pickles the writer for the tasks, and the driver then calls InitProducerId.
That fences the previous user of the pipeline's transactional id, aborts its open transaction, and gives this
batch its own epoch. Tasks add their partitions to the transaction and write to them with the one producer id.
The driver then commits the source's offsets in the same transaction, with the batch's name in their metadata,
and ends it.

**The crash windows.** Before EndTxn reaches the coordinator, no record is visible. Spark runs the batch
again, and InitProducerId aborts the remains. After EndTxn the batch is done, even if the driver did not
receive the response. InitProducerId waits for the completion. The batch's name, (query id, batch id), is then
in the group's offset metadata, and for longer in `markerTopic` (see `markers`). So the tasks of the repeated
batch write nothing.

A zombie driver and the zombie tasks of an earlier attempt at a batch have an older epoch, so every broker
refuses them. The coordinator aborts a transaction that outlives its timeout and bumps the epoch. The commit
is then refused, and Spark runs the batch again.

**One producer id, many tasks.** A broker checks a producer's sequence numbers per partition. So tasks may
share the id while each output partition has one writer: `exactly_once` repartitions the rows for that. Each
task reports the partitions that it wrote to; a partition with two writers stops the commit.

**Tasks that run again.** Tasks fail, run speculatively, and run again with their stage. Two attempts at a
task must not mix, because a shuffle may return rows in another order. Rows of a discarded attempt must not be
committed, but a transaction is committed as a whole. So at most one attempt writes to a partition in the
batch's transaction (`claims`). Every other attempt writes beside it, invisible to readers (`staging`).

Spark names the attempt that counts for each task. If only these attempts touched the transaction, it is
committed as it is; without a repeated task that is always so. Otherwise the driver aborts it and copies the
batches of the counting attempts from the log into the next transaction (`copy_attempts`). No task has the
epoch of that one. So a task's retry costs a second write of its batch and never a record, and the query
continues. Only the driver of the last epoch receives the next one, so a replaced driver cannot return this
way.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from barnabas.client.core import transaction_steps as transactions
from barnabas.client.core.transaction_steps import Transaction
from barnabas.core.errors import InvalidTransactionTimeout, OutOfOrderSequenceNumber, UnsupportedVersion
from barnabas.core.ids import TopicPartition
from barnabas.pipelines.state.durable_files import sync_plan
from barnabas.pipelines.state.offset_syncs import Sync
from pyspark_barnabas.produce.lanes import Written
from pyspark_barnabas.produce.rows import RowWriter
from pyspark_barnabas.shared import options as parse
from pyspark_barnabas.shared.cluster import Cluster
from pyspark_barnabas.shared.options import OptionError, Options
from pyspark_barnabas.writers import offset_syncs
from pyspark_barnabas.writers.attempts import copy_attempts, markers
from pyspark_barnabas.writers.attempts.attempt import Attempt
from pyspark_barnabas.writers.batch_names import BATCH_ID, QUERY_ID, batch_marker, last_committed_batch
from pyspark_barnabas.writers.journal import journaled_offsets, known_offsets
from pyspark_barnabas.writers.writer import row_options

TRANSACTION_TIMEOUT_MS: Final = 900_000
"""The brokers' default maximum. The writer halves it until the brokers accept it."""
TRANSACTION_TIMEOUT_MS_MIN: Final = 2_000
TIMEOUT: Final = "kafka.transaction.timeout.ms"
ONE_WRITER_EACH: Final = "give each output partition one writer with pyspark_barnabas.exactly_once(df, ...)"

logger = logging.getLogger(__name__)


@dataclass
class TransactionPart(WriterCommitMessage):
    """Contribution of one task to the transaction."""

    query_id: str
    transaction: Transaction
    is_done_before: bool = False
    records: dict[TopicPartition, int] = field(default_factory=dict)
    direct: Written | None = None
    """Batches inside the transaction."""
    staged: Written | None = None
    """Batches beside the transaction, later than those inside it."""


class _Sink:
    """Transaction handling of batch and stream writers."""

    def __init__(self, options: Options, schema: StructType) -> None:
        name = options.get("pipelineId") or options.get("transactionalIdPrefix")
        if not name:
            raise OptionError(
                "delivery=exactly-once needs pipelineId: a name that the pipeline keeps for its whole life"
            )
        prefix = options.get("transactionalIdPrefix")
        self._transactional_id = name if prefix in (None, name) else f"{prefix}{name}"
        self._group = options.kafka().get("group.id", name)
        self._config = parse.cluster_config(options)
        self._rows = row_options(options, schema)
        self._given_timeout_ms = options.number(TIMEOUT) or options.number("transactionTimeoutMs")
        self._timeout_ms = self._given_timeout_ms or TRANSACTION_TIMEOUT_MS
        self._marker_topic = options.get("markerTopic")
        self._sync_topic = options.get("offsetSyncTopic")
        self._sync_prefix = options.get("offsetSyncPrefix") or ""
        self._checkpoint = options.get("checkpointLocation")
        self._given_query_id = options.get("queryId")
        self._given_batch_id = options.number("batchId", least=0)
        self._transaction: Transaction | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Begin the transaction. Spark pickles a writer only to send it to the tasks.

        Spark makes another writer to commit; it is not pickled and must not begin a transaction.
        """
        if self._transaction is None:
            self._transaction = self._begin()
        return self.__dict__

    def _begin(self) -> Transaction:
        """Begin with the given timeout, or else with the longest that the broker allows."""
        with Cluster(self._config) as cluster:
            while True:
                try:
                    return cluster.run(
                        transactions.begin(cluster.state, self._transactional_id, self._timeout_ms)
                    )
                except InvalidTransactionTimeout:
                    if self._given_timeout_ms is not None or self._timeout_ms < TRANSACTION_TIMEOUT_MS_MIN:
                        raise OptionError(
                            f"{TIMEOUT}={self._timeout_ms} is more than transaction.max.timeout.ms of the"
                            " brokers allows; set a lower one, or leave it out"
                        ) from None
                    self._timeout_ms //= 2

    def last_batch(self, query_id: str) -> int:
        """Last committed batch of the query; -1 if there is none.

        An open transaction of an earlier driver is ended first, so that the answer stays true.
        """
        self._begin()
        with Cluster(self._config) as cluster:
            return last_committed_batch(cluster, self._group, query_id, self._marker_topic)

    def committed_with(self, query_id: str, batch_id: int) -> dict[TopicPartition, int] | None:
        """Offsets committed with a batch, if it is the last batch and the group still has its offsets."""
        self._begin()
        with Cluster(self._config) as cluster:
            found = cluster.run(transactions.committed_metadata(cluster.state, self._group))
        marker = batch_marker(query_id, batch_id)
        offsets = {
            topic_partition: offset
            for topic_partition, (offset, metadata) in found.items()
            if metadata == marker
        }
        return offsets or None

    # --- in the tasks ---

    def _write(self, rows: Iterator[pa.RecordBatch]) -> TransactionPart:
        context = TaskContext.get()
        transaction = self._transaction
        assert context is not None
        assert transaction is not None
        query_id = self._given_query_id or context.getLocalProperty(QUERY_ID)
        batch_id = self._given_batch_id
        if batch_id is None:
            batch_id = int(context.getLocalProperty(BATCH_ID) or -1)
        if not query_id or batch_id < 0:
            raise OptionError("delivery=exactly-once outside a stream needs the options queryId and batchId")
        part = TransactionPart(query_id, transaction)
        with Cluster(self._config) as cluster:
            if last_committed_batch(cluster, self._group, query_id, self._marker_topic) >= batch_id:
                part.is_done_before = True
                return part
            self._write_rows(cluster, part, rows, context)
        return part

    def _write_rows(
        self, cluster: Cluster, part: TransactionPart, rows: Iterator[pa.RecordBatch], context: TaskContext
    ) -> None:
        task = context.partitionId()
        attempt = Attempt(cluster, part.transaction, task=task, attempt=context.attemptNumber())
        writer = RowWriter(cluster, attempt.choose_lane, self._rows, task=task)
        try:
            with closing(attempt):
                writer.write(rows)
        except OutOfOrderSequenceNumber as error:
            raise OptionError(f"{error.message}: {ONE_WRITER_EACH}") from error
        part.records, part.direct, part.staged = writer.records, attempt.direct, attempt.staged

    # --- on the driver ---

    def _commit(self, parts: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        mine = [part for part in parts if isinstance(part, TransactionPart)]
        if not mine or all(part.is_done_before for part in mine):
            return
        query_id = mine[0].query_id
        _check_one_writer_each(mine)
        topic_partitions = sorted({topic_partition for part in mine for topic_partition in part.records})
        with Cluster(self._config) as cluster:
            offsets = known_offsets(cluster, self._source_offsets(batch_id))
            if not offsets and topic_partitions:
                # The source has no offsets in this cluster, but the batch's name needs offset metadata to
                # stand in.
                offsets = {topic_partitions[0]: batch_id}
            if not offsets:
                # An attempt that died may have begun the transaction.
                cluster.run(transactions.give_up(cluster.state, mine[0].transaction))
                return
            transaction = self._settled(cluster, mine)
            try:
                marker = batch_marker(query_id, batch_id)
                if self._sync_topic is not None and transaction is mine[0].transaction:
                    syncs = self._syncs(mine, batch_id)
                    offset_syncs.keep(cluster, transaction, self._sync_topic, self._group, batch_id, syncs)
                if self._marker_topic is not None:
                    markers.keep(cluster, transaction, self._marker_topic, self._group, marker)
                self._commit_offsets(cluster, transaction, offsets, marker)
                self._end(cluster, transaction)
            except Exception:
                # Spark calls `abort` now, which does not know the transaction that the driver began.
                cluster.run(transactions.give_up(cluster.state, transaction))
                raise

    def _settled(self, cluster: Cluster, parts: Sequence[TransactionPart]) -> Transaction:
        """Open transaction with the rows of `parts` and no others."""
        transaction = parts[0].transaction
        if _has_no_others(cluster, parts):
            return transaction
        again = cluster.run(transactions.begin_again(cluster.state, transaction, transaction.timeout_ms))
        logger.warning("a task ran more than once: its batch is copied into another transaction (%s)", again)
        try:
            copy_attempts.copy(self._config, _sources(parts), again)
        except Exception:
            cluster.run(transactions.give_up(cluster.state, again))
            raise
        return again

    def _commit_offsets(
        self, cluster: Cluster, transaction: Transaction, offsets: dict[TopicPartition, int], marker: str
    ) -> None:
        cluster.run(transactions.commit_offsets(cluster.state, transaction, self._group, offsets, marker))

    def _end(self, cluster: Cluster, transaction: Transaction) -> None:
        cluster.run(transactions.end(cluster.state, transaction, commit=True))

    def _abort(self, parts: Sequence[WriterCommitMessage | None]) -> None:
        """Abort, so that readers need not wait for the timeout. The next batch would abort it too."""
        for part in parts:
            if isinstance(part, TransactionPart) and not part.is_done_before:
                with Cluster(self._config) as cluster:
                    cluster.run(transactions.give_up(cluster.state, part.transaction))
                return

    def _syncs(self, parts: Sequence[TransactionPart], batch_id: int) -> dict[TopicPartition, Sync]:
        written = {
            topic_partition: stretches
            for part in parts
            if part.direct is not None
            for topic_partition, stretches in part.direct.stretches.items()
        }
        begins = self._source_offsets(batch_id - 1) if batch_id else {}
        return offset_syncs.syncs_of(written, begins, self._source_offsets(batch_id), self._sync_prefix)

    def _source_offsets(self, batch_id: int) -> dict[TopicPartition, int]:
        if self._checkpoint is None:
            return {}
        sync_plan(self._checkpoint, batch_id)
        try:
            return journaled_offsets(self._checkpoint, batch_id)
        except (OSError, ValueError, pa.ArrowException) as error:
            logger.warning("batch %d: its offsets cannot be read from the checkpoint: %s", batch_id, error)
            return {}


class ExactlyOnceStreamWriter(_Sink, DataSourceStreamArrowWriter):
    """`writeStream` with `delivery=exactly-once`."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002
        self._abort(messages)


class ExactlyOnceBatchWriter(_Sink, DataSourceArrowWriter):
    """`write` with `delivery=exactly-once`, inside `foreachBatch`: see `exactly_once_batch_writer`."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        assert self._given_batch_id is not None
        self._commit(messages, self._given_batch_id)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort(messages)


def _has_no_others(cluster: Cluster, parts: Sequence[TransactionPart]) -> bool:
    """True if the transaction holds exactly the rows that these attempts wrote."""
    if any(part.staged is not None for part in parts):
        return False
    claimed = {
        topic_partition
        for part in parts
        if part.direct is not None
        for topic_partition in part.direct.stretches
    }
    try:
        return cluster.run(transactions.open_partitions(cluster.state, parts[0].transaction)) == claimed
    except UnsupportedVersion:
        return not claimed


def _sources(parts: Sequence[TransactionPart]) -> dict[TopicPartition, list[Written]]:
    """Lanes that wrote to each partition, in order."""
    found: dict[TopicPartition, list[Written]] = {}
    for part in parts:
        for lane in filter(None, (part.direct, part.staged)):
            for topic_partition in lane.stretches:
                found.setdefault(topic_partition, []).append(lane)
    return found


def _check_one_writer_each(parts: Sequence[TransactionPart]) -> None:
    writers: dict[TopicPartition, int] = {}
    for number, part in enumerate(parts):
        if part.is_done_before:
            raise RuntimeError("some tasks saw the batch as committed and some did not")
        for topic_partition in part.records:
            if writers.setdefault(topic_partition, number) != number:
                raise OptionError(f"two tasks wrote to {topic_partition}: {ONE_WRITER_EACH}")
