"""The rows of one Spark task on their way to a real broker, without Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from barnabas.client.core import transaction_steps as txn
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.ids import TopicPartition
from barnabas.records.compression import Codec
from pyspark_barnabas.produce.encode import Producer
from pyspark_barnabas.produce.lanes import Lane
from pyspark_barnabas.produce.producer import BatchSender
from pyspark_barnabas.produce.rows import FLUSH_BYTES, RowOptions, RowWriter
from pyspark_barnabas.shared.cluster import Cluster
from pyspark_barnabas.shared.cluster_config import ClusterConfig
from tests.support.topics import consume, produce

ROWS = 8


def rows_for(topic: str) -> pa.RecordBatch:
    """Enough to be sent at once."""
    values = [bytes(FLUSH_BYTES // ROWS)] * ROWS
    return pa.record_batch({"value": values, "topic": [topic] * ROWS})


def test_partitions_may_join_a_transaction_while_batches_are_in_flight(pipelines_broker: str) -> None:
    topics = ["first", "second", "third"]
    for topic in topics:
        produce(pipelines_broker, topic, [b"so that it exists"])
    host, _, port = pipelines_broker.rpartition(":")
    with Cluster(ClusterConfig((Endpoint(host, int(port)),))) as cluster:
        transaction = cluster.run(txn.begin(cluster.state, "writer", 60_000))
        lane = Lane(
            Producer(transaction.producer_id, transaction.epoch, is_transactional=True),
            BatchSender(cluster, transactional_id="writer"),
        )

        def choose_lane(topic_partitions: list[TopicPartition]) -> Lane:
            new = [
                topic_partition
                for topic_partition in topic_partitions
                if topic_partition not in lane.sequences
            ]
            cluster.run(txn.add_partitions(cluster.state, transaction, new))
            return lane

        writer = RowWriter(cluster, choose_lane, RowOptions(None, Codec.NONE, 900_000), task=0)
        writer.write(iter(rows_for(topic) for topic in [*topics, *topics]))
        cluster.run(txn.end(cluster.state, transaction, commit=True))
    assert writer.records == {TopicPartition(topic, 0): 2 * ROWS for topic in topics}
    assert [len(consume(pipelines_broker, topic)) for topic in topics] == [1 + 2 * ROWS] * 3
