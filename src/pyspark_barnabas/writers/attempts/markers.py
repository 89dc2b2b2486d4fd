"""Marker topic: keeps the name of a pipeline's last batch longer than the group's offsets.

The name stands in the metadata of the group's offsets. Brokers expire these when a group has been inactive
for `offsets.retention.minutes` (seven days). A pipeline may crash between the end of its transaction and
Spark's commit log. If it restarts after that time, it would write one batch twice. So the name also goes, in
the same transaction, into a compacted topic, if one is given: compaction keeps the last record of every key.
The topic is read only when the group knows no batch.

Only partition 0 of the topic counts; the key is the group. All pipelines share it. A pipeline whose driver
died may leave its transaction open up to the brokers' limit, with the markers of all others behind it. They
need not wait for it. Below the last stable offset, the broker filters aborted transactions. Above it, a
marker is decided when the end of its own transaction follows it. A pipeline that reads the topic has ended
its own transactions first (InitProducerId does).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from barnabas.client.core import transaction_steps as transactions
from barnabas.client.core.transaction_steps import Transaction
from barnabas.core.ids import TopicPartition
from barnabas.protocol.offset_numbers import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED
from barnabas.records.batch import RecordBatch
from barnabas.records.compression import Codec
from barnabas.records.record import end_transaction_marker, iterate_records
from pyspark_barnabas.produce import encode
from pyspark_barnabas.produce.producer import BatchSender, Outgoing
from pyspark_barnabas.readers.fetch import FetchOptions, OffsetRange, read_batches, read_range
from pyspark_barnabas.shared.cluster import Cluster
from pyspark_barnabas.shared.options import OptionError

PARTITION: Final = 0
OPEN_TRANSACTION_MS_MAX: Final = 960_000
"""A dead driver's transaction stays open for at most the brokers' default limit
(`transaction.max.timeout.ms`, 15 minutes)."""

logger = logging.getLogger(__name__)


def keep(cluster: Cluster, transaction: Transaction, topic: str, group: str, marker: str) -> None:
    """Write `marker` for `group`; it counts when the transaction is committed.

    Every transaction has its own epoch, so the sequence number of this one record is 0.
    """
    topic_partition = TopicPartition(topic, PARTITION)
    cluster.run(transactions.add_partitions(cluster.state, transaction, [topic_partition]))
    rows = encode.Rows(pa.array([group.encode()]), pa.array([marker.encode()]), None)
    (payload,) = encode.payloads(rows, np.zeros(1, np.int64))
    producer = encode.Producer(transaction.producer_id, transaction.epoch, is_transactional=True)
    batch = encode.seal(
        payload,
        codec=Codec.NONE,
        timestamp_ms=cluster.clock.now_ms(),
        producer=producer,
        base_sequence=0,
    )
    sender = BatchSender(cluster, transactional_id=transaction.transactional_id)
    sender.send([Outgoing(topic_partition, 0, batch, 1)])
    sender.flush()


def last_kept(cluster: Cluster, topic: str, group: str) -> str:
    """Last committed marker of `group`, or an empty text.

    Reads all records that exist now. It waits for an open transaction only if that holds a marker of this
    group. Such a transaction began under another transactional id, or its driver still lives.
    """
    topic_partition = TopicPartition(topic, PARTITION)
    begin = cluster.list_offsets({topic_partition: EARLIEST}).get(topic_partition)
    if begin is None:
        raise OptionError(f"markerTopic: there is no topic {topic}; create it with cleanup.policy=compact")
    stable = cluster.list_offsets({topic_partition: LATEST}, isolation=READ_COMMITTED)[topic_partition]
    end = cluster.list_offsets({topic_partition: LATEST})[topic_partition]
    found = _last_committed(cluster, OffsetRange(topic, PARTITION, begin, stable), group)
    above = OffsetRange(topic, PARTITION, stable, end)
    reading = FetchOptions(columns=(), isolation=READ_UNCOMMITTED)
    decided = decide(read_batches(cluster, above, reading), group)
    if decided.is_open:
        logger.warning(
            "group %s: its marker in %s is in an open transaction; waiting until it ends",
            group,
            topic_partition,
        )
        return _last_committed(cluster, above, group) or found
    return found if decided.marker is None else decided.marker


class Decided(NamedTuple):
    marker: str | None
    """Marker of the last committed transaction; None if no transaction was committed."""
    is_open: bool
    """True if a transaction with a marker of the group is still open."""


def decide(batches: Iterable[RecordBatch], group: str) -> Decided:
    """Outcome of the markers of `group` among log batches that may hold markers of other groups too."""
    open_markers: dict[int, str] = {}
    last: str | None = None
    for batch in batches:
        batch.check_crc()
        for record in iterate_records(batch):
            if batch.is_control:
                ending = end_transaction_marker(record)
                if ending is not None:
                    ended = open_markers.pop(batch.producer_id, None)
                    last = ended if ending.is_commit and ended is not None else last
            elif record.key == group.encode():
                open_markers[batch.producer_id] = (record.value or b"").decode()
    return Decided(last, bool(open_markers))


def _last_committed(cluster: Cluster, wanted: OffsetRange, group: str) -> str:
    options = FetchOptions(
        columns=("key", "value"), isolation=READ_COMMITTED, poll_timeout_ms=OPEN_TRANSACTION_MS_MAX
    )
    found, key = "", group.encode()
    for batch in read_range(cluster, wanted, options):
        for name, value in zip(
            batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True
        ):
            if name == key:
                found = (value or b"").decode()
    return found
