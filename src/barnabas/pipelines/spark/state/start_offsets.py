"""Start offsets of a pipeline that begins at the latest offsets: looked up once, and kept.

A checkpoint knows nothing of the source before its first micro-batch. Until then every start would look up
the latest offsets again, and so would the query of the dead letters. Records that arrive between two starts,
or between the starts of two queries, would be lost.
"""

from __future__ import annotations

import json
from dataclasses import replace

from barnabas.core.ids import TopicPartition
from barnabas.pipelines.spark.context.connector import source_options
from barnabas.pipelines.spark.context.run_context import Run
from barnabas.pipelines.spark.state.state_files import read_note, write_note
from barnabas.pipelines.spec.model import Engine, Part
from barnabas.protocol.offset_numbers import LATEST
from pyspark_barnabas.shared.cluster import Cluster
from pyspark_barnabas.shared.options import Options, cluster_config, isolation

NOTE = "start"


def with_start(run: Run) -> Run:
    """`run` with its start offsets instead of `latest`, where the topics have names."""
    source = run.spec.source
    is_latest = source.type == "topic" and source.get("starting_offsets") == "latest"
    if not is_latest or not source.get("topics") or run.spec.engine is Engine.SEGMENTS:
        return run
    location = run.checkpoint(NOTE)
    start = read_note(run, location)
    if start is None:
        start = json.dumps(_latest(source, run))
        write_note(run, location, start)
    begun = Part(source.type, {**source.options, "starting_offsets": start})
    return replace(run, spec=replace(run.spec, source=begun))


def _latest(source: Part, run: Run) -> dict[str, dict[str, int]]:
    options = source_options(source, run)
    client = Options({name: value for name, value in options.items() if name.startswith("kafka.")})
    with Cluster(cluster_config(client)) as cluster:
        counts = cluster.partitions(source["topics"])
        topic_partitions = [
            TopicPartition(topic, each) for topic, count in counts.items() for each in range(count)
        ]
        ends = cluster.list_offsets(dict.fromkeys(topic_partitions, LATEST), isolation=isolation(client))
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(ends.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found
