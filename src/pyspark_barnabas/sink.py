"""Exactly once into topics: one transaction per micro-batch.

**The way of a batch.** When the writer is handed to the tasks, the driver calls InitProducerId. That
fences whoever used the pipeline's transactional id before and aborts what it left open, and it gives
this batch an epoch of its own. Tasks add their partitions to the transaction and write to them, all
with the one producer id. The driver then commits the source's offsets, with the batch's name in
their metadata, in the same transaction, and ends it.

**The crash windows.** Before EndTxn reached the coordinator nothing is visible: Spark runs the batch again,
InitProducerId aborts the remains. After EndTxn the batch is done, whether or not the driver heard of it:
InitProducerId waits for the completion, and then the batch's name, (query id, batch id), stands in the
group's offset metadata (and, for longer, in `markerTopic`: see `markers`), so the tasks of the batch that is
run again write nothing. A zombie driver, and the zombie tasks of any earlier attempt at a batch, have an
older epoch and are refused by every broker. A transaction that outlives its timeout is aborted by the
coordinator, which also bumps the epoch: the commit is refused and the batch is run again.

**One producer id, many tasks.** A broker checks a producer's sequence numbers per partition, so the id
may be shared as long as each output partition has one writer: `exactly_once` arranges the rows so.
Each task reports which partitions it wrote to, and a partition that two tasks claim stops the commit.

**Tasks that run again.** A task that dies once is an everyday event, and so are a speculative copy and a
stage that is run again. Two attempts at a task must not be mixed, because rows may come out of a
shuffle in another order, and rows of an attempt that does not count must not be committed, though a
transaction can only be committed whole. So at most one attempt ever writes to a partition in the
batch's transaction (`claims`); every other one writes beside it, where nobody sees it (`staging`).
Spark says which attempt at each task counts. If these are the only ones that have touched the
transaction, and they always are when no task ran twice, it is committed as it is. Otherwise it is aborted,
and what the attempts that count have written, in it or beside it, is copied from the log into the next
one (`copying`), under an epoch that no task has. So a task's retry costs a second writing of its batch,
never a record, and the query goes on. The next epoch is given to none but the driver of the last one,
so a driver that was replaced cannot come back this way.
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

from barnabas.client import transaction_steps as transactions
from barnabas.client.transaction_steps import Transaction
from barnabas.core.errors import OutOfOrderSequenceNumber, UnsupportedVersion
from barnabas.core.ids import TopicPartition
from pyspark_barnabas import copying, markers
from pyspark_barnabas import options as parse
from pyspark_barnabas.attempts import Attempt
from pyspark_barnabas.batch_names import BATCH_ID, QUERY_ID, batch_marker, last_committed_batch
from pyspark_barnabas.cluster import Cluster
from pyspark_barnabas.journal import journaled_offsets, known_offsets
from pyspark_barnabas.lanes import Written
from pyspark_barnabas.options import OptionError, Options
from pyspark_barnabas.rows import RowWriter
from pyspark_barnabas.writer import row_options

TRANSACTION_TIMEOUT_MS: Final = 900_000
"""The longest that brokers allow by default."""
ONE_WRITER_EACH: Final = "give each output partition one writer with pyspark_barnabas.exactly_once(df, ...)"

_log = logging.getLogger(__name__)


@dataclass
class TransactionPart(WriterCommitMessage):
    """What one task contributed to the transaction."""

    query_id: str
    transaction: Transaction
    is_done_before: bool = False
    records: dict[TopicPartition, int] = field(default_factory=dict)
    direct: Written | None = None
    """In the transaction."""
    staged: Written | None = None
    """Beside it, and later than what is in it."""


class _Sink:
    """What batch and stream writers have in common."""

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
        self._timeout_ms = options.number("transactionTimeoutMs", TRANSACTION_TIMEOUT_MS)
        self._marker_topic = options.get("markerTopic")
        self._checkpoint = options.get("checkpointLocation")
        self._given_query_id = options.get("queryId")
        self._given_batch_id = options.number("batchId", least=0)
        self._transaction: Transaction | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Spark pickles a writer to send it to the tasks: that is when the transaction begins.

        It makes another writer to commit, which is not pickled and must not begin one.
        """
        if self._transaction is None:
            self._transaction = self._begin()
        return self.__dict__

    def _begin(self) -> Transaction:
        assert self._timeout_ms is not None
        with Cluster(self._config) as cluster:
            return cluster.run(transactions.begin(cluster.state, self._transactional_id, self._timeout_ms))

    # -- in the tasks -------------------------------------------------------------------------

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

    # -- on the driver ------------------------------------------------------------------------

    def _commit(self, parts: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        mine = [part for part in parts if isinstance(part, TransactionPart)]
        if not mine or all(part.is_done_before for part in mine):
            return
        query_id = mine[0].query_id
        _check_one_writer_each(mine)
        places = sorted({place for part in mine for place in part.records})
        with Cluster(self._config) as cluster:
            offsets = known_offsets(cluster, self._source_offsets(batch_id))
            if not offsets and places:
                # Nothing to commit for a source without offsets here, but the name must be kept somewhere.
                offsets = {places[0]: batch_id}
            if not offsets:
                # An attempt that died may have begun it.
                cluster.run(transactions.give_up(cluster.state, mine[0].transaction))
                return
            transaction = self._settled(cluster, mine)
            try:
                marker = batch_marker(query_id, batch_id)
                if self._marker_topic is not None:
                    markers.keep(cluster, transaction, self._marker_topic, self._group, marker)
                self._commit_offsets(cluster, transaction, offsets, marker)
                self._end(cluster, transaction)
            except Exception:
                # Spark calls `abort` now, which does not know of a transaction that the driver has begun.
                cluster.run(transactions.give_up(cluster.state, transaction))
                raise

    def _settled(self, cluster: Cluster, parts: Sequence[TransactionPart]) -> Transaction:
        """An open transaction with the rows of `parts` and no others."""
        transaction = parts[0].transaction
        if _has_no_others(cluster, parts):
            return transaction
        assert self._timeout_ms is not None
        again = cluster.run(transactions.begin_again(cluster.state, transaction, self._timeout_ms))
        _log.warning("a task ran more than once: its batch is copied into another transaction, %s", again)
        try:
            copying.copy(self._config, _sources(parts), again)
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
        """So that readers need not wait for the timeout; the next batch would do it as well."""
        for part in parts:
            if isinstance(part, TransactionPart) and not part.is_done_before:
                with Cluster(self._config) as cluster:
                    cluster.run(transactions.give_up(cluster.state, part.transaction))
                return

    def _source_offsets(self, batch_id: int) -> dict[TopicPartition, int]:
        if self._checkpoint is None:
            return {}
        try:
            return journaled_offsets(self._checkpoint, batch_id)
        except (OSError, ValueError, pa.ArrowException) as error:
            _log.warning("the offsets of batch %d cannot be read from the checkpoint: %s", batch_id, error)
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
    """Whether the transaction holds what these attempts wrote, all of it, and nothing else."""
    if any(part.staged is not None for part in parts):
        return False
    claimed = {place for part in parts if part.direct is not None for place in part.direct.stretches}
    try:
        return cluster.run(transactions.open_partitions(cluster.state, parts[0].transaction)) == claimed
    except UnsupportedVersion:
        return not claimed


def _sources(parts: Sequence[TransactionPart]) -> dict[TopicPartition, list[Written]]:
    """By partition, everything that was written to it, in order."""
    found: dict[TopicPartition, list[Written]] = {}
    for part in parts:
        for lane in filter(None, (part.direct, part.staged)):
            for place in lane.stretches:
                found.setdefault(place, []).append(lane)
    return found


def _check_one_writer_each(parts: Sequence[TransactionPart]) -> None:
    writers: dict[TopicPartition, int] = {}
    for number, part in enumerate(parts):
        if part.is_done_before:
            raise RuntimeError("some tasks took the batch for done and some did not")
        for place in part.records:
            if writers.setdefault(place, number) != number:
                raise OptionError(f"two tasks wrote to {place}: {ONE_WRITER_EACH}")
