"""Copy of the batches of counting attempts, from the log into a new transaction.

When a task had several attempts, the batch's transaction may hold rows of a discarded attempt. A transaction
is committed as a whole or not at all. So the driver aborts it and begins another. It copies the batches of
the counting attempts into it: they are in the log, aborted, at offsets that the attempts reported.

Batches keep their compression; only the producer fields and the checksum change. The rows are computed once.
The visible result is that of one attempt at each task, even if another attempt would have produced other
rows.

Every batch must be the next in its producer's sequence. A missing batch (deleted by retention, or compacted
away) fails the commit, and Spark's next run of the query writes the batch again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from barnabas.client.core import transaction_steps as transactions
from barnabas.client.core.transaction_steps import Transaction
from barnabas.core.ids import TopicPartition
from barnabas.protocol.offset_numbers import READ_UNCOMMITTED
from barnabas.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CRC_AT,
    HEADER,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_LEADER_EPOCH,
    TRANSACTIONAL_FLAG,
    RecordBatch,
)
from barnabas.records.checksum import crc32c
from pyspark_barnabas.produce.encode import Producer
from pyspark_barnabas.produce.lanes import Written
from pyspark_barnabas.produce.producer import BatchSender, Outgoing
from pyspark_barnabas.readers.fetch import FetchOptions, OffsetRange, read_batches
from pyspark_barnabas.shared.cluster import Cluster
from pyspark_barnabas.shared.cluster_config import ClusterConfig

SEQUENCE_MASK: Final = 0x7FFF_FFFF
_CRC_BYTES: Final = 4
_READING: Final = FetchOptions(columns=(), isolation=READ_UNCOMMITTED)


class RowsNotFound(RuntimeError):
    """Batches of an attempt are no longer in the log; the batch must run again."""


def copy(
    config: ClusterConfig, sources: Mapping[TopicPartition, Sequence[Written]], transaction: Transaction
) -> None:
    """Copy everything in `sources`, in order, into the open `transaction`."""
    producer = Producer(transaction.producer_id, transaction.epoch, is_transactional=True)
    # A reader consumes the responses of a connection in turn, so it needs its own connections.
    with Cluster(config) as reading, Cluster(config) as writing:
        writing.run(transactions.add_partitions(writing.state, transaction, sources))
        sender = BatchSender(writing, transactional_id=transaction.transactional_id)
        for topic_partition, lanes in sources.items():
            sequence = 0
            for batch in _all_batches(reading, topic_partition, lanes):
                records = restamped(batch, producer, sequence & SEQUENCE_MASK)
                sender.send([Outgoing(topic_partition, sequence, records, batch.record_count)])
                sequence += batch.record_count
        sender.flush()


def _all_batches(
    cluster: Cluster, topic_partition: TopicPartition, lanes: Iterable[Written]
) -> Iterator[RecordBatch]:
    for lane in lanes:
        expected = 0
        for stretch in lane.stretches.get(topic_partition, ()):
            if stretch.base_offset < 0:
                raise RowsNotFound(f"the broker did not say where in {topic_partition} it put some records")
            wanted = OffsetRange(
                topic_partition.topic, topic_partition.partition, stretch.base_offset, stretch.end
            )
            for batch in read_batches(cluster, wanted, _READING):
                if _is_of(lane, batch):
                    batch.check_crc()
                    if batch.base_sequence != expected & SEQUENCE_MASK:
                        raise RowsNotFound(
                            f"records of {topic_partition} from {stretch.base_offset} on are gone"
                        )
                    expected += batch.record_count
                    yield batch
        promised = sum(stretch.record_count for stretch in lane.stretches.get(topic_partition, ()))
        if expected != promised:
            raise RowsNotFound(
                f"of {promised} records written to {topic_partition}, {expected} are in the log"
            )


def _is_of(lane: Written, batch: RecordBatch) -> bool:
    return (
        batch.producer_id == lane.producer_id and batch.producer_epoch == lane.epoch and not batch.is_control
    )


def restamped(batch: RecordBatch, producer: Producer, base_sequence: int) -> bytearray:
    """The same records, stamped with another producer."""
    copied = bytearray(batch.view())
    HEADER.pack_into(
        copied,
        0,
        0,
        len(copied) - LOG_OVERHEAD_BYTES,
        NO_LEADER_EPOCH,
        MAGIC,
        0,
        batch.attributes & CODEC_MASK | TRANSACTIONAL_FLAG,
        batch.last_offset_delta,
        batch.base_timestamp,
        batch.max_timestamp,
        producer.producer_id,
        producer.epoch,
        base_sequence,
        batch.record_count,
    )
    checksum: int = crc32c(memoryview(copied)[ATTRIBUTES_AT:])
    copied[CRC_AT : CRC_AT + _CRC_BYTES] = checksum.to_bytes(_CRC_BYTES, "big")
    return copied
