"""The rows of the attempts that count, written again from the log where they already are.

When a task had more than one attempt, the batch's transaction may hold rows of an attempt that does
not count, and a transaction is committed whole or not at all. So the driver aborts it and opens
another, into which it copies what the attempts that count have written: their batches are in the log,
aborted, at offsets that they reported. Batches are copied as they are, compressed or not; only who
produced them changes, and so the checksum. The rows are computed once, and what is visible in the end
is what one attempt at each task produced, whether or not another would have produced the same.

Every batch is checked to be the next of its producer's sequence. What is missing (deleted by
retention, or compacted away) fails the commit, and Spark's next run of the query writes the batch anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from barnabas.client import transaction_steps as transactions
from barnabas.client.transaction_steps import Transaction
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
from pyspark_barnabas.cluster import Cluster
from pyspark_barnabas.cluster_config import ClusterConfig
from pyspark_barnabas.encode import Producer
from pyspark_barnabas.fetch import FetchOptions, OffsetRange, read_batches
from pyspark_barnabas.lanes import Written
from pyspark_barnabas.producer import BatchSender, Outgoing

SEQUENCE_MASK: Final = 0x7FFF_FFFF
_CRC_BYTES: Final = 4
_READING: Final = FetchOptions(columns=(), isolation=READ_UNCOMMITTED)


class RowsNotFound(RuntimeError):
    """What an attempt had written is not in the log any more; the batch must be run again."""


def copy(
    config: ClusterConfig, sources: Mapping[TopicPartition, Sequence[Written]], transaction: Transaction
) -> None:
    """Everything in `sources`, in order, into the open `transaction`."""
    producer = Producer(transaction.producer_id, transaction.epoch, is_transactional=True)
    # A reader takes the answers of a connection in turn, so it needs connections of its own.
    with Cluster(config) as reading, Cluster(config) as writing:
        writing.run(transactions.add_partitions(writing.state, transaction, sources))
        sender = BatchSender(writing, transactional_id=transaction.transactional_id)
        for place, lanes in sources.items():
            sequence = 0
            for batch in _all_batches(reading, place, lanes):
                records = restamped(batch, producer, sequence & SEQUENCE_MASK)
                sender.send([Outgoing(place, sequence, records, batch.record_count)])
                sequence += batch.record_count
        sender.flush()


def _all_batches(cluster: Cluster, place: TopicPartition, lanes: Iterable[Written]) -> Iterator[RecordBatch]:
    for lane in lanes:
        expected = 0
        for stretch in lane.stretches.get(place, ()):
            if stretch.base_offset < 0:
                raise RowsNotFound(f"the broker did not say where in {place} it put some records")
            wanted = OffsetRange(place.topic, place.partition, stretch.base_offset, stretch.end)
            for batch in read_batches(cluster, wanted, _READING):
                if _is_of(lane, batch):
                    batch.check_crc()
                    if batch.base_sequence != expected & SEQUENCE_MASK:
                        raise RowsNotFound(f"records of {place} from {stretch.base_offset} on are gone")
                    expected += batch.record_count
                    yield batch
        promised = sum(stretch.record_count for stretch in lane.stretches.get(place, ()))
        if expected != promised:
            raise RowsNotFound(f"of {promised} records written to {place}, {expected} are in the log")


def _is_of(lane: Written, batch: RecordBatch) -> bool:
    return (
        batch.producer_id == lane.producer_id and batch.producer_epoch == lane.epoch and not batch.is_control
    )


def restamped(batch: RecordBatch, producer: Producer, base_sequence: int) -> bytearray:
    """The same records from another producer."""
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
