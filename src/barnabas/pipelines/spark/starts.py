"""Where a pipeline that begins at the latest offsets begins: looked up once, and kept.

A checkpoint knows nothing of the source before its first micro-batch. Until then every start would look
up the latest offsets anew, and so would the query of the dead letters: records that came between two
starts, or between those of two queries, would be nobody's.
"""

from __future__ import annotations

import json
from dataclasses import replace

from barnabas.core.ids import TopicPartition
from barnabas.pipelines.spark.connector import source_options
from barnabas.pipelines.spark.notes import read_note, write_note
from barnabas.pipelines.spark.run import Run
from barnabas.pipelines.spec.model import Engine, Part
from barnabas.protocol.offset_numbers import LATEST
from pyspark_barnabas.cluster import Cluster
from pyspark_barnabas.options import Options, cluster_config, isolation

NOTE = "start"


def with_start(run: Run) -> Run:
    """`run`, beginning at offsets in place of `latest`, where the topics are known by name."""
    source = run.spec.source
    is_latest = source.type == "topic" and source.get("starting_offsets") == "latest"
    if not is_latest or not source.get("topics") or run.spec.engine is Engine.SEGMENTS:
        return run
    place = run.checkpoint(NOTE)
    start = read_note(run, place)
    if start is None:
        start = json.dumps(_latest(source, run))
        write_note(run, place, start)
    begun = Part(source.type, {**source.options, "starting_offsets": start})
    return replace(run, spec=replace(run.spec, source=begun))


def _latest(source: Part, run: Run) -> dict[str, dict[str, int]]:
    options = source_options(source, run)
    client = Options({name: value for name, value in options.items() if name.startswith("kafka.")})
    with Cluster(cluster_config(client)) as cluster:
        counts = cluster.partitions(source["topics"])
        places = [TopicPartition(topic, each) for topic, count in counts.items() for each in range(count)]
        ends = cluster.list_offsets(dict.fromkeys(places, LATEST), isolation=isolation(client))
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(ends.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found
