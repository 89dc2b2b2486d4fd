"""Where the name of a pipeline's last batch outlives the group's offsets.

The name stands in the metadata of the group's offsets, which brokers forget when a group has been
still for `offsets.retention.minutes` (seven days). A pipeline that crashed between its transaction's
end and Spark's own note of it, and is started again after that time, would write one batch twice. So
the name also goes, in the same transaction, into a compacted topic, if one is given: compaction keeps
the last record of every key. It is read only when the group knows of no batch.

The topic has one partition that counts, the first; its key is the group. All pipelines share it, and
one whose driver died leaves its transaction open for as long as brokers allow, with the markers of all
others behind it. They need not wait for it: below the last stable offset the broker says what was
committed; above it, a marker is decided when the end of its own transaction stands behind it, and
whoever looks has ended its own transactions before (InitProducerId does).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from barnabas.client import transaction_steps as transactions
from barnabas.client.transaction_steps import Transaction
from barnabas.core.ids import TopicPartition
from barnabas.protocol.offset_numbers import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED
from barnabas.records.batch import RecordBatch
from barnabas.records.compression import Codec
from barnabas.records.record import end_transaction_marker, iterate_records
from pyspark_barnabas import encode
from pyspark_barnabas.cluster import Cluster
from pyspark_barnabas.fetch import FetchOptions, OffsetRange, read_batches, read_range
from pyspark_barnabas.options import OptionError
from pyspark_barnabas.producer import BatchSender, Outgoing

PARTITION: Final = 0
OPEN_TRANSACTION_MS_MAX: Final = 960_000
"""A driver that died before its transaction's end keeps it open for as long as brokers allow by default
(`transaction.max.timeout.ms`, 15 minutes)."""

_log = logging.getLogger(__name__)


def keep(cluster: Cluster, transaction: Transaction, topic: str, group: str, marker: str) -> None:
    """Write `marker` for `group`; it counts when the transaction is committed.

    Every transaction has an epoch of its own, so the sequence of this one record is 0.
    """
    place = TopicPartition(topic, PARTITION)
    cluster.run(transactions.add_partitions(cluster.state, transaction, [place]))
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
    sender.send([Outgoing(place, 0, batch, 1)])
    sender.flush()


def last_kept(cluster: Cluster, topic: str, group: str) -> str:
    """The marker that was committed last for `group`, or an empty text.

    All that is there now is read. A transaction that is still open is waited for only if it holds a
    marker of this very group: it was begun under another transactional id, or its driver still lives.
    """
    place = TopicPartition(topic, PARTITION)
    begin = cluster.list_offsets({place: EARLIEST}).get(place)
    if begin is None:
        raise OptionError(f"markerTopic: there is no topic {topic}; create it with cleanup.policy=compact")
    stable = cluster.list_offsets({place: LATEST}, isolation=READ_COMMITTED)[place]
    end = cluster.list_offsets({place: LATEST})[place]
    found = _last_committed(cluster, OffsetRange(topic, PARTITION, begin, stable), group)
    above = OffsetRange(topic, PARTITION, stable, end)
    reading = FetchOptions(columns=(), isolation=READ_UNCOMMITTED)
    decided = decide(read_batches(cluster, above, reading), group)
    if decided.is_open:
        _log.warning("%s is in a transaction of %s that is open: its end is waited for", group, place)
        return _last_committed(cluster, above, group) or found
    return found if decided.marker is None else decided.marker


class Decided(NamedTuple):
    marker: str | None
    """Of the transaction that was committed last; None if none was."""
    is_open: bool
    """Whether there is one that is not decided yet."""


def decide(batches: Iterable[RecordBatch], group: str) -> Decided:
    """What became of the markers of `group` among batches as they are in the log, whoever else is in it."""
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
