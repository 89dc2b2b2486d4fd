"""Where the name of a pipeline's last batch outlives the group's offsets.

The name stands in the metadata of the group's offsets, which brokers forget when a group has been
still for `offsets.retention.minutes` (seven days). A pipeline that crashed between its transaction's
end and Spark's own note of it, and is started again after that time, would write one batch twice. So
the name also goes, in the same transaction, into a compacted topic, if one is given: compaction keeps
the last record of every key. It is read only when the group knows of no batch.

The topic has one partition that counts, the first; its key is the group.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from barnabas.client import transaction_steps as transactions
from barnabas.client.cluster_state import EARLIEST, LATEST, READ_COMMITTED
from barnabas.client.transaction_steps import Transaction
from barnabas.core.ids import TopicPartition
from barnabas.records.compression import Codec
from pyspark_barnabas import encode
from pyspark_barnabas.cluster import Cluster
from pyspark_barnabas.fetch import FetchOptions, OffsetRange, read_range
from pyspark_barnabas.options import OptionError
from pyspark_barnabas.producer import BatchSender, Outgoing

PARTITION: Final = 0
OPEN_TRANSACTION_MS_MAX: Final = 960_000
"""A driver that died before its transaction's end keeps it open for as long as brokers allow by default
(`transaction.max.timeout.ms`, 15 minutes); until then nobody can read what is behind it."""


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

    All that is there now is read, and transactions that are still open there are waited for: behind
    one of another pipeline may stand the marker that is looked for.
    """
    place = TopicPartition(topic, PARTITION)
    begin = cluster.list_offsets({place: EARLIEST}).get(place)
    if begin is None:
        raise OptionError(f"markerTopic: there is no topic {topic}; create it with cleanup.policy=compact")
    end = cluster.list_offsets({place: LATEST})[place]
    options = FetchOptions(
        columns=("key", "value"), isolation=READ_COMMITTED, poll_timeout_ms=OPEN_TRANSACTION_MS_MAX
    )
    found, key = "", group.encode()
    for batch in read_range(cluster, OffsetRange(topic, PARTITION, begin, end), options):
        for name, value in zip(
            batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True
        ):
            if name == key:
                found = (value or b"").decode()
    return found
