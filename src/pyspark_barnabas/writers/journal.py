"""Source offsets of a micro-batch, which Spark journals in the checkpoint before it runs the batch."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from pathlib import Path

import pyarrow.fs

from barnabas.core.ids import TopicPartition
from barnabas.pipelines.state.checkpoint_format import source_offsets
from pyspark_barnabas.shared.cluster import Cluster


def journaled_offsets(checkpoint: str, batch_id: int) -> dict[TopicPartition, int]:
    """End offsets of a batch in its topics, from Spark's offset log. Sources of other kinds are left out."""
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
    """Offsets of partitions that this cluster has. A source may be on another cluster, or deleted since."""
    counts = cluster.partitions(topic_partition.topic for topic_partition in offsets)
    return {
        topic_partition: offset
        for topic_partition, offset in offsets.items()
        if topic_partition.partition < counts.get(topic_partition.topic, 0)
    }
