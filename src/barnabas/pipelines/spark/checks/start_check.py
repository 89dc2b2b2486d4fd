"""Start check: a run without a checkpoint whose group is ahead is refused, with a choice.

With exactly-once delivery to topics, the pipeline's group holds the source's offsets, committed with the
output. If the group is ahead of the run's start and the run has no checkpoint, the checkpoint is elsewhere:
under another `--state`, or on another machine. Everything up to the group's offsets would be written again.
So the run stops, and its user chooses: that other state, the group's offsets, or everything again.

A new generation of a checkpoint begins where the user set it, so this check skips it.
"""

from __future__ import annotations

import json
from dataclasses import replace

from barnabas.client.core import transaction_steps as transactions
from barnabas.core.errors import KafkaError
from barnabas.pipelines.spark.context.connector import client_options
from barnabas.pipelines.spark.context.run_context import Beginning, PipelineInvalid, Run, Unavailable
from barnabas.pipelines.spark.recovery.failed_batch import first_offsets, journaled_batches
from barnabas.pipelines.spec.model import Delivery, Part
from pyspark_barnabas.shared.cluster import Cluster
from pyspark_barnabas.shared.options import Options, cluster_config
from pyspark_barnabas.writers.batch_names import MARKER

Offsets = dict[str, dict[int, int]]


def begun_once(run: Run) -> Run:
    """`run`, starting at the group's offsets if the user chose so; PipelineInvalid if a choice is needed."""
    spec = run.spec
    has_group = spec.source.type == "topic" and spec.sink.type == "topic"
    if not has_group or spec.delivery is not Delivery.EXACTLY_ONCE or run.generation:
        return run
    if run.beginning is Beginning.AGAIN or journaled_batches(run):
        return run
    committed = _committed(run)
    begins = first_offsets(run) if committed else {}
    ahead = _ahead(begins, committed)
    if not ahead:
        return run
    if run.beginning is Beginning.ONCE:
        raise PipelineInvalid(refusal(run, ahead))
    start = {topic: {**begins[topic], **committed.get(topic, {})} for topic in begins}
    source = {**spec.source.options, "starting_offsets": json.dumps(start), "starting_timestamp": None}
    return replace(run, spec=replace(spec, source=Part(spec.source.type, source)))


def refusal(run: Run, ahead: Offsets) -> str:
    read = ", ".join(
        f"{topic}-{partition} up to offset {offset}"
        for topic, rows in sorted(ahead.items())
        for partition, offset in sorted(rows.items())
    )
    return (
        f"group {run.spec.group_id} has read {read}, but {run.directory} has no checkpoint: the pipeline ran"
        " with another --state, and all of that would be written again. Give that --state; or --from-group to"
        " go on from the group's offsets; or --from-scratch to write it again (in the service, 'pipeline"
        " reset')"
    )


def _committed(run: Run) -> Offsets:
    """Group offsets that were committed with a micro-batch."""
    sink = run.spec.sink
    options = {"kafka.bootstrap.servers": run.bootstrap_of(sink), **client_options(sink)}
    try:
        with Cluster(cluster_config(Options(options))) as cluster:
            found = cluster.run(transactions.committed_metadata(cluster.state, run.spec.group_id))
    except KafkaError as error:
        raise Unavailable(f"the offsets of group {run.spec.group_id}: {error.message}") from None
    committed: Offsets = {}
    for (topic, partition), (offset, metadata) in found.items():
        if metadata.startswith(f"{MARKER}:"):
            committed.setdefault(topic, {})[partition] = offset
    return committed


def _ahead(begins: Offsets, committed: Offsets) -> Offsets:
    """Partitions of the run whose group offset is ahead of the start."""
    found: Offsets = {}
    for topic, rows in begins.items():
        for partition, offset in committed.get(topic, {}).items():
            if offset > rows.get(partition, 0):
                found.setdefault(topic, {})[partition] = offset
    return found
