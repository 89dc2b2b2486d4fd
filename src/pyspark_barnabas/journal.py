"""The source's offsets of a micro-batch, which Spark journals in the checkpoint before it runs the batch."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from pathlib import Path

import pyarrow.fs

from barnabas.core.ids import TopicPartition
from barnabas.core.spark_journal import source_offsets
from pyspark_barnabas.cluster import Cluster


def journaled_offsets(checkpoint: str, batch_id: int) -> dict[TopicPartition, int]:
    """Where a batch ends in its topics, from Spark's own journal; sources of other kinds are left out."""
    location = checkpoint if "://" in checkpoint else str(Path(checkpoint.removeprefix("file:")).absolute())
    files, root = pyarrow.fs.FileSystem.from_uri(location)
    with files.open_input_stream(posixpath.join(root, "offsets", str(batch_id))) as stream:
        text = stream.read().decode()
    found: dict[TopicPartition, int] = {}
    for tree in source_offsets(text):
        try:
            found |= {
                TopicPartition(topic, int(partition)): int(offset)
                for topic, rows in tree.items()
                for partition, offset in rows.items()
            }
        except (ValueError, AttributeError, TypeError):
            continue
    return found


def known_offsets(cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Those of partitions that this cluster has: a source may be on another, or deleted since it was read."""
    counts = cluster.partitions(place.topic for place in offsets)
    return {
        place: offset for place, offset in offsets.items() if place.partition < counts.get(place.topic, 0)
    }
