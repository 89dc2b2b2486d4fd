"""Offset syncs of a mirrored micro-batch, written in its transaction (see `pipelines.state.offset_syncs`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from barnabas.client.core import transaction_steps as transactions
from barnabas.client.core.transaction_steps import Transaction
from barnabas.core.ids import TopicPartition
from barnabas.pipelines.state.offset_syncs import Sync, keys_of
from barnabas.records.compression import Codec
from pyspark_barnabas.produce import encode
from pyspark_barnabas.produce.lanes import Stretch
from pyspark_barnabas.produce.producer import BatchSender, Outgoing
from pyspark_barnabas.shared.cluster import Cluster

PARTITION: Final = 0
BATCH_BYTES: Final = 500_000


def syncs_of(
    written: Mapping[TopicPartition, list[Stretch]],
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    prefix: str,
) -> dict[TopicPartition, Sync]:
    """Syncs by source partition. A partition whose records are not contiguous in its copy has none."""
    found: dict[TopicPartition, Sync] = {}
    for copy, stretches in written.items():
        source = TopicPartition(copy.topic.removeprefix(prefix), copy.partition)
        if source in ends and len(stretches) == 1 and stretches[0].base_offset >= 0:
            base, count = stretches[0]
            found[source] = Sync(begins.get(source), ends[source], base, count)
    return found


def keep(
    cluster: Cluster,
    transaction: Transaction,
    topic: str,
    group: str,
    batch_id: int,
    syncs: Mapping[TopicPartition, Sync],
) -> None:
    """Write the syncs of a batch; they count when the transaction is committed.

    Every transaction has its own epoch, so the sequence numbers begin at 0.
    """
    rows = [
        (key.encode(), sync.to_json().encode())
        for source, sync in syncs.items()
        for key in keys_of(group, source.topic, source.partition, batch_id)
    ]
    if not rows:
        return
    topic_partition = TopicPartition(topic, PARTITION)
    cluster.run(transactions.add_partitions(cluster.state, transaction, [topic_partition]))
    columns = encode.Rows(pa.array([key for key, _ in rows]), pa.array([value for _, value in rows]), None)
    producer = encode.Producer(transaction.producer_id, transaction.epoch, is_transactional=True)
    sender = BatchSender(cluster, transactional_id=transaction.transactional_id)
    sequence = 0
    for payload in encode.payloads(columns, encode.cuts_by_size(encode.sizes(columns), BATCH_BYTES)):
        batch = encode.seal(
            payload,
            codec=Codec.NONE,
            timestamp_ms=cluster.clock.now_ms(),
            producer=producer,
            base_sequence=sequence,
        )
        sender.send([Outgoing(topic_partition, sequence, batch, payload.record_count)])
        sequence += payload.record_count
    sender.flush()
