"""Name of a micro-batch, (query id, batch id), and the last name that a transaction committed."""

from __future__ import annotations

from typing import Final

from barnabas.client.core import transaction_steps as transactions
from pyspark_barnabas.shared.cluster import Cluster
from pyspark_barnabas.writers.attempts import markers

MARKER: Final = "barnabas-batch"
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
"""Local properties in which Spark passes the query id and batch id to tasks."""


def batch_marker(query_id: str, batch_id: int) -> str:
    return f"{MARKER}:{query_id}:{batch_id}"


def last_committed_batch(cluster: Cluster, group: str, query_id: str, marker_topic: str | None = None) -> int:
    """Last batch of the query with a committed transaction; -1 if there is none."""
    found = cluster.run(transactions.committed_metadata(cluster.state, group)).values()
    last = max((_batch_of(metadata, query_id) for _, metadata in found), default=-1)
    if last < 0 and marker_topic is not None:
        last = _batch_of(markers.last_kept(cluster, marker_topic, group), query_id)
    return last


def _batch_of(marker: str, query_id: str) -> int:
    prefix = batch_marker(query_id, 0).removesuffix("0")
    return int(marker.removeprefix(prefix)) if marker.startswith(prefix) else -1
