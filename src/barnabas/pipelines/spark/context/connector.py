"""Connector options: how a pipeline reads and writes topics.

`format("barnabas")` is the default. Spark's own connector (`jvm`) takes the same option names, so the engine
is a matter of one word.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame

import pyspark_barnabas
from barnabas.client.security.settings import SECRETS
from barnabas.pipelines.spark.context.run_context import PipelineFailed, Run
from barnabas.pipelines.spec.model import Engine, Part
from barnabas.pipelines.spec.own_cluster import own_client_settings
from barnabas.protocol.offset_numbers import EARLIEST
from barnabas.security.identity.secret_references import resolve
from pyspark_barnabas.shared.cluster import Cluster
from pyspark_barnabas.shared.options import OptionError, Options, cluster_config

_PASSED_ON = {
    "pattern": "subscribePattern",
    "assign": "assign",
    "starting_timestamp": "startingTimestamp",
    "max_offsets_per_trigger": "maxOffsetsPerTrigger",
    "min_partitions": "minPartitions",
}

_TOPICS = ("topic", "mirror")
"""Sinks that keep the headers and the order of records."""


def read_records(part: Part, run: Run, *, streaming: bool) -> DataFrame:
    """Undecoded records of a topic source, with the columns of Spark's Kafka source."""
    options = source_options(part, run)
    if not streaming:
        options.pop("maxOffsetsPerTrigger", None)
        is_bounded = run.is_main_source or "ending_offsets" in part.options
        if not is_bounded and engine_of(part, run) == Engine.PYTHON.value:
            options["offsetsAtRead"] = "true"
            options.pop("minPartitions", None)
    read = pyspark_barnabas.read_stream if streaming else pyspark_barnabas.read
    try:
        return read(run.spark, engine=engine_of(part, run), **options)
    except OptionError as error:
        raise PipelineFailed(str(error)) from None


def engine_of(part: Part, run: Run) -> str:
    """Engine of a source. `auto` is the Python connector: a checkpoint must not depend on the installed jars.

    With several sources, those without a manifest are read from their brokers.
    """
    engine = run.spec.engine
    if engine is Engine.AUTO or (engine is Engine.SEGMENTS and not part.get("manifest")):
        engine = Engine.PYTHON
    return engine.value


def source_options(part: Part, run: Run) -> dict[str, str]:
    options = {
        "kafka.bootstrap.servers": run.bootstrap_of(part),
        "kafka.isolation.level": part["isolation_level"],
        "failOnDataLoss": str(part["fail_on_data_loss"]).lower(),
        "includeHeaders": str(wants_headers(part, run)).lower(),
        **client_options(part, engine=engine_of(part, run)),
    }
    if run.spec.engine is Engine.SEGMENTS and part.get("manifest"):
        options["manifest"] = str(run.resolved(part, "manifest"))
    if part.get("topics"):
        options["subscribe"] = ",".join(part["topics"])
    if not part.get("starting_timestamp"):
        options["startingOffsets"] = _all_named(part.get("starting_offsets", "earliest"), part, options)
    if part.get("ending_offsets"):
        options["endingOffsets"] = part["ending_offsets"]
    if "ending_offsets" in part.options and part.get("starting_offsets", "").startswith("{"):
        # Offsets of some partitions only: exactly those are read.
        for name in ("subscribe", "subscribePattern", "assign"):
            options.pop(name, None)
        named = json.loads(part["starting_offsets"])
        options["assign"] = json.dumps({topic: [int(each) for each in rows] for topic, rows in named.items()})
        return options
    return options | _passed_on(part, run)


def _passed_on(part: Part, run: Run) -> dict[str, str]:
    options = {theirs: str(part[ours]) for ours, theirs in _PASSED_ON.items() if part.get(ours) is not None}
    is_ordered = run.spec.sink.type == "http" and "minPartitions" not in options
    if run.spec.sink.get("mode") == "upsert" or run.spec.sink.type in _TOPICS:
        # One task reads a partition, in order. The last of several rows with the same key wins, and a topic
        # keeps the records of a key in their order.
        options.pop("minPartitions", None)
        is_ordered = True
    if is_ordered and engine_of(part, run) == Engine.SEGMENTS.value:
        options["keepOrder"] = "true"
    if part.get("starting_timestamp"):
        # A partition without a record of that time or later has nothing to read yet.
        options["startingOffsetsByTimestampStrategy"] = "latest"
    return options


def _all_named(starting: str, part: Part, options: Mapping[str, str]) -> str:
    """Offsets for every partition, as the connector requires. Unnamed partitions begin at their start."""
    topics = part.get("topics")
    is_read_from_files = "manifest" in options
    if not starting.startswith("{") or not topics or "ending_offsets" in part.options or is_read_from_files:
        return starting
    named = json.loads(starting)
    client = {name: value for name, value in options.items() if name.startswith("kafka.")}
    with Cluster(cluster_config(Options(client))) as cluster:
        counts = cluster.partitions(topics)
    return json.dumps(
        {
            topic: {**{str(each): EARLIEST for each in range(count)}, **named.get(topic, {})}
            for topic, count in counts.items()
        }
    )


def wants_headers(part: Part, run: Run) -> bool:
    """True if headers are read: for topic sinks by default, and always for dead letters."""
    asked = part.get("headers")
    is_copied = asked is None and run.is_main_source and run.spec.sink.type in _TOPICS
    return bool(asked) or is_copied or run.spec.errors.dead_letter_topic is not None


def client_options(part: Part, *, engine: str = Engine.PYTHON.value) -> dict[str, str]:
    """Kafka client settings of a source or sink.

    Spark shows options in plans and logs. So a secret stays a reference, which our connector resolves when it
    connects.
    """
    given: Mapping[str, str] = part.get("kafka") or {}
    named = {name.removeprefix("kafka."): value for name, value in given.items()}
    return {
        f"kafka.{name}": value if name in SECRETS and engine != Engine.JVM.value else resolve(value)
        for name, value in named.items()
    }


def own_options(run: Run) -> dict[str, str]:
    """Connector options for the pipeline's own cluster."""
    settings = own_client_settings(run.spec)
    return {"kafka.bootstrap.servers": run.bootstrap, **client_options(Part("topic", {"kafka": settings}))}
